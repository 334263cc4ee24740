"""Fills an index with what a stream's annotations, or the stream itself, tell.

Originals of the same configuration are registered as they are; all else is claimed anew, in order.
A document that comes again with the same source, id and text is one document, and gets one claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import Attachment, Index, IndexBatch
from stream_dedup.index.keys import ClaimIds
from stream_dedup.index.progress import Position, Progress
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.table import PrefixTable
from stream_dedup.types import DocumentId

#: Worker numbers of past claims, from the end so that no live worker shares one; see ``ClaimIds``.
LANES = 8192

Keys = npt.NDArray[np.uint64]
Claims = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_HEAD = np.dtype([("identity", "<u8"), ("time", "<f8"), ("digest", "<u8", 2)])


class Past(NamedTuple):
    """When and where each document of a batch was decided.

    Attributes:
        moments: (documents,) int64 milliseconds since the epoch, 0 where unknown.
        lanes: (documents,) int64 partition of the source.
    """

    moments: Numbers
    lanes: Numbers


class Rebuilding:
    """Fills an index of this process: in memory, or with a state file.

    Attributes:
        index: the index.
        positions: how far each partition of the source has been taken in.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.positions: dict[int, Position] = {}
        self._seen = Seen()

    def start(self, source: str) -> None:
        """Begin, or go on with what was begun.

        Raises:
            ServiceError: the index holds originals of another origin.
        """

    def register(self, batch: IndexBatch, past: Past) -> int:
        """Register originals in order; return how many were not there before."""
        claims = self._claims(past)
        names = document_keys(batch.identities, batch.digest_words())
        rows = np.flatnonzero(self._seen.fresh(names, claims) & ~batch.prints.empty)
        self._write(batch.rows(rows), claims[rows])
        self._seen.add(names[rows])
        return len(rows)

    def claim(self, batch: IndexBatch, past: Past) -> list[Attachment | None]:
        """Decide documents anew, in order."""
        attachments = self._claim(batch, past)
        rows = np.array([row for row, found in enumerate(attachments) if found is None], np.int64)
        names = document_keys(batch.identities, batch.digest_words())[rows]
        self._seen.add(names[~batch.prints.empty[rows]])
        return attachments

    def forget(self, ids: Sequence[DocumentId]) -> int:
        """Remove the originals that have these ids, which may come again; return how many."""
        gone = [one for named in self.index.named(ids) for one in named]
        if gone:
            identities = np.array([one.identity for one in gone], np.uint64)
            digests = np.frombuffer(b"".join(one.digest for one in gone), "<u8").reshape(-1, 2)
            self._seen.remove(document_keys(identities, digests))
        return sum(self.index.forget(ids))

    def save(self, offsets: Mapping[int, int]) -> None:
        """Keep how far the partitions of the source have been taken in."""

    def finish(self) -> None:
        """Let the index be used."""

    def _claims(self, past: Past) -> Claims:
        return np.zeros(len(past.moments), np.uint64)

    def _write(self, batch: IndexBatch, claims: Claims) -> None:  # noqa: ARG002 - others need them
        self.index.register(batch)

    def _claim(self, batch: IndexBatch, past: Past) -> list[Attachment | None]:  # noqa: ARG002
        return self.index.claim(batch)


