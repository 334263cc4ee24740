"""How pages show what comes from outside: hostile text harmless and complete, times, ids."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from stream_dedup.review.diff import Difference, Kind, Part
from stream_dedup.review.queries import read_id

#: Characters that are not seen, or that turn the direction of what follows: control characters but
#: for tab and line feed, marks of direction, zero width space, word joiner, soft hyphen, byte order
#: mark, interlinear marks, tags, lone surrogates. Joiners (U+200C, U+200D) belong to words.
_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
#: Short names that people know; others are shown by their number.
_NAMES = {
    "\0": "NUL",
    "\x1b": "ESC",
    "\x7f": "DEL",
    "\r": "CR",
    "\x08": "BS",
    "\x0c": "FF",
    "\u00ad": "SHY",
    "\u061c": "ALM",
    "\u200b": "ZWSP",
    "\u200e": "LRM",
    "\u200f": "RLM",
    "\u2028": "LS",
    "\u2029": "PS",
    "\u202a": "LRE",
    "\u202b": "RLE",
    "\u202c": "PDF",
    "\u202d": "LRO",
    "\u202e": "RLO",
    "\u2060": "WJ",
    "\u2066": "LRI",
    "\u2067": "RLI",
    "\u2068": "FSI",
    "\u2069": "PDI",
    "\ufeff": "BOM",
}
#: Marks that say where neutral characters go; they stay, since right-to-left text needs them and
#: they cannot turn anything else.
_HARMLESS = "\u061c\u200e\u200f"

#: Characters of a text that a page shows, and of an unchanged stretch; more on request.
SHOWN = 20_000
#: More than this is never put on a page.
MOST_SHOWN = 1_000_000
#: Characters of an unchanged stretch that are shown on either side of a change.
_CONTEXT = 160
#: Unchanged stretches of at least so many characters are folded.
_FOLDED = 600


class Shown(NamedTuple):
    """A part of a comparison, ready to be shown.

    Attributes:
        kind: ``equal``, ``removed``, ``added`` or ``folded``.
        text: its text; empty where it is folded.
        characters: how many it stands for.
    """

    kind: str
    text: str
    characters: int


def visible(text: str) -> Markup:
    """Escape a text, and show marks in the place of characters that are not seen."""
    return Markup(_UNSEEN.sub(_mark, str(escape(text))))  # noqa: S704 - escaped just before


def _mark(found: re.Match[str]) -> str:
    char = found[0]
    name = unicodedata.name(char, "control character").lower()
    short = _NAMES.get(char, f"{ord(char):04X}")
    kept = char if char in _HARMLESS else ""
    return f'<bdi class="unseen" title="U+{ord(char):04X} {name}">{short}</bdi>{kept}'


def snippet(text: str, most: int = 200) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text[: 2 * most].split())
    return line if len(line) <= most and len(text) <= 2 * most else line[:most] + "…"


def shown_id(spelled: str) -> str:
    """Return an id as people write it; the window has it as JSON."""
    return str(read_id(spelled))


def percent(part: float, whole: float) -> str:
    """Return a share; more places where it is small."""
    if not whole:
        return "–"
    share = 100 * part / whole
    if share in {0, 100}:
        return f"{share:.0f} %"
    return f"{share:.1f} %" if share >= 1 else f"{share:.2g} %"


def when(milliseconds: int) -> Markup:
    """Return a time element, in UTC to the second."""
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return escape("–")
    return Markup('<time datetime="{}">{}</time>').format(
        time.isoformat(timespec="milliseconds"), time.strftime("%Y-%m-%d %H:%M:%S")
    )


def folded(difference: Difference, most: int, *, fold: bool = True) -> tuple[list[Shown], bool]:
    """Make a comparison ready to be shown.

    Args:
        difference: what differs.
        most: characters shown, at most.
        fold: whether long unchanged stretches are left out but for their ends.

    Returns:
        The parts, and whether all of the comparison is in them.
    """
    shown: list[Shown] = []
    left = most
    last = len(difference.parts) - 1
    for at, part in enumerate(difference.parts):
        for one in _fold(part, at == 0, at == last) if fold else [_whole(part)]:
            if left <= 0:
                return shown, False
            text = one.text[:left]
            left -= len(text)
            shown.append(one._replace(text=text))
    return shown, left > 0


def _whole(part: Part) -> Shown:
    return Shown(part.kind.value, part.text, len(part.text))


def _fold(part: Part, is_first: bool, is_last: bool) -> list[Shown]:  # noqa: FBT001
    text = part.text
    head = 0 if is_first and not is_last else _CONTEXT
    tail = 0 if is_last and not is_first else _CONTEXT
    if part.kind is not Kind.EQUAL or len(text) < _FOLDED:
        return [_whole(part)]
    begin, end = _boundary(text, head), _boundary(text, len(text) - tail)
    cuts = [text[one:other] for one, other in pairwise((0, begin, end, len(text)))]
    kinds = ("equal", "folded", "equal")
    return [
        Shown(kind, "" if kind == "folded" else piece, len(piece))
        for kind, piece in zip(kinds, cuts, strict=True)
        if piece
    ]


def _boundary(text: str, at: int) -> int:
    """Return a place near to another that is not within a word, where there is one."""
    if at in {0, len(text)}:
        return at
    space = text.find(" ", at, at + 30)
    return space + 1 if space >= 0 else at


#: What templates can do with what they show.
FILTERS: dict[str, Callable[..., Any]] = {
    "visible": visible,
    "snippet": snippet,
    "shown_id": shown_id,
    "percent": percent,
    "when": when,
}
