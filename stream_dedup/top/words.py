"""Numbers as people read them, and curves; ``-`` where there is no number."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from stream_dedup.top.scrape import Quantile

NONE = "-"

_SI = ("", " k", " M", " G", " T", " P")
_BYTES = (" B", " KiB", " MiB", " GiB", " TiB", " PiB")
_TIMES = (("y", 31_536_000), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_LEVELS = " ▁▂▃▄▅▆▇█"


def count(number: float | None) -> str:
    """Write a number of things: ``1,234,567``, or ``12.3 M`` from ten million on."""
    if number is None:
        return NONE
    return f"{number:,.0f}" if abs(number) < 10_000_000 else _scaled(number, 1000, _SI)


def mean(number: float | None) -> str:
    """Write a mean: ``12.3``, ``0.04``, or ``< 0.001``."""
    if number is None:
        return NONE
    if number >= 1000:
        return count(number)
    if 0 < number < 0.001:
        return "< 0.001"
    return f"{number:.1f}" if number >= 1 or not number else f"{number:.2g}"


def rate(number: float | None) -> str:
    """Write how many a second: ``1,234/s``, or ``0.4/s``."""
    if number is None:
        return NONE
    return f"{number:.1f}/s" if 0 < abs(number) < 9.95 else f"{count(number)}/s"


def share(part: float | None) -> str:
    """Write a share: ``54.7 %``, or ``< 0.1 %``."""
    if part is None:
        return NONE
    return "< 0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def size(number: float | None) -> str:
    """Write bytes: ``1.2 GiB``."""
    return NONE if number is None else _scaled(number, 1024, _BYTES)


def seconds(number: float | None) -> str:
    """Write a short time: ``1.2 ms``, ``35 ms``, ``2.5 s``; from a minute on as ``span``."""
    if number is None:
        return NONE
    if number >= 60:
        return span(number)
    if number >= 1:
        return f"{number:.1f} s"
    return f"{1000 * number:.{1 if number < 0.01 else 0}f} ms"


def quantile(found: Quantile | None) -> str:
    """Write a quantile: ``35 ms``, or ``> 10.0 s``."""
    if found is None:
        return NONE
    return f"> {seconds(found.value)}" if found.is_beyond else seconds(found.value)


def span(number: float | None) -> str:
    """Write a long time by its two largest units: ``2 m 5 s``, ``3 d 4 h``."""
    if number is None:
        return NONE
    left = round(number)
    parts: list[tuple[int, str]] = []
    for unit, length in _TIMES:
        amount, left = divmod(left, length)
        if amount or parts:
            parts.append((amount, unit))
    shown = [part for part in parts[:2] if part[0]]
    return " ".join(f"{amount:,} {unit}" for amount, unit in shown) or "0 s"


class Curve:
    """The latest of some values as columns of blocks, as many as there is room for.

    Args:
        values: oldest first.
        height: in lines.
        style: of the blocks.
    """

    def __init__(self, values: Sequence[float], height: int, style: str) -> None:
        self._values = values
        self._height = height
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the lines from the top down."""
        width = options.max_width
        values = list(self._values)[-width:]
        most = max(values, default=0.0) or 1.0
        steps = len(_LEVELS) - 1
        levels = [max(1, round(value / most * self._height * steps)) for value in values]
        style = console.get_style(self._style)
        for line in reversed(range(self._height)):
            blocks = [_LEVELS[min(max(level - line * steps, 0), steps)] for level in levels]
            yield Segment(" " * (width - len(values)), Style.null())
            yield Segment("".join(blocks), style)
            yield Segment.line()


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    power = 0
    while abs(number) >= base and power < len(units) - 1:
        number /= base
        power += 1
    return f"{number:.{1 if power and abs(number) < 100 else 0}f}{units[power]}"
