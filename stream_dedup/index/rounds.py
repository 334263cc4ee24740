"""The calls of the claim protocol to Redis: packed, and pipelined, one call a partition.

The calls of many documents are gathered in a ``Round``: their rows are grouped by partition, sent
in one pipeline, and the replies handed back row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.index.connection import reporting_errors, target_of
from stream_dedup.index.found import Found, page_rows
from stream_dedup.index.functions import CLAIMS
from stream_dedup.index.keys import Places
from stream_dedup.index.registrations import Registrations, packed
from stream_dedup.index.store import Bytes, Claims, Numbers, RedisStore

#: Rows in one function call, which blocks the server: about 4 ms of probes.
_ROWS = 2048
#: The same where each row is sure to have candidates, up to a page of them.
_PAGE_ROWS = 256

_RECORD = np.dtype([("claim", ">u8"), ("bucket", "<u4")])
_PUT = np.dtype([("claim", ">u8"), ("bucket", "<u4"), ("length", "<u4")])
_SETTLE = np.dtype([("claim", ">u8"), ("bucket", "<u4"), ("fate", "u1")])
_RENEW = np.dtype([("claim", ">u8"), ("bucket", "<u4"), ("time", "<f8")])


def _ignore(_reply: Any) -> None:
    """Take a reply that says nothing."""


def _value_taker(values: list[bytes], index: Numbers) -> Callable[[Any], None]:
    def take(reply: Any) -> None:
        at = 0
        for row in index.tolist():
            length = int.from_bytes(reply[at : at + 4], "little")
            values[row] = reply[at + 4 : at + 4 + length]
            at += 4 + length

    return take


def grouped(partitions: Numbers, most: int = _ROWS) -> Iterator[tuple[int, Numbers]]:
    """Split rows by partition, so many at a time, each part in the order of the rows."""
    if not partitions.any():
        parts = [np.arange(len(partitions))] if len(partitions) else []
    else:
        order = np.argsort(partitions, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(partitions[order])) + 1)
    for part in parts:
        for start in range(0, len(part), most):
            yield int(partitions[part[0]]), part[start : start + most]


class Round:
    """Calls of many documents, sent together in the order in which they were added."""

    def __init__(self, store: RedisStore, *, read_only: bool = False) -> None:
        """Start empty; a round that only reads needs no right to write."""
        self._store = store
        self._command = "FCALL_RO" if read_only else "FCALL"
        self._layout = store.layout
        self._pipeline = store.client.pipeline(transaction=False)
        self._receivers: list[Callable[[Any], None]] = []
        #: How to reach each node that this round writes to.
        self._written: dict[str, dict[str, Any]] = {}
        #: A partition of each node that this round reads fates from.
        self._read: dict[str, int] = {}
        #: Calls in their order: what is sent, where to, and the partition if the call is guarded:
        #: it announces or decides, and names the incarnation of its caller (see ``clock``).
        self._calls: list[tuple[list[Any], dict[str, Any], int | None]] = []

    def put(self, claims: Claims, records: Sequence[bytes]) -> Bytes:
        """Write records as pending; the array holds the fates when the round is carried out."""
        fates = np.zeros(len(claims), np.uint8)
        partitions, buckets = self._layout.record_places(claims)
        heads = np.zeros(len(claims), _PUT)
        heads["claim"], heads["bucket"] = claims, buckets
        heads["length"] = [len(record) for record in records]
        packed = heads.tobytes()
        size = _PUT.itemsize
        for partition, rows in grouped(partitions):
            parts = []
            for row in rows.tolist():
                parts += [packed[row * size : (row + 1) * size], records[row]]
            then = self._put_taker(fates, rows)
            self._send("put", partition, b"".join(parts), then=then, guarded=True)
        return fates

    def register(
        self,
        places: Places,
        claims: Claims,
        records: Sequence[bytes],
        known: Sequence[bytes],
        *,
        ids: Places | None = None,
        compared: tuple[int, ...] = (),
    ) -> Registrations:
        """Register documents whose keys, (documents, tables), are all in one partition.

        Args:
            places: where their keys are kept.
            claims: their claims.
            records: their records.
            known: for each the claims that matter to it no more, spelled.
            ids: where their ids are kept, if they are.
            compared: how to tell that others are not near (see ``RecordFormat.compared``).
        """
        found = Registrations(len(claims))
        tables = places.suffixes.shape[1]
        if ids is not None:
            places = places.beside(ids)
        every = places.suffixes.shape[1]
        most = page_rows(self._store.bound.share)
        arguments = [most, self._layout.suffix_width, tables, every]
        if compared:
            arguments += [self._layout.buckets, *compared, 1]
        rows = packed(places, claims, self._layout.record_places(claims)[1], records, known)
        size = max(1, _ROWS // tables)
        for start in range(0, len(rows), size):
            then = self._registration_taker(found, start)
            some = b"".join(rows[start : start + size])
            self._send("register", 0, some, *arguments, then=then, guarded=True)
        return found

    def probe(
        self, places: Places, claims: Claims, modes: Bytes, limit: int | None = None
    ) -> Found:
        """Look under keys, one row each, and insert as ``modes`` say.

        Finds a page of candidates for each; ``read_on`` goes on after the round, to the limit: the
        share of a key, if none is given.
        """
        limit = limit or self._store.bound.share
        rows = np.zeros(len(claims), self._store.probe_row)
        rows["suffix"], rows["score"] = places.suffixes, places.scores
        rows["claim"], rows["mode"] = claims, modes
        found = Found(places, claims, limit)
        arguments: tuple[int | bytes, ...] = (page_rows(limit), self._layout.suffix_width)
        guarded = bool(modes.any())
        if not guarded:  # who only looks announces nothing, so it names no incarnation
            arguments = (*arguments, b"")
        for partition, index in grouped(places.partitions):
            then = found.taker(index)
            packed = rows[index].tobytes()
            self._send("probe", partition, packed, *arguments, then=then, guarded=guarded)
        return found

    def page(self, found: Found, numbers: Numbers) -> None:
        """Look for more candidates of some of the probes; ``found`` takes them."""
        rows = np.zeros(len(numbers), self._store.page_row)
        rows["suffix"], rows["score"] = found.places.suffixes[numbers], found.places.scores[numbers]
        rows["claim"] = found.claims[numbers]
        rows["after"], limit = found.next_page(numbers)
        for partition, index in grouped(found.places.partitions[numbers], _PAGE_ROWS):
            then = found.taker(numbers[index])
            arguments = (limit, self._layout.suffix_width)
            self._send("page", partition, rows[index].tobytes(), *arguments, then=then)

    def look(self, found: Found, numbers: Numbers) -> None:
        """Look for a page of candidates of some of the probes, or for the next; only reads."""
        rows = np.zeros(len(numbers), self._store.look_row)
        rows["suffix"], rows["score"] = found.places.suffixes[numbers], found.places.scores[numbers]
        rows["after"], limit = found.next_page(numbers)
        for partition, index in grouped(found.places.partitions[numbers]):
            then = found.taker(numbers[index])
            arguments = (limit, self._layout.suffix_width)
            self._send("look", partition, rows[index].tobytes(), *arguments, then=then)

    def read(self, claims: Claims) -> list[bytes]:
        """Read fate and record of each claim; the list is filled when the round is carried out."""
        partitions, rows = self._record_rows(claims)
        values = [b""] * len(claims)
        for partition, index in grouped(partitions):
            self._send("read", partition, rows[index].tobytes(), then=_value_taker(values, index))
        return values

    def settle(self, claims: Claims, fates: Bytes) -> Bytes:
        """Write fates; the array holds those that stand when the round is carried out."""
        partitions, buckets = self._layout.record_places(claims)
        rows = np.zeros(len(claims), _SETTLE)
        rows["claim"], rows["bucket"], rows["fate"] = claims, buckets, fates
        standing = np.zeros(len(claims), np.uint8)
        for partition, index in grouped(partitions):
            then = self._fate_taker(partition, standing, index)
            self._send("settle", partition, rows[index].tobytes(), then=then, guarded=True)
        return standing

    def withdraw(self, places: Places, claims: Claims) -> None:
        """Remove claims from keys, one row each."""
        rows = np.zeros(len(claims), self._store.withdraw_row)
        rows["suffix"], rows["claim"] = places.suffixes, claims
        for partition, index in grouped(places.partitions):
            self._send("withdraw", partition, rows[index].tobytes(), self._layout.suffix_width)

    def forget(self, claims: Claims) -> None:
        """Remove records."""
        partitions, rows = self._record_rows(claims)
        for partition, index in grouped(partitions):
            self._send("forget", partition, rows[index].tobytes())

    def note(self, places: Places, claims: Claims) -> None:
        """Enter claims under keys without looking, one row each."""
        rows = np.zeros(len(claims), self._store.note_row)
        rows["suffix"], rows["score"], rows["claim"] = places.suffixes, places.scores, claims
        for partition, index in grouped(places.partitions):
            packed, width = rows[index].tobytes(), self._layout.suffix_width
            self._send("note", partition, packed, width, guarded=True)

    def renew(self, claims: Claims, times: npt.NDArray[np.float64]) -> None:
        """Move the times of originals forward."""
        partitions, buckets = self._layout.record_places(claims)
        rows = np.zeros(len(claims), _RENEW)
        rows["claim"], rows["bucket"], rows["time"] = claims, buckets, times
        for partition, index in grouped(partitions):
            self._send("renew", partition, rows[index].tobytes())

    def run(self) -> None:
        """Send everything and take the replies.

        Raises:
            LostWritesError: Redis lacks what this worker has written there before.
            ServiceError: some call was not answered; any of them may or may not have been done.
        """
        if not self._receivers:
            return
        if self._store.replicas:
            self._wait_for_replicas()
        marked = self._send_calls()
        with reporting_errors():
            replies = self._pipeline.execute()
        for receive, reply in zip(self._receivers, replies, strict=True):
            receive(reply)
        # Some of them refer to this round: a circle, which would keep what was sent.
        self._receivers.clear()
        marked()

    def _send_calls(self) -> Callable[[], None]:
        """Hand the calls to the client; the returned function notes that they were answered.

        The last guarded call to a partition is the one that is checked, and writes the mark of this
        round: where that stands, all of the round stands. What comes before it may be announced in
        vain, or committed a second time, and is decided anew with the rest.
        """
        last = {
            partition: number
            for number, (_, _, partition) in enumerate(self._calls)
            if partition is not None
        }
        incarnation = self._store.incarnation
        mark = incarnation.begin() if incarnation is not None and last else 0
        for number, (call, options, partition) in enumerate(self._calls):
            if partition is not None:
                checked = incarnation if last[partition] == number else None
                call.append(checked.carried(partition, mark) if checked else b"")
            self._pipeline.execute_command(*call, **options)
        self._calls.clear()
        return lambda: incarnation.written(last, mark) if incarnation else None

    def _wait_for_replicas(self) -> None:
        """Let each node say last, on the connection that wrote, how many replicas have it.

        A fate that was read counts too: a document is attached to it, and whoever has written it
        may not have waited yet. WAIT goes by what its connection has written, so a mark comes last.
        """
        for partition in self._read.values():
            self._send("mark", partition, b"", guarded=True)
        for options in self._written.values():
            wait = ["WAIT", self._store.replicas, self._store.wait_ms]
            self._calls.append((wait, options, None))
            self._receivers.append(self._store.check_replicas)

    def _registration_taker(self, found: Registrations, start: int) -> Callable[[Any], None]:
        def take(reply: Any) -> None:
            fates, packed, self._store.originals[0], ruled_out, fence = reply
            found.take(start, fates, packed)
            found.ruled_out += ruled_out
            self._store.saw_fence(fence)

        return take

    def _fate_taker(self, partition: int, standing: Bytes, index: Numbers) -> Callable[[Any], None]:
        def take(reply: Any) -> None:
            standing[index] = np.frombuffer(reply[0], np.uint8)
            self._store.originals[partition] = reply[1]
            self._store.saw_fence(reply[2])

        return take

    def _put_taker(self, fates: Bytes, index: Numbers) -> Callable[[Any], None]:
        def take(reply: Any) -> None:
            fates[index] = np.frombuffer(reply[0], np.uint8)
            self._store.saw_fence(reply[1])

        return take

    def _record_rows(self, claims: Claims) -> tuple[Numbers, npt.NDArray[Any]]:
        partitions, buckets = self._layout.record_places(claims)
        rows = np.zeros(len(claims), _RECORD)
        rows["claim"], rows["bucket"] = claims, buckets
        return partitions, rows

    def _send(
        self,
        function: str,
        partition: int,
        rows: bytes,
        *arguments: int | bytes,
        then: Callable[[Any], None] = _ignore,
        guarded: bool = False,
    ) -> None:
        key = self._layout.partition_key(partition)
        # Neither of these two keys exists, and that is what they are for. While a slot moves to
        # another node of a Cluster, its keys are on both; a call that named no key, or one, would
        # be served there and see only some. One that names two missing keys is told to try again.
        keys = (key, f"{key}-")
        name = f"{CLAIMS.name}_{function}"
        options = target_of(self._store.client, key)
        call = [self._command, name, len(keys), *keys, rows, *arguments]
        self._calls.append((call, options, partition if guarded else None))
        self._receivers.append(then)
        if self._command == "FCALL":
            if function == "read":
                self._read[str(options)] = partition
            else:
                self._written[str(options)] = options


def read_on(store: RedisStore, found: Found, *, read_only: bool = False) -> None:
    """Go through the further pages of probes that have more candidates than one holds."""
    while len(rows := found.take_unfinished()):
        round_ = Round(store, read_only=read_only)
        go_on = round_.look if read_only else round_.page
        go_on(found, rows)
        round_.run()


def read_all(store: RedisStore, found: Found, documents: Numbers) -> None:
    """Go on with the documents most of whose keys are full (see ``Bound``).

    Args:
        store: the index.
        found: probes of table keys, read up to the share of each.
        documents: whose key each of them is.
    """
    full = found.full
    deep = full[np.isin(documents[full], store.bound.deep(documents[full]))]
    if len(deep):
        found.go_on(deep, store.bound.most)
        read_on(store, found)
