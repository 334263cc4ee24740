"""The live view, drawn: panels of figures for a terminal of any size from 40 columns on.

24 lines of 80 columns have room for everything; what there is beyond goes to the curve of
documents and to the list of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dedup.top import words
from stream_dedup.top.figures import Figures, Lag, Shadow, State
from stream_dedup.top.monitor import View

#: Columns from which panels stand two and three side by side.
_TWO, _THREE = 76, 132
#: Lines of each panel. Two side by side fill 24 lines of a terminal.
_LINES = {"documents": 5, "lag": 5, "latency": 8, "index": 8, "matching": 4, "trouble": 4}
#: The panels of each column, by the number of columns.
_COLUMNS = {
    1: [["documents", "lag", "latency", "index", "matching", "trouble"]],
    2: [["documents", "latency", "matching"], ["lag", "index", "trouble"]],
    3: [["documents", "latency"], ["lag"], ["index", "matching", "trouble"]],
}
#: What two panels side by side, documents and lag, take of further lines at most.
_MORE = 12

_STATUSES = {
    "original": ("original", "green"),
    "exact_duplicate": ("exact duplicate", "blue"),
    "near_duplicate": ("near duplicate", "cyan"),
    "dead_letter": ("dead letter", "red"),
}


def draw(view: View, *, width: int, height: int, now: float, hint: str = "") -> RenderableType:
    """Draw everything.

    Args:
        view: what to show.
        width: columns of the terminal.
        height: its lines.
        now: seconds since the epoch.
        hint: what is said to the reader at the end of the head line.
    """
    head = [_header(view, now, hint), *_problems(view)]
    number = 3 if width >= _THREE else 2 if width >= _TWO else 1
    lines = _heights(number, height - len(head))
    table = Table.grid(expand=True)
    columns = []
    for names in _COLUMNS[number]:
        table.add_column(ratio=1)
        columns.append(Group(*(_panel(name, view, lines[name], now) for name in names)))
    table.add_row(*columns)
    return Group(*head, table)


def _heights(number: int, height: int) -> dict[str, int]:
    """Say how many lines each panel has inside its frame."""
    lines = dict(_LINES)
    if number == 3:
        # As high as the third column.
        whole = lines["index"] + lines["matching"] + lines["trouble"] + 6
        lines["documents"] = whole - lines["latency"] - 4
        lines["lag"] = whole - 2
    if number == 2:
        spare = height - sum(lines[name] + 2 for name in _COLUMNS[2][0])
        for name in ("documents", "lag"):
            lines[name] += max(0, min(spare, _MORE))
        for name in ("matching", "trouble"):  # a line of problems takes the place of their last
            lines[name] += max(-1, min(spare, 0))
    return lines


def _panel(name: str, view: View, lines: int, now: float) -> Panel:
    figures = view.figures
    content: RenderableType
    if name == "documents":
        content = _documents(figures, view.curve, lines)
    elif name == "lag":
        content = _lag(figures.lag, lines)
    elif name == "latency":
        content = _latency(figures)
    elif name == "index":
        content = _index(figures)
    elif name == "matching":
        content = _matching(figures)
    else:
        content = _trouble(figures)
    return Panel(
        content,
        title=Text(name, style="bold"),
        title_align="left",
        subtitle=_subtitle(name, figures, now),
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="dim",
        height=lines + 2,
    )


def _subtitle(name: str, figures: Figures, now: float) -> Text | None:
    if name == "trouble" and figures.seconds:
        return Text(f"in {words.seconds(figures.seconds)} / in all", style="dim")
    at = figures.state.published_at
    if name == "documents" and at is not None:
        return Text(f"published {words.span(max(0.0, now - at))} ago", style="dim")
    if name == "lag" and figures.lag.partitions:
        behind = sum(one.records > 0 for one in figures.lag.partitions)
        total = _many(len(figures.lag.partitions), "partition")
        return Text(f"{behind:,} of {total} behind", style="dim")
    return None


def _header(view: View, now: float, hint: str) -> RenderableType:
    state = view.figures.state
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    left = Text("stream-dedup ", style="bold")
    left.append_text(_readiness(view))
    parts = [
        "" if state.workers is None else _many(state.workers, "worker"),
        "" if state.workers is None else _many(int(state.restarts or 0), "restart"),
        ",".join(state.configurations),
        ",".join(state.versions),
        _resources(state),
    ]
    left.append("".join(f"  {part}" for part in parts if part), style="dim")
    at = f"{datetime.fromtimestamp(now).astimezone():%H:%M:%S}"
    table.add_row(left, Text(f"{at}  {hint}" if hint else at, style="dim"))
    return table


def _readiness(view: View) -> Text:
    ready = view.figures.state.ready
    if not view.answering:
        return Text("● no answer", style="bold red")
    if ready is None:
        return Text("● answers", style="bold green")
    return (
        Text("● ready", style="bold green") if ready else Text("● not ready", style="bold yellow")
    )


def _resources(state: State) -> str:
    if state.cores is None or state.resident is None:
        return ""
    return f"{state.cores:.1f} cores  {words.size(state.resident)}"


def _problems(view: View) -> list[Text]:
    """Name what does not answer, in one line."""
    if not view.problems:
        return []
    (name, problem), *others = view.problems.items()
    more = f" And {_many(len(others), 'other')}." if others else ""
    return [
        Text(f"{name}: {problem}{more}", style="red", no_wrap=True, overflow="ellipsis", end="\n")
    ]


def _documents(figures: Figures, curve: Sequence[float], lines: int) -> RenderableType:
    documents = figures.documents
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_row(
        Text(words.rate(documents.per_second), style="bold"),
        words.Curve(curve, lines - len(_STATUSES), "green"),
    )
    bars = _grid(None, "right", 1)
    for status, (name, style) in _STATUSES.items():
        part = documents.shares.get(status)
        bars.add_row(name, words.share(part), Bar(1.0, 0, part or 0.0, color=style))
    return Group(head, bars)


def _lag(lag: Lag, lines: int) -> RenderableType:
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(ratio=1, no_wrap=True)
    head.add_column(justify="right", no_wrap=True)
    head.add_row(Text(words.count(lag.records), style="bold"), _outlook(lag))
    bars = _grid(None, "right", 1)
    most = max((one.records for one in lag.partitions), default=0.0) or 1.0
    for one in lag.partitions[: lines - 1]:
        bars.add_row(
            Text(f"{one.topic}/{one.partition}", overflow="ellipsis", no_wrap=True),
            words.count(one.records),
            Bar(1.0, 0, one.records / most, color="yellow"),
        )
    return Group(head, bars)


def _outlook(lag: Lag) -> Text:
    if lag.per_second is None or not lag.records:
        return Text("")
    if lag.drained_in is not None:
        return Text(f"drained in {words.span(lag.drained_in)}", style="green")
    if lag.per_second > 0:
        return Text(f"grows by {words.rate(lag.per_second)}", style="yellow")
    return Text("does not shrink", style="yellow")


def _latency(figures: Figures) -> RenderableType:
    table = _grid(1, "right", "right")
    table.add_row("", Text("p50", style="dim"), Text("p99", style="dim"))
    for name, latency in (("decision", figures.decision), ("end to end", figures.end_to_end)):
        table.add_row(name, words.quantile(latency.p50), words.quantile(latency.p99))
    bars = _grid(None, "right", 1)
    for stage, part in figures.stages.items():
        bars.add_row(stage, words.share(part), Bar(1.0, 0, part, color="magenta"))
    return Group(table, bars)


def _index(figures: Figures) -> RenderableType:
    index = figures.index
    filled = _ratio(index.originals, index.planned)
    used = _ratio(index.memory_used, index.memory_limit)
    tables = "" if index.tables is None else f"in {_many(index.tables, 'table')}"
    mean = _prefixed("mean", words.mean(index.mean_key))
    plan = _prefixed("plan", words.size(index.memory_planned))
    node = _prefixed("node", words.share(index.fullest_node))
    sign = "+" if index.per_second is not None and index.per_second >= 0 else ""
    rows: list[tuple[str, str, RenderableType]] = [
        ("originals", words.count(index.originals), f"{sign}{words.rate(index.per_second)}"),
        ("of the plan", words.share(filled), Bar(1.0, 0, filled or 0.0, color=_heat(filled))),
        ("planned for", words.count(index.planned), _prefixed("in", words.span(index.full_in))),
        ("entries", words.count(index.entries), tables),
        ("fullest key", words.count(index.fullest_key), mean),
        ("memory", words.size(index.memory_used), plan),
        ("of its limit", words.share(used), Bar(1.0, 0, used or 0.0, color=_heat(used))),
        ("limit", words.size(index.memory_limit), node),
    ]
    return _rows(rows)


def _matching(figures: Figures) -> RenderableType:
    matching = figures.matching
    planned = _prefixed("plan", words.mean(matching.planned_candidates))
    return _rows(
        [
            ("probe finds", words.mean(matching.candidates), planned),
            ("capped", words.share(matching.capped), "of probes"),
            ("near", words.share(matching.accepted), "of verified"),
            ("shadow", *_shadow(figures.shadow)),
        ]
    )


def _shadow(shadow: Shadow | None) -> tuple[str, str]:
    if shadow is None:
        return words.NONE, ""
    skipped = f", {words.count(shadow.skipped)} skipped" if shadow.skipped else ""
    return words.share(shadow.differing), f"differ{skipped}"


def _trouble(figures: Figures) -> RenderableType:
    table = _grid(1, "right", "right", 1, "right", "right")
    cells: list[list[Text]] = []
    for name, tally in figures.troubles.items():
        style = "bold yellow" if tally.lately else ""
        cells.append(
            [
                Text(name, style=style, no_wrap=True),
                Text(words.count(tally.lately), style=style),
                Text(words.count(tally.in_all), style="dim"),
            ]
        )
    half = (len(cells) + 1) // 2
    for place, left in enumerate(cells[:half]):
        right = cells[half + place] if half + place < len(cells) else []
        table.add_row(*left, *right)
    return table


def _rows(rows: Sequence[tuple[str, str, RenderableType]]) -> Table:
    table = _grid(None, "right", 1)
    for name, value, rest in rows:
        table.add_row(
            name, value, Text(rest, style="dim", no_wrap=True) if isinstance(rest, str) else rest
        )
    return table


def _grid(*columns: str | int | None) -> Table:
    """Make a grid of columns: justified ones, ones with a share of the width, and others."""
    table = Table.grid(expand=True, padding=(0, 1))
    for column in columns:
        if isinstance(column, int):
            table.add_column(ratio=column, no_wrap=True)
        elif column is None:
            table.add_column(no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(justify="right", no_wrap=True)
    return table


def _prefixed(word: str, number: str) -> str:
    """Say what a number is; nothing where there is none."""
    return "" if number == words.NONE else f"{word} {number}"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _heat(part: float | None) -> str:
    """Return the colour of something that should not become full."""
    if part is None or part < 0.7:
        return "green"
    return "yellow" if part < 0.9 else "red"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
