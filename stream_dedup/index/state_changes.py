"""What became of originals after they were written to a state file, as rows of their own.

Each row is one change, MessagePack: ids that were forgotten at this place in the sequence of rows,
or originals that were renewed and to what time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import IndexBatch
from stream_dedup.index.expiry import Times
from stream_dedup.types import DocumentId

Keys = npt.NDArray[np.uint64]


class _Forget(msgspec.Struct, array_like=True, tag="forget"):
    """Forgotten ids; with digests, only the originals with these texts."""

    ids: list[DocumentId]
    digests: list[bytes] | None


class _Renew(msgspec.Struct, array_like=True, tag="renew"):
    """Keys of originals, u64, and times, f64, both little-endian."""

    keys: bytes
    times: bytes


_decode = msgspec.msgpack.Decoder(_Forget | _Renew).decode
_encode = msgspec.msgpack.Encoder().encode


def renewal_keys(identities: Keys, digests: Keys) -> Keys:
    """Name originals: the same source, id and text.

    Args:
        identities: (originals,) see ``IndexBatch``.
        digests: (originals, 2) of their texts.
    """
    return identities ^ digests[:, 0]


class Forgotten:
    """Which originals were forgotten after they had been registered."""

    def __init__(self) -> None:
        self._changes: list[tuple[int, _Forget]] = []
        self._latest: dict[DocumentId | tuple[DocumentId, bytes], int] = {}

    def __bool__(self) -> bool:
        """Say whether there are any."""
        return bool(self._changes)

    def add(self, place: int, change: _Forget) -> None:
        """Take note of a change, later than all before."""
        self._changes.append((place, change))
        for row, name in enumerate(change.ids):
            key = name if change.digests is None else (name, change.digests[row])
            self._latest[key] = place

    def marks(self, batch: IndexBatch, place: int) -> npt.NDArray[np.bool_]:
        """Say which originals of the batch in this place were forgotten."""
        latest = self._latest.get
        marks = [
            latest(name, -1) > place or latest((name, digest), -1) > place
            for name, digest in zip(batch.ids, batch.prints.digests, strict=True)
        ]
        return np.array(marks, np.bool_)

    def about(self, ids: set[DocumentId], baseline: int) -> Iterator[tuple[int, bytes]]:
        """Return the changes after ``baseline`` as far as they are about some ids."""
        for place, change in self._changes:
            if place > baseline:
                rows = [row for row, name in enumerate(change.ids) if name in ids]
                digests = change.digests and [change.digests[row] for row in rows]
                if rows:
                    yield place, _encode(_Forget([change.ids[row] for row in rows], digests))


class Renewed(NamedTuple):
    """The latest renewal of each original that was renewed.

    Attributes:
        keys: (originals,) uint64, sorted (see ``renewal_keys``).
        times: (originals,) float64.
        place: of the last renewal; 0 without any.
    """

    keys: Keys
    times: Times
    place: int

    @classmethod
    def gather(cls, changes: Sequence[tuple[int, _Renew]]) -> Self:
        """Put renewals together."""
        keys = np.frombuffer(b"".join(change.keys for _, change in changes), "<u8")
        times = np.frombuffer(b"".join(change.times for _, change in changes), "<f8")
        distinct, rows = np.unique(keys, return_inverse=True)
        latest = np.full(len(distinct), -np.inf)
        np.maximum.at(latest, rows, times)
        return cls(distinct, latest, max((place for place, _ in changes), default=0))

    def of(self, keys: Keys, times: Times) -> Times:
        """Return the times to which originals with these event times were renewed."""
        if not len(self.keys):
            return times
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found = self.keys[rows] == keys
        return np.where(found, np.maximum(times, self.times[rows]), times)

    def since(self, expires_before: float) -> bytes:
        """Write down the renewals from this time on; the originals of the others have expired."""
        kept = self.times >= expires_before
        return renewing(self.keys[kept], self.times[kept]) if kept.any() else b""


class Changes:
    """Everything that became of originals.

    Attributes:
        forgotten: which were forgotten.
        renewed: which were renewed.
    """

    def __init__(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Read changes in the order of their places.

        Raises:
            ValueError: a row is no change.
        """
        self.forgotten = Forgotten()
        self._renewals: list[tuple[int, _Renew]] = []
        for place, row in rows:
            change = _decode(row)
            if isinstance(change, _Forget):
                self.forgotten.add(place, change)
            else:
                self._renewals.append((place, change))
        self.renewed = Renewed.gather(self._renewals)

    def kept(
        self, baseline: int, ids: set[DocumentId], expires_before: float
    ) -> Iterator[tuple[int, bytes]]:
        """Return, with their places, the changes after ``baseline`` that are still of use.

        Args:
            baseline: the last place whose originals the others were not carried out on.
            ids: ids of these originals.
            expires_before: event time before which originals have expired.
        """
        yield from self.forgotten.about(ids, baseline)
        later = Renewed.gather([one for one in self._renewals if one[0] > baseline])
        if renewals := later.since(expires_before):
            yield later.place, renewals


def forgetting(ids: Sequence[DocumentId], digests: Sequence[bytes] | None) -> bytes:
    """Write down that ids were forgotten."""
    return _encode(_Forget(list(ids), None if digests is None else list(digests)))


def renewing(keys: Keys, times: Times) -> bytes:
    """Write down that originals were renewed."""
    return _encode(_Renew(keys.astype("<u8").tobytes(), times.astype("<f8").tobytes()))
