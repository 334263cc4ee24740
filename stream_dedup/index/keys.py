"""How table keys and claim ids become Redis keys, scores and members.

A table key of P bits is split: its first d bits go into the name of a sorted set, the rest becomes
the score, an integer below 2^53 and so exact in a double. d is chosen so that a set holds about 16
members at the expected number of originals: few enough to stay a compact listpack, enough to share
the cost of the key. Which partition a set belongs to follows from its table and its d bits.

    table 3, key 0x1a2b3c4d5e6f7 of 53 bits, d = 16    ->  sd:{P}:t03:0d15, score 0x13c4d5e6f7
    claim id 0x0123456789abcdef                        ->  member of 8 bytes, big-endian
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.text.shingles import finalize

#: Members that a sorted set is laid out for.
_MEMBERS = 16
#: Records in one hash.
_RECORDS = 64
_KEY = np.uint64(0x5851F42D4C957F2D)

_DIGITS = np.array([b"%04d" % number for number in range(10_000)])
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "S2")


class Layout(NamedTuple):
    """How the keys of an index are laid out; it never changes once the index is in use.

    Attributes:
        namespace: first part of every key.
        partitions: number of hash tags.
        prefix_bits: bits of each table's key.
        set_bits: how many of these go into the name of the sorted set, d.
        buckets: record hashes in each partition.
    """

    namespace: str
    partitions: int
    prefix_bits: tuple[int, ...]
    set_bits: int
    buckets: int

    @classmethod
    def design(
        cls, namespace: str, partitions: int, prefix_bits: Sequence[int], originals: int
    ) -> Layout:
        """Lay out an index for so many originals."""
        set_bits = max(1, round(np.log2(max(1, originals / _MEMBERS))))
        buckets = max(1, originals // (partitions * _RECORDS))
        return cls(namespace, partitions, tuple(prefix_bits), min(set_bits, 32), buckets)

    def describe(self) -> str:
        """Return the layout as it is kept in the index, to be compared."""
        bits = ",".join(map(str, self.prefix_bits))
        return (
            f"1 partitions={self.partitions} set_bits={self.set_bits} buckets={self.buckets} {bits}"
        )

    @property
    def suffix_width(self) -> int:
        """Bytes of a key after the partition tag."""
        return len("t00:") + self._digits

    @property
    def _digits(self) -> int:
        return -(-self.set_bits // 8) * 2

    def partition_key(self, partition: int) -> str:
        """Return the key that routes a call to a partition, the start of all its keys."""
        return f"{self.namespace}:{{{partition}}}:"

    @property
    def index_key(self) -> str:
        """Return the key of the index's own description."""
        return f"{self.namespace}:{{index}}"

    def place(self, keys: npt.NDArray[np.uint64]) -> Places:
        """Return where table keys, (documents, tables), are kept."""
        tables = np.arange(len(self.prefix_bits), dtype=np.uint64)
        bits = np.array(self.prefix_bits, np.uint64)
        score_bits = bits - np.minimum(bits, np.uint64(self.set_bits))
        names = keys >> score_bits
        scores = keys & ((np.uint64(1) << score_bits) - np.uint64(1))
        mixed = finalize((tables << np.uint64(32)) | names, _KEY)
        return Places(
            self._suffixes(names),
            _decimal(scores),
            (mixed % np.uint64(self.partitions)).astype(np.int64),
        )

    def record_places(self, claims: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the partition and the bucket of each claim's record."""
        mixed = finalize(claims, _KEY)
        partitions = mixed % np.uint64(self.partitions)
        buckets = (mixed >> np.uint64(24)) % np.uint64(self.buckets)
        return partitions.astype(np.int64), buckets.astype(np.int64)

    def _suffixes(self, names: npt.NDArray[np.uint64]) -> npt.NDArray[np.bytes_]:
        """Spell ``tTT:HHHH`` for each (document, table)."""
        width = self.suffix_width
        spelled = np.empty((*names.shape, width), np.uint8)
        spelled[:, :, 0] = ord("t")
        spelled[:, :, 3] = ord(":")
        tables = np.arange(names.shape[1], dtype=np.uint8)
        spelled[:, :, 1:3] = _HEX[tables].view(np.uint8).reshape(-1, 2)
        octets = names.astype(">u8").view(np.uint8).reshape(*names.shape, 8)
        tail = np.ascontiguousarray(octets[:, :, 8 - self._digits // 2 :])
        spelled[:, :, 4:] = _HEX[tail].view(np.uint8).reshape(*names.shape, self._digits)
        return spelled.view(f"S{width}").reshape(names.shape)


def _decimal(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.bytes_]:
    """Spell numbers below 10^16, such as those below 2^53, in 16 digits."""
    spelled = np.empty((*numbers.shape, 4), "S4")
    for place in (3, 2, 1, 0):
        numbers, last = np.divmod(numbers, np.uint64(10_000))
        spelled[..., place] = _DIGITS[last.astype(np.intp)]
    return spelled.view("S16").reshape(numbers.shape)


class Places(NamedTuple):
    """Where table keys are kept, each (documents, tables).

    Attributes:
        suffixes: key names after the partition tag.
        scores: whole numbers in 16 decimal digits, so that the server need not print them: it takes
            a score as text only, and to print one costs it as much as a small sorted set.
        partitions: int64.
    """

    suffixes: npt.NDArray[np.bytes_]
    scores: npt.NDArray[np.bytes_]
    partitions: npt.NDArray[np.int64]


class ClaimIds:
    """Mints claim ids: 64 bits, growing with time, never the same twice.

    41 bits of milliseconds since 2020, 13 bits of worker number, 10 bits of sequence. Worker
    numbers come from a counter in the index, so two live workers share one only after 8,192 starts.
    """

    _EPOCH_MS = 1_577_836_800_000
    _SEQUENCE_BITS = 10
    _WORKER_BITS = 13

    def __init__(self, worker: int) -> None:
        self._worker = (worker % (1 << self._WORKER_BITS)) << self._SEQUENCE_BITS
        self._tick = 0

    def mint(self, now: float, count: int = 1) -> npt.NDArray[np.uint64]:
        """Return ``count`` ids, greater than all before; ``now`` in seconds since the epoch."""
        # A tick is a millisecond and a place in its sequence. When more are needed than a
        # millisecond holds, or the clock steps back, ticks run ahead of the clock.
        now_tick = (int(now * 1000) - self._EPOCH_MS) << self._SEQUENCE_BITS
        first = max(self._tick + 1, now_tick)
        self._tick = first + count - 1
        return self.spell(np.arange(first, first + count, dtype=np.uint64))

    def past(
        self, moments: npt.NDArray[np.int64], after: int
    ) -> tuple[npt.NDArray[np.uint64], int]:
        """Return ids for what was registered in the past, always the same for the same arguments.

        Args:
            moments: (ids,) milliseconds since the epoch; the ids grow even where they do not.
            after: the tick of the id before the first, 0 where there is none.

        Returns:
            The ids, (ids,) uint64, and the tick of the last.
        """
        rows = np.arange(len(moments), dtype=np.int64)
        ticks = np.maximum(moments - self._EPOCH_MS, 0) << self._SEQUENCE_BITS
        ticks = np.maximum(np.maximum.accumulate(ticks - rows), after + 1) + rows
        return self.spell(ticks.astype(np.uint64)), int(ticks[-1])

    def spell(self, ticks: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return the ids of ticks of this worker."""
        low = np.uint64((1 << self._SEQUENCE_BITS) - 1)
        high = (ticks & ~low) << np.uint64(self._WORKER_BITS)
        return high | np.uint64(self._worker) | (ticks & low)
