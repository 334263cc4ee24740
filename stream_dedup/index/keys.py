"""How table keys and claim ids become Redis keys, scores and members.

A table key of P bits is split: its first d bits go into the name of a sorted set, the rest becomes
the score, an integer below 2^53 and so exact in a double. d is chosen so that a set holds about 16
members at the expected number of originals: few enough to stay a compact listpack, enough to share
the cost of the key. Which partition a set belongs to follows from its table and its d bits.

    table 3, key 0x1a2b3c4d5e6f7 of 53 bits, d = 16    ->  sd:{P}:t03:0d15, score 0x13c4d5e6f7
    claim id 0x0123456789abcdef                        ->  member of 8 bytes, big-endian

Document ids have a table of their own, ``i00``; its key is a hash of the id, of 53 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.errors import ServiceError
from stream_dedup.index.base import id_hashes
from stream_dedup.text.shingles import finalize
from stream_dedup.types import DocumentId

#: Members that a sorted set is laid out for.
_MEMBERS = 16
#: Records in one hash.
_RECORDS = 64
_KEY = np.uint64(0x5851F42D4C957F2D)
#: Bits of the key of a document id: as many as leave a score exact, whatever the layout.
ID_BITS = 53
#: Sorted sets that are named at a time.
_SETS = 1 << 16
#: Number of the table of document ids, after all others.
IDS = 256

_DESCRIBED = re.compile(r"1 partitions=(\d+) set_bits=(\d+) buckets=(\d+) ([\d,]+)( ids)?")

# As numbers, because to take strings out of an array takes several times as long.
_DIGITS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), np.uint32)
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)


class Layout(NamedTuple):
    """How the keys of an index are laid out; it never changes once the index is in use.

    Attributes:
        namespace: first part of every key.
        partitions: number of hash tags.
        prefix_bits: bits of each table's key.
        set_bits: how many of these go into the name of the sorted set, d.
        buckets: record hashes in each partition.
        ids: whether document ids are kept.
        id_seed: seed of the hashes of these; a secret, and so no part of the description.
    """

    namespace: str
    partitions: int
    prefix_bits: tuple[int, ...]
    set_bits: int
    buckets: int
    ids: bool = True
    id_seed: int = 0

    @classmethod
    def design(
        cls,
        namespace: str,
        partitions: int,
        prefix_bits: Sequence[int],
        originals: int,
        *,
        ids: bool = True,
        id_seed: int = 0,
    ) -> Layout:
        """Lay out an index for so many originals."""
        set_bits = max(1, round(np.log2(max(1, originals / _MEMBERS))))
        buckets = max(1, originals // (partitions * _RECORDS))
        bits = tuple(prefix_bits)
        return cls(namespace, partitions, bits, min(set_bits, 32), buckets, ids, id_seed)

    def describe(self) -> str:
        """Return the layout as it is kept in the index, to be compared."""
        bits = ",".join(map(str, self.prefix_bits)) + (" ids" if self.ids else "")
        return (
            f"1 partitions={self.partitions} set_bits={self.set_bits} buckets={self.buckets} {bits}"
        )

    @classmethod
    def parse(cls, namespace: str, described: str, id_seed: int = 0) -> Layout | None:
        """Return the layout that ``describe`` tells; None when this is no such text."""
        match = _DESCRIBED.fullmatch(described)
        if match is None:
            return None
        partitions, set_bits, buckets = map(int, match.group(1, 2, 3))
        bits = tuple(map(int, match[4].split(",")))
        return cls(namespace, partitions, bits, set_bits, buckets, bool(match[5]), id_seed)

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
        return self._place(keys, np.arange(len(self.prefix_bits)), self.prefix_bits)

    def check_ids(self) -> None:
        """See to it that document ids are kept.

        Raises:
            ServiceError: they are not.
        """
        if not self.ids:
            msg = (
                "The index keeps no document ids, so none can be found by its id. Build a new one "
                "with index_ids."
            )
            raise ServiceError(msg)

    def id_keys(self, ids: Sequence[DocumentId]) -> npt.NDArray[np.uint64]:
        """Return the keys of document ids in their table: (ids,), of ``ID_BITS`` each."""
        return id_hashes(ids, self.id_seed) >> np.uint64(64 - ID_BITS)

    def place_ids(self, ids: Sequence[DocumentId]) -> Places:
        """Return where document ids are kept: (ids,) each."""
        places = self._place(self.id_keys(ids)[:, None], np.array([IDS]), (ID_BITS,))
        return places.flat()

    def tables(self) -> dict[int, int]:
        """Return how many sorted sets each table may have, by its number, that of the ids too."""
        bits = dict(enumerate(self.prefix_bits)) | ({IDS: ID_BITS} if self.ids else {})
        return {table: 1 << min(width, self.set_bits) for table, width in bits.items()}

    def sets(self) -> Iterator[tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]]:
        """Yield suffix and partition of every sorted set that there may be, some at a time."""
        for table, count in self.tables().items():
            for start in range(0, count, _SETS):
                names = np.arange(start, min(count, start + _SETS), dtype=np.uint64)
                yield self.some_sets(table, names)

    def some_sets(
        self, table: int, names: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]:
        """Return suffix and partition of some sorted sets of a table, by their leading bits."""
        rows, numbers = names[:, None], np.array([table])
        return self._suffixes(rows, numbers)[:, 0], self._partitions(rows, numbers)[:, 0]

    def _place(
        self,
        keys: npt.NDArray[np.uint64],
        tables: npt.NDArray[np.int64],
        prefix_bits: Sequence[int],
    ) -> Places:
        bits = np.array(prefix_bits, np.uint64)
        score_bits = bits - np.minimum(bits, np.uint64(self.set_bits))
        names = keys >> score_bits
        scores = keys & ((np.uint64(1) << score_bits) - np.uint64(1))
        return Places(
            self._suffixes(names, tables), _decimal(scores), self._partitions(names, tables)
        )

    def _partitions(
        self, names: npt.NDArray[np.uint64], tables: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        if self.partitions == 1:
            return np.zeros(names.shape, np.int64)
        mixed = finalize((tables.astype(np.uint64) << np.uint64(32)) | names, _KEY)
        return (mixed % np.uint64(self.partitions)).astype(np.int64)

    def record_places(self, claims: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the partition and the bucket of each claim's record."""
        mixed = finalize(claims, _KEY)
        partitions = mixed % np.uint64(self.partitions)
        buckets = (mixed >> np.uint64(24)) % np.uint64(self.buckets)
        return partitions.astype(np.int64), buckets.astype(np.int64)

    def _suffixes(
        self, names: npt.NDArray[np.uint64], tables: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bytes_]:
        """Spell ``tTT:HHHH`` for each (document, table), ``i00:HHHH`` for document ids."""
        width = self.suffix_width
        spelled = np.empty((*names.shape, width), np.uint8)
        spelled[:, :, 0] = np.where(tables == IDS, ord("i"), ord("t"))
        spelled[:, :, 3] = ord(":")
        spelled[:, :, 1:3] = _HEX[tables % IDS].view(np.uint8).reshape(-1, 2)
        octets = names.astype(">u8").view(np.uint8).reshape(*names.shape, 8)
        tail = np.ascontiguousarray(octets[:, :, 8 - self._digits // 2 :])
        spelled[:, :, 4:] = _HEX.take(tail).view(np.uint8).reshape(*names.shape, self._digits)
        return spelled.view(f"S{width}").reshape(names.shape)


def _decimal(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.bytes_]:
    """Spell numbers below 10^16, such as those below 2^53, in 16 digits."""
    spelled = np.empty((*numbers.shape, 4), np.uint32)
    for place in (3, 2, 1, 0):
        # Not divmod: to divide by a constant is fast, to take the rest is not.
        rest = numbers // np.uint64(10_000)
        spelled[..., place] = _DIGITS.take((numbers - rest * np.uint64(10_000)).astype(np.intp))
        numbers = rest
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

    def flat(self) -> Places:
        """Return all as one column, those of a document together."""
        suffixes, scores, partitions = self
        return Places(suffixes.reshape(-1), scores.reshape(-1), partitions.reshape(-1))

    def beside(self, column: Places) -> Places:
        """Return these with one more column, of one place for each document."""
        suffixes, scores, partitions = (
            np.hstack([mine, more[:, None]]) for mine, more in zip(self, column, strict=True)
        )
        return Places(suffixes, scores, partitions)

    def rows(self, rows: npt.NDArray[np.int64]) -> Places:
        """Return those of some documents."""
        return Places(self.suffixes[rows], self.scores[rows], self.partitions[rows])


class ClaimIds:
    """Mints claim ids: 64 bits, growing with time, never the same twice.

    41 bits of milliseconds since 2020, 13 bits of worker number, 10 bits of sequence. Worker
    numbers come from a counter in the index. Where two workers share one (after 8,192 starts, or
    because Redis lost writes), the index notices it: see ``clock.Incarnation``.
    """

    _EPOCH_MS = 1_577_836_800_000
    _TIME_BITS = 41
    _SEQUENCE_BITS = 10
    _WORKER_BITS = 13

    def __init__(self, worker: int) -> None:
        """Mint for one worker, given its number."""
        self._tick = 0
        self.renumber(worker)

    def renumber(self, worker: int) -> None:
        """Go on as another worker."""
        self._worker = (worker % (1 << self._WORKER_BITS)) << self._SEQUENCE_BITS

    @classmethod
    def milliseconds(cls, time: float) -> int:
        """Return what ids have of a time, given as Unix time: milliseconds since 2020."""
        return max(0, int(time * 1000) - cls._EPOCH_MS)

    @classmethod
    def first_at(cls, time: float) -> int:
        """Return the smallest id that is minted at this time, Unix time."""
        return cls.milliseconds(time) << (cls._SEQUENCE_BITS + cls._WORKER_BITS)

    @classmethod
    def time_of(cls, claim: int) -> float:
        """Return when an id was minted, Unix time, to the millisecond."""
        return ((claim >> (cls._SEQUENCE_BITS + cls._WORKER_BITS)) + cls._EPOCH_MS) / 1000

    def mint(self, now: float, count: int = 1) -> npt.NDArray[np.uint64]:
        """Return ``count`` ids, greater than all before.

        Args:
            now: seconds since the epoch, by the clock of the index.
            count: how many.

        Raises:
            ServiceError: that clock has come to the end of the ids, so it is wrong by decades.
        """
        # A tick is a millisecond and a place in its sequence. When more are needed than a
        # millisecond holds, ticks run ahead of the clock.
        now_tick = self.milliseconds(now) << self._SEQUENCE_BITS
        first = max(self._tick + 1, now_tick)
        if (first + count) >> (self._SEQUENCE_BITS + self._TIME_BITS):
            msg = (
                "The clock of the index is beyond 2089, where claim ids end: Redis and a worker "
                "both had a time of day decades ahead. Correct their clocks and make the index "
                "again with stream-dedup rebuild, in another redis_namespace."
            )
            raise ServiceError(msg)
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
