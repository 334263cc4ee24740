"""Writes figures into the pages, from the results of a run: ``summary --write``.

What stands in a page between ``<!-- figures: NAME -->`` and ``<!-- end -->`` is one of ``BLOCKS``,
made of the newest results of each kind: all benchmarks (``results/<date>.md``), those beside
other libraries (``results/<date>-peers.md``), quality of decisions (``quality/results-<date>.md``).
Without ``--write`` all blocks are printed. No figure in such a block is typed by hand.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Pages with figures.
PAGES = (
    "README.md",
    "benchmarks/README.md",
    "docs/planner.md",
    "docs/query.md",
    "docs/rebuild.md",
    "docs/speed.md",
    "docs/verification.md",
    "docs/which-method.md",
)

_ALL, _PEERS, _QUALITY = (
    "benchmarks/results/20??-??-??.md",
    "benchmarks/results/20??-??-??-peers.md",
    "benchmarks/quality/results-20??-??-??.md",
)
_BLOCK = re.compile(r"(<!-- figures: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FACTS = ("CPU", "Cores", "Python")

Row = dict[str, str]


class Table(NamedTuple):
    """A table of results: the note above it, and the rows, cells by column."""

    note: str
    rows: list[Row]

    def row(self, *first: str) -> Row:
        """Return the last row whose first cells are these.

        Raises:
            KeyError: there is none.
        """
        for row in reversed(self.rows):
            if tuple(row.values())[: len(first)] == first:
                return row
        raise KeyError(first)


class Results(NamedTuple):
    """A file of results."""

    path: Path
    date: str
    facts: Row
    tables: dict[str, Table]


def cells(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read(path: Path) -> Results:
    """Read a file of results."""
    head, *sections = re.split(r"^### ", path.read_text(), flags=re.MULTILINE)
    written = re.search(r"Written on (.+?)(?:,| by )", head)
    pairs = [cells(line) for line in head.splitlines() if line.startswith("| ")]
    tables = {}
    for section in sections:
        title, *lines = section.splitlines()
        rows = [cells(line) for line in lines if re.match(r"\| (?!:--)", line)]
        if rows:
            note = "\n".join(line for line in lines if line and line[0] not in "|#")
            found = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
            tables[title] = Table(note, found)
    facts = {name: value for name, value in pairs if name}
    return Results(path, written[1] if written else "", facts, tables)


def newest(pattern: str) -> Results:
    """Return the newest results of a kind.

    Raises:
        FileNotFoundError: there are none.
    """
    paths = sorted(ROOT.glob(pattern))
    if not paths:
        msg = f"no results match {pattern}"
        raise FileNotFoundError(msg)
    return read(paths[-1])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown, what follows the first column to the right."""
    marks = [":--", *("--:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, marks, *rows))


def source(results: Results, page: Path, versions: Sequence[str] = ()) -> str:
    """Say where figures come from: machine, versions, date, and the whole tables."""
    link = os.path.relpath(results.path, page.parent)
    machine = "{1} cores of an {0}, Python {2}".format(*(results.facts[one] for one in _FACTS))
    libraries = "".join(f", {one} {results.facts[one]}" for one in versions if one in results.facts)
    return f"{machine}{libraries}, {results.date} ([all]({link}))."


#: What files of real text are, and how they are cut, by name.
FILES = {
    "reuters21578": "news, English",
    "licenses": "licence texts, dense",
    "imdb_20k": "reviews",
    "tweets_t6": "tweets",
    "petitions_ko": "petitions, Korean",
    "livedoor_ja": "news, Japanese",
    "poetry_zh": "poetry, Chinese",
}
#: Files whose truth people have said.
LABELLED = {
    "biblio_copper": "bibliographic records",
    "mccormick_1000": "planted copies",
    "bln600_ocr": "OCR and transcripts",
}


def _named(cell: str) -> str:
    """Return what a file of real text is, where a cell begins with its name."""
    name, comma, rest = cell.partition(",")
    return (FILES | LABELLED).get(name, name) + comma + rest


@dataclass(frozen=True)
class Part:
    """Some columns of a table of results.

    Attributes:
        pattern: of the files of results.
        title: of the table.
        columns: which; none for all.
        versions: of what is said beside the date.
        with_note: whether the note above the table is taken over.
    """

    pattern: str
    title: str
    columns: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    with_note: bool = False

    def __call__(self, page: Path) -> str:
        """Return the block for a page."""
        results = newest(self.pattern)
        table = results.tables[self.title]
        head = self.columns or tuple(table.rows[0])
        rows = [[_named(row[column]) for column in head] for row in table.rows]
        note = f"{table.note}\n\n" if self.with_note else ""
        return f"{note}{markdown(head, rows)}\n\n{source(results, page, self.versions)}"


class Line(NamedTuple):
    """A row of the README's table of our own figures.

    Attributes:
        name: what was measured, and what is in it.
        table: the table of the results that has it.
        row: first cells of the row there.
        column: the column there.
        unit: of the figure.
        remark: says something more about it, given that table.
    """

    name: str
    table: str
    row: tuple[str, ...]
    column: str
    unit: str
    remark: Callable[[Table], str] = lambda _: ""


def _found(table: Table) -> str:
    row = table.row("minhash")
    return f"finds {row['found']} of the copies, wrong {row['wrong']}"


def _entry(*row: str) -> Callable[[Table], str]:
    def remark(table: Table) -> str:
        last = table.row(*row)
        return f"{last['bytes an entry']} for each table, at {last['originals']} originals"

    return remark


_WORKER, _GROWTH = "One worker process", "Memory, rate and candidates by size"
_MINHASH, _SIMHASH = "Redis, MinHash in 16 tables", "Redis, SimHash in 10 tables"
_CPU, _RATE = "documents/s of CPU", "documents/s"

LINES = (
    Line("file to file, one CPU: start, reading, fingerprint, index, writing", "`stream-dedup run`",
         ("minhash",), _CPU, _RATE, _found),
    Line("copies of the same documents that SimHash finds", "`stream-dedup run`", ("simhash",),
         "found", "", lambda table: f"of the near ones {table.row('simhash')['near found']}"),
    Line("file to file with `--jobs 2` on two cores, by the clock", "Jobs", ("2",), _RATE, _RATE,
         lambda table: f"{table.row('2')['times one job']} times one job"),
    Line("Kafka to Kafka through Redis, per second of worker CPU", _WORKER,
         ("kafka-python", "of the worker's CPU time"), "measured", _RATE),
    Line("the same with `transport = confluent`", _WORKER,
         ("confluent", "of the worker's CPU time"), "measured", _RATE),
    Line("the same by the clock, broker, Redis and worker on two cores", _WORKER,
         ("confluent", "by the clock"), "measured", _RATE),
    Line("produced to annotated at half load, p99", "From produced to annotated", ("1,000",),
         "p99 ms", "ms", lambda table: f"median {table.row('1,000')['p50 ms']} ms"),
    Line("memory of an original in Redis, MinHash", _GROWTH, (_MINHASH,), "bytes an original",
         "bytes", _entry(_MINHASH)),
    Line("memory of an original in Redis, SimHash", _GROWTH, (_SIMHASH,), "bytes an original",
         "bytes", _entry(_SIMHASH)),
)  # fmt: skip


def own(page: Path) -> str:
    """Return our own figures; what is missing in the results is left out."""
    results = newest(_ALL)
    rows = []
    for line in LINES:
        table = results.tables.get(line.table)
        if table is not None:
            figure = f"{table.row(*line.row)[line.column]} {line.unit}".rstrip()
            rows.append([line.name, figure, line.remark(table)])
    versions = ("kafka-python", "Redis", "Kafka")
    return f"{markdown(('what', 'figure', 'beside'), rows)}\n\n{source(results, page, versions)}"


_PACKAGES = ("datasketch", "rensa", "simhash")
#: Columns of quality, by the method of the results.
METHODS = {
    "ours: minhash": "MinHash",
    "ours: minhash, exact": "verified exactly",
    "ours: fused": "fused",
    "ours: simhash": "SimHash",
    "datasketch": "datasketch",
    "rensa": "rensa",
    "simhash": "simhash package",
}


@dataclass(frozen=True)
class Quality:
    """What some methods found in some files.

    Attributes:
        files: name of each, by that of its table.
        methods: column of each, by its name in the results.
        measures: columns of the results; several are put beside each other.
    """

    files: dict[str, str]
    methods: dict[str, str]
    measures: tuple[str, ...]

    def __call__(self, page: Path) -> str:
        """Return the block for a page."""
        results = newest(_QUALITY)
        rows = []
        for title, name in self.files.items():
            table = results.tables.get(title)
            if table is not None:
                count, shingle = re.findall(r"^([\d,]+) documents, shingles (\S+);", table.note)[0]
                cut = "" if shingle == "word:3" else f", {shingle}"
                row = [f"{name} ({count}){cut}"]
                for method in self.methods:
                    found = table.row(method)
                    row.append(" / ".join(_short(found[one]) for one in self.measures))
                rows.append(row)
        head = ("documents", *self.methods.values())
        return f"{markdown(head, rows)}\n\n{source(results, page, _PACKAGES)}"


def _short(shown: str) -> str:
    """Return a share with three digits, and no zero before the point."""
    return shown if shown == "–" else f"{float(shown):.3f}".removeprefix("0")


def slower(page: Path) -> str:
    """Say of which files of real text a peer is faster on one CPU."""
    results = newest(_PEERS)
    head = "times "
    behind: list[str] = []
    ahead: list[str] = []
    for row in results.tables["Real text"].rows:
        times = {one.removeprefix(head): row[one] for one in row if one.startswith(head)}
        known = {peer: float(value) for peer, value in times.items() if value != "–"}
        fastest = min(known, key=lambda peer: known[peer])
        said = f"{_named(row['file'])} ({known[fastest]:.2f}, {fastest})"
        (behind if known[fastest] < 1 else ahead).append(said)
    link = os.path.relpath(results.path, page.parent)
    return (
        f"Time of the fastest peer beside ours ([{results.date}]({link})). Slower than it: "
        f"{'; '.join(behind) or 'none'}. Ahead of all: {'; '.join(ahead) or 'none'}."
    )


_LIBRARIES = ("gaoya", "rensa", "datasketch")
_TIMES = tuple(f"times {peer}" for peer in _LIBRARIES)
_DUPS = tuple(f"dups {name}" for name in ("stream-dedup", *_LIBRARIES))

#: All blocks of figures, by name.
BLOCKS: dict[str, Callable[[Path], str]] = {
    "own": own,
    "real text": Part(
        _PEERS, "Real text", ("file", "documents", _RATE, *_TIMES, *_DUPS), _LIBRARIES
    ),
    "real text, slower": slower,
    "real text, two jobs": Part(_PEERS, "Real text, two jobs", (), ("gaoya", "rensa")),
    "in memory": Part(
        _PEERS,
        "In memory beside peers",
        ("library", "shingles µs", "fingerprint µs", "index µs", "µs in all", "times ours",
         "times ours, one a call", "found"),
        (*_LIBRARIES, "simhash"),
    ),
    "in memory, by kind": Part(_PEERS, "In memory, by kind of document", (), ("gaoya", "rensa")),
    "fingerprint": Part(_PEERS, "From text to MinHash fingerprint", (), _LIBRARIES),
    "sketch": Part(_PEERS, "From shingles to MinHash signature", (), ("rensa", "datasketch")),
    "redis": Part(
        _PEERS,
        "Beside datasketch on Redis",
        ("library", _RATE, "client µs", "server µs", "times ours", "times ours, CPU time", "found"),
        ("datasketch", "Redis"),
    ),
    "functions": Part(
        _PEERS,
        "Functions beside plain commands",
        ("documents", "way", "client µs", "server µs", "both µs", "times Functions"),
        ("Redis",),
    ),
    "quality": Quality(
        FILES,
        {one: METHODS[one] for one in ("ours: minhash", *_PACKAGES)} | {"ours: minhash": "ours"},
        ("precision", "recall of documents"),
    ),
    "quality, all": Quality(FILES, METHODS, ("precision", "recall of documents")),
    "quality, labelled": Quality(LABELLED, METHODS, ("pairs F1",)),
    "kinds of fingerprint": Part(_ALL, "Every kind"),
    "rebuild": Part(_ALL, "Rates", versions=("Redis", "Kafka")),
    "query": Part(_ALL, "Is this text known?", versions=("Redis",)),
    "server": Part(
        _ALL,
        _GROWTH,
        ("index", "originals", "server µs, 0% copies", "server µs, 50% copies"),
        ("Redis",),
    ),
    "verification": Part(_ALL, "Evidence and measures"),
    "memory": Part(_ALL, "Memory"),
    "stages of a document": Part(_ALL, "Stages of a document", with_note=True),
}  # fmt: skip


def filled(text: str, page: Path) -> str:
    """Return the text of a page with its figures."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]](page)}\n\n{block[3]}", text)


def without_figures(text: str) -> str:
    """Return the text of a page without its figures."""
    return _BLOCK.sub("", text)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the figures into the pages")
    options = parser.parse_args()
    if not options.write:
        for name, block in BLOCKS.items():
            print(f"## {name}\n\n{block(ROOT / 'README.md')}\n")
        return
    for name in PAGES:
        page = ROOT / name
        page.write_text(filled(page.read_text(), page))


if __name__ == "__main__":
    main()
