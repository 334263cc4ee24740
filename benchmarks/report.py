"""What a benchmark found: tables with a sentence on each figure, as Markdown or as JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import msgspec

Cell = str | int | float | None
Row = list[Cell]


class Column(msgspec.Struct, frozen=True):
    """A column of a table; ``form`` is the format of its numbers (``",.0f"``, ``".1%"``)."""

    name: str
    form: str = ""


class Table(msgspec.Struct, frozen=True):
    """A table and what its figures are."""

    title: str
    note: str
    columns: list[Column]
    rows: list[Row]

    def markdown(self) -> str:
        """Return the table as Markdown, numbers to the right."""
        marks = [":--", *("--:" for _ in self.columns[1:])]
        lines = [[column.name for column in self.columns], marks]
        lines += [
            [_shown(cell, column.form) for cell, column in zip(row, self.columns, strict=True)]
            for row in self.rows
        ]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"### {self.title}\n\n{self.note}\n\n{text}\n"


class Report(msgspec.Struct, frozen=True):
    """The tables of one benchmark, and the versions of the services and peers that it used."""

    title: str
    tables: list[Table]
    versions: dict[str, str] = {}

    def markdown(self) -> str:
        """Return the report as Markdown."""
        return "\n".join([f"## {self.title}\n", *(table.markdown() for table in self.tables)])


def columns(*described: str) -> list[Column]:
    """Make columns of ``name`` or ``name|format``."""
    return [Column(*one.split("|")) for one in described]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that every benchmark's own options are added to."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def run(parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Report]) -> None:
    """Measure as the command line says, and print what was found."""
    options = parser.parse_args()
    report = measure(options)
    print(msgspec.json.encode(report).decode() if options.json else report.markdown())


def progress(text: str) -> None:
    """Tell whoever waits what is being measured."""
    print(f"  {text}", file=sys.stderr, flush=True)


def _shown(cell: Cell, form: str) -> str:
    if cell is None:
        return "–"
    return cell if isinstance(cell, str) else format(cell, form)
