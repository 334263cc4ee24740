"""Registers documents that are known to be originals, many at a time and without probing.

For an index that nobody works on meanwhile: a rebuild, an import. Claim ids are the caller's: given
the same ids, writing again changes nothing, so a batch that was cut short is simply written again.

The 16 table entries of an original are most of the work, and the server's. A plain ZADD costs it
half of what the same costs inside a Function, and it takes a score and a member of fixed widths:
so a batch's commands are one array of numpy rows, sent as it lies there, and of the replies only
the lines are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import redis
from redis.exceptions import ResponseError

from stream_dedup.index.base import IndexBatch
from stream_dedup.index.connection import Client, reporting_errors, target_of
from stream_dedup.index.functions import BULK
from stream_dedup.index.keys import Layout, Places
from stream_dedup.index.records import RecordFormat

#: Records in one function call, which blocks the server: about 8 ms.
_RECORDS = 1024
#: Bytes sent before replies are read: the replies to as much fit into any socket's buffer.
_SENT = 1 << 18
_RECEIVED = 1 << 16

Claims = npt.NDArray[np.uint64]
_RECORD = np.dtype([("claim", ">u8"), ("bucket", "<u4"), ("length", "<u4")])


class Registrar:
    """Writes originals into an index in Redis."""

    def __init__(self, client: Client, layout: Layout, records: RecordFormat) -> None:
        """Load the Function that this takes.

        Raises:
            ServiceError: Redis is out of reach or refuses.
        """
        self._client = client
        self._layout = layout
        self._format = records
        with reporting_errors():
            BULK.load(client)

    def register(self, batch: IndexBatch, claims: Claims) -> None:
        """Register originals under claim ids of the caller's.

        Args:
            batch: the originals; none is empty.
            claims: (originals,) uint64, growing in order of registration.

        Raises:
            ServiceError: not all was written; the same call can be made again.
        """
        if not len(batch):
            return
        with reporting_errors():
            # Records first: an entry without a record looks like a claim that was given up.
            self._write_records(self._format.encode(batch), claims)
            self._write_entries(self._places(batch), claims)

    def _places(self, batch: IndexBatch) -> Places:
        """Return where the table keys are kept, and the ids beside them where ids are kept."""
        places = self._layout.place(batch.prints.keys)
        if not self._layout.ids:
            return places
        return places.beside(self._layout.place_ids(batch.ids))

    def _write_records(self, records: Sequence[bytes], claims: Claims) -> None:
        partitions, buckets = self._layout.record_places(claims)
        heads = np.zeros(len(claims), _RECORD)
        heads["claim"], heads["bucket"] = claims, buckets
        heads["length"] = [len(record) for record in records]
        packed, size = heads.tobytes(), _RECORD.itemsize
        pipeline = self._client.pipeline(transaction=False)
        for partition in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == partition)
            key = self._layout.partition_key(partition)
            for some in np.array_split(rows, -(-len(rows) // _RECORDS)):
                parts = []
                for row in some.tolist():
                    parts += [packed[row * size : (row + 1) * size], records[row]]
                # Two keys that never exist, so that a Cluster refuses while the slot moves.
                call = ("FCALL", f"{BULK.name}_records", 2, key, f"{key}-", b"".join(parts))
                pipeline.execute_command(*call, **target_of(self._client, key))
        pipeline.execute()

    def _write_entries(self, places: Places, claims: Claims) -> None:
        claims = np.repeat(claims, places.suffixes.shape[1])
        suffixes, scores, partitions = (part.reshape(-1) for part in places)
        for node, mine in self._nodes(np.unique(partitions).tolist()):
            commands = []
            for partition in mine:
                rows = np.flatnonzero(partitions == partition)
                prefix = self._layout.partition_key(partition).encode()
                commands.append(_zadds(prefix, suffixes[rows], scores[rows], claims[rows]))
            _send(node, commands)

    def _nodes(self, partitions: Sequence[int]) -> Iterator[tuple[redis.Redis, list[int]]]:
        """Yield each node that has some of the partitions, and these."""
        client = self._client
        if isinstance(client, redis.Redis):
            yield client, list(partitions)
            return
        homes: dict[str, tuple[redis.Redis, list[int]]] = {}
        for partition in partitions:
            key = self._layout.partition_key(partition)
            node = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
            if node.name not in homes:
                homes[node.name] = (client.get_redis_connection(node), [])
            homes[node.name][1].append(partition)
        yield from homes.values()


def _zadds(
    prefix: bytes, suffixes: npt.NDArray[Any], scores: npt.NDArray[Any], claims: Claims
) -> npt.NDArray[Any]:
    """Return one ZADD for each entry, as they go over the wire."""
    width = suffixes.dtype.itemsize
    head = b"*4\r\n$4\r\nZADD\r\n$%d\r\n%b" % (len(prefix) + width, prefix)
    fields: list[tuple[str, bytes | npt.NDArray[Any]]] = [
        ("head", head),
        ("suffix", suffixes),
        ("to_score", b"\r\n$16\r\n"),
        ("score", scores),
        ("to_member", b"\r\n$8\r\n"),
        ("member", claims.astype(">u8")),
        ("end", b"\r\n"),
    ]
    kinds = [
        (name, f"V{len(part)}" if isinstance(part, bytes) else part.dtype) for name, part in fields
    ]
    rows = np.empty(len(claims), np.dtype(kinds))
    for name, part in fields:
        rows[name] = np.void(part) if isinstance(part, bytes) else part
    return rows


def _send(node: redis.Redis, commands: Sequence[npt.NDArray[Any]]) -> None:
    """Send commands, each of which is answered with one line.

    Raises:
        RedisError: one was refused.
        OSError: the connection broke.
    """
    wanted = sum(map(len, commands))
    with _connection(node) as connection:
        # The client's own reader takes as long for one reply as the server for the command.
        link = connection._sock
        answered = 0
        for rows in commands:
            data = memoryview(rows.tobytes())
            for at in range(0, len(data), _SENT):
                link.sendall(data[at : at + _SENT])
                if at:
                    answered += _answers(link)
        while answered < wanted:
            answered += _answers(link)


def _answers(link: Any) -> int:
    """Take some replies, which are numbers; return how many."""
    received: bytes = link.recv(_RECEIVED)
    if not received:
        msg = "the connection was closed"
        raise ConnectionError(msg)
    start = received.find(b"-")
    if start >= 0:
        raise ResponseError(received[start + 1 :].split(b"\r\n")[0].decode())
    return received.count(b"\n")


@contextmanager
def _connection(node: redis.Redis) -> Iterator[Any]:
    """Lend a connection; one that broke in the midst of replies is not used again."""
    pool = node.connection_pool
    connection = pool.get_connection()
    try:
        yield connection
    except BaseException:
        connection.disconnect()  # type: ignore[no-untyped-call]
        raise
    finally:
        pool.release(connection)
