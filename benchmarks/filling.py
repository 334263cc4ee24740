"""Fills an index in Redis with many originals, quickly, for what is measured on large indexes.

The entries and records are those that claims would leave behind, byte for byte, but sorted set by
sorted set instead of probe by probe, and without a reply to each: some 50,000 originals a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from redis import Redis

from stream_dedup.fingerprint.fingerprinter import FingerprintMethod, Fingerprints
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.claims import Fate, Mode
from stream_dedup.index.found import Found
from stream_dedup.index.keys import Places
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round, read_on

ID_BYTES = 20
#: Documents claimed together, and written together.
BATCH, FILLED = 2_000, 2_000_000
#: Bytes of commands that are sent together.
_BUFFER = 1 << 20

#: What near copies differ in: bits of a SimHash; shares of the bands and the bins of a MinHash.
_NEAR_BITS = 3
_NEAR_BANDS, _NEAR_BINS = 0.4, 0.08

Claims = npt.NDArray[np.uint64]


class RandomDocuments:
    """Makes batches of documents with random fingerprints and no text.

    Args:
        method: of the fingerprints.
    """

    def __init__(self, method: FingerprintMethod) -> None:
        self._method = method
        self._random = np.random.default_rng(7)
        self._made = 0

    def batch(self, count: int) -> IndexBatch:
        """Return so many documents, different from all before."""
        random = self._random.bytes(16 * count)
        digests = [random[at : at + 16] for at in range(0, 16 * count, 16)]
        return self._named(digests, *self._prints(count))

    def batches(self, count: int, size: int = BATCH) -> Iterator[IndexBatch]:
        """Return so many documents, batch by batch."""
        for start in range(0, count, size):
            yield self.batch(min(size, count - start))

    def copies(self, of: IndexBatch) -> IndexBatch:
        """Return copies of documents: each second one exact, the others near.

        A near copy by SimHash differs in three bits; one by MinHash resembles its original by
        about .92, and agrees with it in about half of the bands.
        """
        near = np.arange(len(of)) % 2 == 1
        keys, sketches = of.prints.keys.copy(), of.prints.sketches.copy()
        keys[near], sketches[near] = self._edited(keys[near], sketches[near])
        digests = [
            self._random.bytes(16) if is_near else digest
            for digest, is_near in zip(of.prints.digests, near.tolist(), strict=True)
        ]
        return self._named(digests, keys, sketches)

    def mixed(self, originals: IndexBatch, share: float, count: int = BATCH) -> IndexBatch:
        """Return a batch of which so many are copies of ``originals``, drawn at random."""
        chosen = self._random.choice(len(originals), round(share * count), replace=False)
        copies, others = self.copies(originals.rows(chosen)), self.batch(count - len(chosen))
        return joined([copies, others]).rows(self._random.permutation(count))

    def _named(
        self, digests: list[bytes], keys: Claims, sketches: npt.NDArray[np.uint8]
    ) -> IndexBatch:
        count = len(digests)
        numbers = range(self._made, self._made + count)
        self._made += count
        return IndexBatch(
            ids=[f"{number:0{ID_BYTES}d}" for number in numbers],
            identities=np.array(numbers, np.uint64),
            times=np.zeros(count),
            prints=Fingerprints(np.zeros(count, np.bool_), digests, keys, sketches),
            ranks=np.full(count, np.inf),
        )

    def _prints(self, count: int) -> tuple[Claims, npt.NDArray[np.uint8]]:
        method = self._method
        if isinstance(method, SimHash):
            return self._simhash_prints(self._random.integers(0, 2**64, count, np.uint64))
        shape = (count, len(method.prefix_bits))
        sketches = self._random.integers(1, 256, (count, method.sketch_bytes), np.uint8)
        return self._random.integers(0, 2**53, shape, np.uint64), sketches

    def _edited(
        self, keys: Claims, sketches: npt.NDArray[np.uint8]
    ) -> tuple[Claims, npt.NDArray[np.uint8]]:
        if isinstance(self._method, SimHash):
            values = sketches.view("<u8").reshape(-1)
            for _ in range(_NEAR_BITS):
                values = values ^ (np.uint64(1) << self._random.integers(0, 64, len(values), "u8"))
            return self._simhash_prints(values)
        other_keys, other_sketches = self._prints(len(keys))
        changed = self._random.random(keys.shape) < _NEAR_BANDS
        changed[:, 0] = False
        other = self._random.random(sketches.shape) < _NEAR_BINS
        return np.where(changed, other_keys, keys), np.where(other, other_sketches, sketches)

    def _simhash_prints(self, values: Claims) -> tuple[Claims, npt.NDArray[np.uint8]]:
        assert isinstance(self._method, SimHash)
        keys = np.stack([p.prefix(values) for p in self._method.permutations], axis=1)
        return keys, values.astype("<u8").view(np.uint8).reshape(len(values), 8)


def joined(batches: Sequence[IndexBatch]) -> IndexBatch:
    """Put batches without payloads together."""
    prints = [batch.prints for batch in batches]
    return IndexBatch(
        ids=[one for batch in batches for one in batch.ids],
        identities=np.concatenate([batch.identities for batch in batches]),
        times=np.concatenate([batch.times for batch in batches]),
        prints=Fingerprints(
            np.concatenate([one.empty for one in prints]),
            [digest for one in prints for digest in one.digests],
            np.concatenate([one.keys for one in prints]),
            np.concatenate([one.sketches for one in prints]),
        ),
        ranks=np.concatenate([batch.ranks for batch in batches]),
    )


def probe(round_: Round, index: RedisIndex, batch: IndexBatch, claims: Claims, mode: Mode) -> Found:
    """Add a probe of every table key of a batch to a round; only claims find them again."""
    suffixes, scores, partitions = index.store.layout.place(batch.prints.keys)
    flat = Places(suffixes.reshape(-1), scores.reshape(-1), partitions.reshape(-1))
    tables = batch.prints.keys.shape[1]
    modes = np.full(len(batch) * tables, mode, np.uint8)
    return round_.probe(flat, np.repeat(claims, tables), modes)


def look(index: RedisIndex, batches: Iterable[IndexBatch]) -> int:
    """Return how many candidates documents that are not in the index meet, all tables together."""
    candidates = 0
    for batch in batches:
        round_ = Round(index.store)
        found = probe(round_, index, batch, np.zeros(len(batch), np.uint64), Mode.LOOK)
        round_.run()
        read_on(index.store, found)
        candidates += len(found.pairs[0])
    return candidates


def fill(index: RedisIndex, batch: IndexBatch) -> Claims:
    """Write originals as the claim protocol leaves them, but without asking who is near.

    Returns:
        Their claims.

    Raises:
        RuntimeError: the server has not taken all of them.
    """
    claims = index.mint(len(batch))
    pool = cast("Redis", index.store.client).connection_pool
    connection: Any = pool.make_connection()
    # On a machine that does other things too, a large command may take a while.
    connection.socket_timeout = None
    try:
        # The replies would take longer to read than the commands take to carry out.
        connection.send_command("CLIENT", "REPLY", "OFF")
        for commands in _joined(_commands(index, batch, claims)):
            connection.send_packed_command([commands], check_health=False)
        connection.send_command("CLIENT", "REPLY", "ON")
        connection.read_response()
    finally:
        connection.disconnect()
    _check(index, batch, claims)
    return claims


def _commands(index: RedisIndex, batch: IndexBatch, claims: Claims) -> Iterator[bytes]:
    layout = index.store.layout
    members = claims.astype(">u8").view("V8")
    places = layout.place(batch.prints.keys)
    if layout.ids:
        places = places.beside(layout.place_ids(batch.ids))
    suffixes, scores, partitions = places
    prefixes = [layout.partition_key(number).encode() for number in range(layout.partitions)]
    for table in range(suffixes.shape[1]):
        # Members of a set come in the order of their scores, so that none is moved by the next.
        order = np.lexsort((scores[:, table], suffixes[:, table]))
        firsts = _firsts(suffixes[order, table])
        names = suffixes[order[firsts], table].tolist()
        tags = partitions[order[firsts], table].tolist()
        pairs = _spelled(scores[order, table].view("V16"), members[order])
        yield from _grouped(
            b"ZADD",
            [prefixes[tag] + name for tag, name in zip(tags, names, strict=True)],
            firsts,
            pairs,
        )
    tags_of, buckets = layout.record_places(claims)
    order = np.lexsort((buckets, tags_of))
    homes = np.stack([tags_of, buckets], axis=1)[order]
    firsts = _firsts(homes)
    named = [prefixes[tag] + b"c%d" % bucket for tag, bucket in homes[firsts].tolist()]
    yield from _grouped(
        b"HSET", named, firsts, _spelled(members[order], _records(index, batch)[order])
    )
    for tag, count in enumerate(np.bincount(tags_of, minlength=layout.partitions).tolist()):
        yield _command(b"INCRBY", prefixes[tag] + b"n", b"%d" % count)


def _records(index: RedisIndex, batch: IndexBatch) -> npt.NDArray[Any]:
    """Return the committed records, all of the same size because all ids are."""
    fate = bytes([Fate.ORIGINAL])
    records = [fate + record for record in index.records.encode(batch)]
    return np.frombuffer(b"".join(records), f"V{len(records[0])}")


def _firsts(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return where runs of equal values begin."""
    changed = values[1:] != values[:-1]
    if changed.ndim > 1:
        changed = changed.any(axis=1)
    return np.flatnonzero(np.append(True, changed))