class RedisRebuilding(Rebuilding):
    """Fills an index in Redis, and keeps how far it has come.

    Claim ids follow from when and where a document was decided, so they grow in order of
    registration whichever partition is read first, and a batch that comes again gets the same.
    """

    index: RedisIndex

    def __init__(self, index: RedisIndex) -> None:
        super().__init__(index)
        self._store = index.store
        self._progress = Progress(index.store)
        self._clock = _Clock(index.ids)
        index.ids = self._clock

    def start(self, source: str) -> None:
        """Begin, or go on with what was begun (see ``Rebuilding.start``)."""
        self.positions = self._progress.start(source)
        self._seen = Seen(self.index.reader().records())

    def save(self, offsets: Mapping[int, int]) -> None:
        """Keep how far the partitions of the source have been taken in."""
        for lane, offset in offsets.items():
            before = self._position(lane)
            self.positions[lane] = before._replace(offset=max(before.offset, offset))
        self._progress.save({lane: self.positions[lane] for lane in offsets})

    def finish(self) -> None:
        """Let workers begin."""
        self._progress.finish()

    def _claims(self, past: Past) -> Claims:
        claims = np.zeros(len(past.moments), np.uint64)
        for lane in np.unique(past.lanes).tolist():
            rows = np.flatnonzero(past.lanes == lane)
            ids, before = ClaimIds(LANES - 1 - lane), self._position(lane)
            claims[rows], tick = ids.past(past.moments[rows], before.tick)
            self.positions[lane] = before._replace(tick=tick)
        return claims

    def _write(self, batch: IndexBatch, claims: Claims) -> None:
        self.index.register_as(batch, claims)

    def _claim(self, batch: IndexBatch, past: Past) -> list[Attachment | None]:
        self._clock.now = past.moments[0] / 1000
        # Not again where Redis has lost writes: what was taken in before is gone too.
        return self.index.claim_once(batch)

    def _position(self, lane: int) -> Position:
        return self.positions.get(lane, Position())


class _Clock(ClaimIds):
    """Mints claim ids of the time at which documents were decided first."""

    def __init__(self, ids: ClaimIds) -> None:
        self._ids = ids
        self.now = 0.0

    def mint(self, now: float, count: int = 1) -> Claims:  # noqa: ARG002 - the past is what counts
        """Return ids of the past, greater than all before."""
        return self._ids.mint(self.now, count)


class Seen:
    """Remembers which documents are registered: 20 to 40 bytes for each.

    Those that were there at the beginning (of a rebuild that goes on) are known with their claim,
    since the last batch may have been cut short and is registered again.
    """

    def __init__(self, records: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Take in the claims and values of an index (see ``Reader.records``)."""
        claims, heads = bytearray(), bytearray()
        for claim, value in records:
            if value[:1] == b"O":
                claims += claim
                heads += value[1 : 1 + _HEAD.itemsize]
        read = np.frombuffer(heads, _HEAD)
        names = document_keys(read["identity"], read["digest"])
        order = np.argsort(names, kind="stable")
        self._names = names[order]
        self._claims = np.frombuffer(claims, ">u8").astype(np.uint64)[order]
        self._table = PrefixTable()
        self._removed: set[int] = set()

    def fresh(self, names: Keys, claims: Claims) -> npt.NDArray[np.bool_]:
        """Say which documents, in order, have no other claim than this."""
        first = np.zeros(len(names), np.bool_)
        first[np.unique(names, return_index=True)[1]] = True
        known = np.zeros(len(names), np.bool_)
        known[self._table.find(names)[0]] = True
        if len(self._names):
            at = np.minimum(np.searchsorted(self._names, names), len(self._names) - 1)
            known |= (self._names[at] == names) & (self._claims[at] != claims)
        if self._removed:
            removed = np.fromiter(self._removed, np.uint64, len(self._removed))
            known &= ~np.isin(names, removed)
        return first & ~known

    def add(self, names: Keys) -> None:
        """Remember documents."""
        if self._removed:
            self._removed.difference_update(names.tolist())
        self._table.add(names, np.zeros(len(names), np.int64))

    def remove(self, names: Keys) -> None:
        """Say that documents are there no longer."""
        self._removed.update(names.tolist())


def document_keys(identities: Keys, digests: Keys) -> Keys:
    """Return a number for each document, the same for the same source, id and text.

    Args:
        identities: (documents,) see ``IndexBatch``.
        digests: (documents, 2) digests of the normalised texts.
    """
    spread = identities * np.uint64(0x9E3779B97F4A7C15)
    return spread ^ digests[:, 0] ^ (digests[:, 1] << np.uint64(1))
