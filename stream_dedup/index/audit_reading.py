"""Reads the claims and the table keys of a whole index in Redis, for an audit."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from redis.exceptions import AskError

from stream_dedup.errors import ConfigurationMismatch, ServiceError
from stream_dedup.fingerprint.hashing import id_seeds
from stream_dedup.index.base import duplicate_id
from stream_dedup.index.connection import Client, nodes_of
from stream_dedup.index.expiry import NEVER
from stream_dedup.index.keys import Layout
from stream_dedup.index.records import RecordFormat
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId
from stream_dedup.verify.evidence import Evidence

Claims = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

#: Rows of claims that are no originals.
PENDING, VOID, UNKNOWN = -1, -2, -3

#: Keys asked for in one pipeline, and members in one reply.
_PAGE = 1000


class Facts(NamedTuple):
    """What an index says of itself.

    Attributes:
        watermark: largest event time.
        forgotten: originals that were forgotten, at most.
    """

    watermark: float
    forgotten: int


class Reader:
    """Reads the keys of an index, without writing."""

    def __init__(self, client: Client, settings: Settings, configuration: str) -> None:
        self.client = client
        self.layout = self._layout(settings, configuration)

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each claim id with its value; one may come twice."""
        for _, found in self._scan("c", self._hash_page):
            yield from found.items()

    def sets(self) -> Iterator[tuple[bytes, dict[bytes, float]]]:
        """Yield each sorted set's key and members, once."""
        once = _Once(len(self.layout.prefix_bits) << self.layout.set_bits)
        for key, members in self._scan("t", self._set_page):
            table, name = set_number(key)
            if once.first((table << self.layout.set_bits) + name):
                yield key, members

    def id_sets(self) -> Iterator[tuple[bytes, dict[bytes, float]]]:
        """Yield the same of the document ids; one may come twice."""
        return self._scan("i", self._set_page)

    def facts(self) -> Facts:
        """Read what the index says of itself."""
        key = self.layout.index_key
        watermark, forgotten = self.client.hmget(key, ["watermark", "forgotten"])
        return Facts(float(watermark or NEVER), int(forgotten or 0))

    def void(self, claims: Claims) -> npt.NDArray[np.bool_]:
        """Say which claims are void if they have no record: those behind the fence."""
        partitions, _ = self.layout.record_places(claims)
        fences = np.zeros(self.layout.partitions, np.uint64)
        for partition in np.unique(partitions).tolist():
            value: Any = self.client.get(f"{self.layout.partition_key(partition)}f")
            fences[partition] = int.from_bytes(value or b"", "big")
        behind: npt.NDArray[np.bool_] = claims < fences[partitions]
        return behind

    def values(self, claims: Claims) -> list[bytes]:
        """Read the values of some claims; empty where there is none."""
        partitions, buckets = self.layout.record_places(claims)
        members = claims.astype(">u8").tobytes()
        places = zip(partitions.tolist(), buckets.tolist(), strict=True)
        calls = [
            ("HGET", f"{self.layout.partition_key(partition)}c{bucket}", members[at : at + 8])
            for at, (partition, bucket) in zip(range(0, len(members), 8), places, strict=True)
        ]
        return [value or b"" for value in self._ask(calls)]

    def stand(self, entries: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Say which (key of a set, claim id) are still there."""
        return [score is not None for score in self._ask([("ZSCORE", *one) for one in entries])]

    def _ask(self, calls: Sequence[tuple[str, str | bytes, bytes]]) -> list[Any]:
        replies: list[Any] = []
        for start in range(0, len(calls), _PAGE):
            pipeline = self.client.pipeline(transaction=False)
            for name, key, member in calls[start : start + _PAGE]:
                (pipeline.hget if name == "HGET" else pipeline.zscore)(key, member)
            replies += pipeline.execute()
        return replies

    def _scan(self, kind: str, read: Any) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        """Read all keys of a kind, page by page, from every node that takes writes."""
        for node in nodes_of(self.client):
            pattern = f"{self.layout.namespace}:{{*}}:{kind}*"
            keys = node.scan_iter(match=pattern, count=_PAGE)
            while page := list(islice(keys, _PAGE)):
                pipeline = node.pipeline(transaction=False)
                for key in page:
                    read(pipeline, key, 0)
                replies = pipeline.execute(raise_on_error=False)
                for key, reply in zip(page, replies, strict=True):
                    yield key, self._whole(key, reply, read)

    def _whole(self, key: bytes, reply: Any, read: Any) -> dict[bytes, Any]:
        """Return all members, where the first reply is but a part or says that the key moved."""
        found: dict[bytes, Any] = {}
        if isinstance(reply, AskError):  # the Cluster's client follows it, also when it is MOVED
            reply = read(self.client, key, 0)
        if isinstance(reply, Exception):
            raise reply
        cursor, part = reply
        found.update(part)
        while cursor:
            cursor, part = read(self.client, key, cursor)
            found.update(part)
        return found

    @staticmethod
    def _hash_page(client: Any, key: bytes, cursor: int) -> Any:
        return client.hscan(key, cursor, count=_PAGE)

    @staticmethod
    def _set_page(client: Any, key: bytes, cursor: int) -> Any:
        return client.zscan(key, cursor, count=_PAGE)

    def _layout(self, settings: Settings, configuration: str) -> Layout:
        """Return the layout that the index itself states."""
        namespace = settings.redis_namespace
        key = f"{namespace}:{{index}}"
        stands: list[Any] = self.client.hmget(key, ["configuration", "layout"])
        id_seed = id_seeds(settings.seed.get_secret_value()).place
        layout = Layout.parse(namespace, (stands[1] or b"").decode(), id_seed)
        if layout is None:
            msg = (
                f"Redis has no index {namespace!r}. Check redis_url and redis_namespace, or start "
                "a worker, which makes it."
            )
            raise ServiceError(msg)
        if stands[0].decode() != configuration:
            msg = (
                f"The index {namespace!r} was built with configuration {stands[0].decode()}, not "
                f"{configuration}. Give the fingerprint settings that it was built with."
            )
            raise ConfigurationMismatch(msg)
        return layout


class Known:
    """All claims of an index, as their records tell.

    Attributes:
        claims: claim ids, sorted.
        rows: for each claim the row of the original that it is, or what else it is, below 0.
        evidence: of each original, for verification.
        digests: of each original, 16 bytes.
        times: of each original.
        renewed: the times to which they were renewed.
        ids: document id of each original.
        owners: claim id of each original.
    """

    def __init__(self, records: Iterable[tuple[bytes, bytes]], form: RecordFormat) -> None:
        claims, rows, owners = bytearray(), array("q"), bytearray()
        sketches, digests, times, renewed = bytearray(), bytearray(), array("d"), array("d")
        payloads: list[bytes] = []
        self.ids: list[DocumentId] = []
        for claim, value in records:
            claims += claim
            if value[:1] != b"O":
                rows.append(PENDING if value[:1] == b"P" else VOID)
                continue
            record = form.decode(value[1:])
            rows.append(len(self.ids))
            self.ids.append(record.document_id)
            owners += claim
            sketches += record.sketch
            if record.payload:
                payloads.append(record.payload)
            digests += record.digest
            times.append(record.time)
            renewed.append(record.renewed)
        # A hash is scanned, not read at once, so a record may have come twice.
        numbers = np.frombuffer(claims, ">u8").astype(np.uint64)
        self.claims, at = np.unique(numbers, return_index=True)
        self.rows: Rows = np.array(rows, np.int64)[at]
        self.owners = np.frombuffer(owners, ">u8").astype(np.uint64)
        rows_of_sketches = np.frombuffer(sketches, np.uint8)
        self.evidence = Evidence(
            rows_of_sketches.reshape(len(self.ids), form.sketch_bytes), payloads
        )
        self.digests = np.frombuffer(digests, "<u8").reshape(-1, 2)
        self.times = np.array(times, np.float64)
        self.renewed = np.array(renewed, np.float64)

    def count(self, kind: int) -> int:
        """Return how many claims are pending, or void."""
        return int(np.count_nonzero(self.rows == kind))

    @property
    def originals(self) -> Rows:
        """Rows of all originals."""
        return self.rows[self.rows >= 0]

    def digest(self, row: int) -> bytes:
        """Return the digest of an original."""
        digest: bytes = self.digests[row].tobytes()
        return digest

    def find(self, claims: Claims) -> Rows:
        """Return the row of each claim, or what else it is, below 0."""
        if not len(self.claims):
            return np.full(len(claims), UNKNOWN, np.int64)
        at = np.minimum(np.searchsorted(self.claims, claims), len(self.claims) - 1)
        return np.where(self.claims[at] == claims, self.rows[at], UNKNOWN)

    def by_name(self) -> dict[str, int]:
        """Return the row of each original by the name of its duplicate group."""
        return {duplicate_id(self.ids[row], self.digest(row)): row for row in self.originals}


class _Once:
    """Remembers which numbers came before, a bit for each."""

    def __init__(self, numbers: int) -> None:
        self._bits = bytearray(-(-numbers // 8))

    def first(self, number: int) -> bool:
        """Say whether a number comes for the first time."""
        byte, bit = number >> 3, 1 << (number & 7)
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        return True


def set_number(key: bytes) -> tuple[int, int]:
    """Return the table and the leading bits that a sorted set's key spells."""
    table, _, name = key.rpartition(b"}:")[2].partition(b":")
    return int(table[1:], 16), int(name, 16)
