"""Dead letters for a terminal: what strangers wrote may neither command nor deceive it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from stream_dedup.stream.dead_letters import Letter, Outcome, Summary
from stream_dedup.stream.headers import DEAD_LETTER_HEADERS
from stream_dedup.top.words import size, span

#: Bytes of a value, and of a key or a header, that are shown.
VALUE_BYTES = 8192
FIELD_BYTES = 512
#: Headers that are shown.
_HEADERS = 50
#: Characters of a detail in a table.
_DETAIL_CHARACTERS = 60
_HEX_BYTES = 16
_NONE = "-"


def escaped(text: str, keep: str = "") -> str:
    r"""Write what is not printable as Python would in a string: ``\x1b``, ``\u202e``.

    Control characters, marks of direction, characters without width, and line ends other than those
    in ``keep`` are not printable.
    """
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode()
        for one in text.encode("utf-8", "backslashreplace").decode()
    )


def field(data: bytes | None) -> str:
    """Write a key or a header in one line; in hexadecimal if it is not UTF-8."""
    if data is None:
        return "none"
    if (text := _decoded(data, FIELD_BYTES)) is None:
        shown = "hex " + data[:FIELD_BYTES].hex(" ")
    else:
        shown = escaped(text)
    return shown + _rest(data, FIELD_BYTES)


def value(data: bytes | None) -> Iterator[str]:
    """Yield the lines of a value, indented; in hexadecimal if it is not UTF-8."""
    if data is None:
        return
    if (text := _decoded(data, VALUE_BYTES)) is None:
        for start in range(0, min(len(data), VALUE_BYTES), _HEX_BYTES):
            some = data[start : start + _HEX_BYTES]
            signs = "".join(chr(one) if 32 <= one < 127 else "." for one in some)
            yield f"    {start:06x}  {some.hex(' '):<{3 * _HEX_BYTES}} {signs}"
    elif text:
        yield from (f"    {line}" for line in escaped(text, keep="\n").split("\n"))
    if rest := _rest(data, VALUE_BYTES):
        yield f"   {rest}; --raw writes them all"


def letter_lines(letter: Letter) -> Iterator[str]:
    """Yield the lines that show a letter."""
    record = letter.record
    yield f"{letter.place}  from {escaped(letter.came_from) or 'nowhere'}"
    yield f"  reason    {_reason(letter)}: {escaped(letter.detail) or _NONE}"
    yield f"  time      {_moment(letter.moment)} ({_age(letter)} ago)"
    yield f"  replays   {letter.replays}"
    if letter.obstacle:
        yield f"  cannot be replayed: {escaped(letter.obstacle)}"
    others = [header for header in record.headers if header[0] not in DEAD_LETTER_HEADERS]
    for name, content in others[:_HEADERS]:
        yield f"  header    {escaped(name[:FIELD_BYTES])} = {field(content)}"
    if len(others) > _HEADERS:
        yield f"            and {len(others) - _HEADERS} more"
    yield f"  key       {field(record.key)}"
    yield f"  value     {_size(letter)}"
    yield from value(record.value)


def summary_lines(topic: str, found: Summary) -> Iterator[str]:
    """Yield the lines that tell of many letters."""
    if not found.letters:
        yield f"No dead letters on {topic}."
        return
    yield f"{found.letters:,} dead letters on {topic}, of messages of {_period(found)}"
    if found.replayed:
        yield f"{found.replayed:,} of them had been replayed before"
    for title, counts in (("reason", found.reasons), ("came from", found.topics)):
        yield f"\n{'letters':>12}  {title}"
        yield from (f"{n:>12,}  {escaped(name) or _NONE}" for name, n in counts.most_common())
    latest = found.latest
    if not latest:
        return
    titles = ["letter", "source", "reason", "replays", "size", "age", "detail"]
    yield ""
    yield from _table([titles, *(_row(letter) for letter in latest)])


def summary_json(topic: str, found: Summary) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "topic": topic,
        "letters": found.letters,
        "replayed_before": found.replayed,
        "oldest": None if found.oldest is None else _moment(found.oldest),
        "newest": None if found.newest is None else _moment(found.newest),
        "reasons": dict(found.reasons.most_common()),
        "source_topics": dict(found.topics.most_common()),
        "latest": [
            {
                "letter": str(letter.place),
                "source": letter.came_from,
                "reason": letter.reason,
                "detail": letter.detail,
                "truncated": letter.truncated,
                "replays": letter.replays,
                "bytes": letter.size,
                "time": _moment(letter.moment) if letter.moment >= 0 else None,
            }
            for letter in found.latest
        ],
    }


def outcome_lines(found: Outcome, *, dry: bool) -> Iterator[str]:
    """Yield the lines that tell what a replay did."""
    done = "would be replayed" if dry else "replayed"
    yield f"{found.reasons.total():,} dead letters {done}"
    for counts, word in ((found.reasons, ""), (found.topics, "to ")):
        yield from (f"{n:>12,}  {word}{escaped(name)}" for name, n in counts.most_common())
    if found.before:
        yield f"{found.before:,} passed over: replayed before"
    if found.left_out:
        yield f"{found.left_out:,} left out: they cannot be replayed"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _row(letter: Letter) -> list[str]:
    return [
        str(letter.place),
        escaped(letter.came_from) or _NONE,
        _reason(letter) + ("*" if letter.truncated else ""),
        str(letter.replays or _NONE),
        _size(letter),
        _age(letter),
        escaped(letter.detail[:_DETAIL_CHARACTERS]) or _NONE,
    ]


def _reason(letter: Letter) -> str:
    return escaped(letter.reason) or _NONE


def _size(letter: Letter) -> str:
    return "none" if letter.size is None else size(letter.size)


def _age(letter: Letter) -> str:
    return _NONE if letter.moment < 0 else span(max(0.0, time.time() - letter.moment / 1000))


def _period(found: Summary) -> str:
    if found.oldest is None or found.newest is None:
        return "unknown time"
    return f"{_moment(found.oldest)} to {_moment(found.newest)}"


def _moment(milliseconds: int) -> str:
    """Write a time; a message may claim one that no calendar has."""
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat().replace("+00:00", "Z")


def _decoded(data: bytes, limit: int) -> str | None:
    """Return the first bytes as text; None if the whole is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return data[:limit].decode(errors="ignore")


def _rest(data: bytes, limit: int) -> str:
    return f" ... of {len(data):,} bytes" if len(data) > limit else ""
