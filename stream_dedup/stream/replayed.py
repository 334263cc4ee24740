"""Which letters of a partition were replayed, as a committed offset and its metadata. Pure.

The offset says that every letter before it is done, whatever its reason; this is what a replay of
all leaves. A replay of one reason, from some time on, or of chosen letters, leaves ranges behind
the offset: ``{"not_json": [[10, 20]], "*": [[30, 31]]}``, where ``*`` is for every reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from stream_dedup.errors import ServiceError

#: Stands for every reason.
EVERY = "*"
#: Bytes of metadata that brokers take (``offset.metadata.max.bytes``, 4096), and some to spare.
_BYTES = 4000

_Ranges = dict[str, list[tuple[int, int]]]
_decode = msgspec.json.Decoder(_Ranges).decode


class Replayed:
    """The letters of one partition that are done.

    Args:
        below: every letter before this offset is done.
        ranges: for a reason, ranges of offsets (the end left out) whose letters are done.
    """

    def __init__(self, below: int = 0, ranges: Mapping[str, list[tuple[int, int]]] | None = None):
        self.below = below
        self._ranges: _Ranges = {reason: list(some) for reason, some in (ranges or {}).items()}
        self._tidy()

    @classmethod
    def read(cls, offset: int, metadata: str) -> Replayed:
        """Read what was committed; without metadata it is a plain offset.

        Raises:
            ServiceError: somebody else committed it.
        """
        try:
            return cls(max(0, offset), _decode(metadata) if metadata else {})
        except (msgspec.DecodeError, RecursionError) as error:
            msg = (
                f"The record of replays cannot be read ({error}). Did another program commit to "
                "this group? Reset its offsets with kafka-consumer-groups."
            )
            raise ServiceError(msg) from error

    def holds(self, offset: int, reason: str) -> bool:
        """Tell whether a letter is done."""
        if offset < self.below:
            return True
        some = [*self._ranges.get(EVERY, ()), *self._ranges.get(reason, ())]
        return any(start <= offset < end for start, end in some)

    def with_range(self, start: int, end: int, reasons: Collection[str] = ()) -> Replayed:
        """Return what it is when the letters of a range are done, too.

        Args:
            start: first offset.
            end: the offset behind the last.
            reasons: of letters with these reasons; of all when there is none.
        """
        ranges = {reason: list(some) for reason, some in self._ranges.items()}
        for reason in reasons or [EVERY]:
            ranges.setdefault(reason, []).append((start, end))
        return Replayed(self.below, ranges)

    def metadata(self) -> str:
        """Write down the ranges.

        Raises:
            ServiceError: they are too many.
        """
        if not self._ranges:
            return ""
        written = msgspec.json.encode(self._ranges)
        if len(written) > _BYTES:
            msg = (
                "Letters were replayed from so many places that Kafka cannot keep the record of "
                "it. Replay the others, too, with --all: that leaves one place."
            )
            raise ServiceError(msg)
        return written.decode()

    def __eq__(self, other: object) -> bool:
        """Tell whether the same letters are done."""
        if not isinstance(other, Replayed):
            return NotImplemented
        return (self.below, self._ranges) == (other.below, other._ranges)

    __hash__ = None  # type: ignore[assignment]

    def _tidy(self) -> None:
        """Join ranges, and move the offset up to the first letter that is not done."""
        every = _joined(self._ranges.pop(EVERY, []), self.below)
        if every and every[0][0] == self.below:
            self.below = every.pop(0)[1]
        if every:
            self._ranges[EVERY] = every
        for reason in sorted(self._ranges.keys() - {EVERY}):
            joined = _joined(self._ranges.pop(reason), self.below)
            if joined:
                self._ranges[reason] = joined


def _joined(ranges: Collection[tuple[int, int]], below: int) -> list[tuple[int, int]]:
    """Return ranges in order, joined where they touch, without what lies before an offset."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if end <= max(start, below):
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((max(start, below), end))
    return joined