def _spelled(*columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Spell columns of arguments of fixed sizes as the protocol of Redis has them, a row each."""
    fields, parts = [], []
    for number, column in enumerate(columns):
        head, end = b"$%d\r\n" % column.itemsize, b"\r\n"
        for part, content in enumerate((np.void(head), column, np.void(end))):
            fields.append((f"{number}{part}", f"V{content.itemsize}"))
            parts.append(content)
    rows = np.empty(len(columns[0]), np.dtype(fields))
    for (name, _), content in zip(fields, parts, strict=True):
        rows[name] = content
    return rows


def _grouped(
    name: bytes, keys: list[bytes], firsts: npt.NDArray[np.int64], pairs: npt.NDArray[Any]
) -> Iterator[bytes]:
    """Yield a command for each run of pairs."""
    data, width = pairs.tobytes(), pairs.dtype.itemsize
    bounds = [*firsts.tolist(), len(pairs)]
    for key, first, end in zip(keys, bounds, bounds[1:], strict=False):
        head = b"*%d\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (
            2 + 2 * (end - first),
            len(name),
            name,
            len(key),
            key,
        )
        yield head + data[first * width : end * width]


def _command(*arguments: bytes) -> bytes:
    spelled = b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in arguments)
    return b"*%d\r\n%s" % (len(arguments), spelled)


def _joined(commands: Iterator[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for command in commands:
        waiting.append(command)
        size += len(command)
        if size >= _BUFFER:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _check(index: RedisIndex, batch: IndexBatch, claims: Claims) -> None:
    """See whether the last of the originals can be read, and found by each of its table keys.

    Raises:
        RuntimeError: it cannot.
    """
    last = batch.rows(range(len(batch) - 1, len(batch)))
    round_ = Round(index.store)
    found = probe(round_, index, last, np.zeros(1, np.uint64), Mode.LOOK)
    values = round_.read(claims[-1:])
    round_.run()
    read_on(index.store, found)
    positions, members = found.pairs
    tables = len(set(positions[members == claims[-1]].tolist()))
    if tables < last.prints.keys.shape[1] or values[0] != _records(index, last)[0].tobytes():
        msg = f"The server has not taken all of {len(batch):,} originals. See its log."
        raise RuntimeError(msg)
