"""Reads a whole index in Redis and checks by brute force what must hold of it (see claims.py).

The claims are read first, the table keys after them. An original is written under all of its keys
before it is committed, so whoever is an original in the first reading must be found complete in the
second, however much the index moves meanwhile. What looks wrong is read again before it is
reported. Nothing is written.

In memory stand the originals (sketch, digest, time and id), a claim number for each other claim,
and a bit for each key read; the keys themselves pass through. All originals that share a table key
are compared with each other, so a key with n originals costs n * n / 2 comparisons.
"""

from __future__ import annotations

import re
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from redis.exceptions import AskError

from stream_dedup.errors import ConfigurationMismatch, ServiceError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import Matcher, duplicate_id
from stream_dedup.index.connection import Client, connect, nodes_of, reporting_errors
from stream_dedup.index.keys import Layout
from stream_dedup.index.pairs import entry_keys
from stream_dedup.index.records import decode_record
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import finalize
from stream_dedup.types import Decision, Document, DocumentId, Status

Claims = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

#: Keys asked for in one pipeline, and members in one reply.
_PAGE = 1000
#: Table entries, and pairs of originals, that are worked on at a time.
_BLOCK = 1 << 16
#: Decisions that are checked at a time.
_DECISIONS = 1000
#: Rows of claims that are no originals.
_PENDING, _VOID, _UNKNOWN = -1, -2, -3
_SPREAD = np.uint64(0x2545F4914F6CDD1D)

_LAYOUT = re.compile(r"1 partitions=(\d+) set_bits=(\d+) buckets=(\d+) ([\d,]+)")


class Violation(msgspec.Struct, frozen=True, order=True):
    """Something that must not be.

    Attributes:
        invariant: I1, I2, I3 or I4.
        detail: what was found.
    """

    invariant: str
    detail: str


class TableCounts(msgspec.Struct, frozen=True):
    """What stands in one table.

    Attributes:
        entries: claims entered.
        keys: different table keys.
        mean: entries of a key.
        fullest: entries of the fullest key.
    """

    entries: int
    keys: int
    mean: float
    fullest: int


class Audit(msgspec.Struct, frozen=True):
    """What an index holds, and what is wrong with it.

    Attributes:
        originals: committed claims.
        pending: claims whose fate was open; some are normal while workers run.
        void: claims that were voided; their records stay.
        entries: claims entered under table keys.
        pending_entries: of these, of pending claims.
        void_entries: of these, of void claims, which nobody has met since.
        unknown_entries: of these, of claims that have no record, also when read again.
        pairs_compared: pairs of originals that share a table key, once for each key.
        decisions: published decisions that were checked.
        other_configuration: published decisions left out, made with other fingerprint settings.
        tables: what stands in each table.
        violations: what is wrong, in order.
    """

    originals: int
    pending: int
    void: int
    entries: int
    pending_entries: int
    void_entries: int
    unknown_entries: int
    pairs_compared: int
    decisions: int
    other_configuration: int
    tables: list[TableCounts]
    violations: list[Violation]


class Published(NamedTuple):
    """A document and the decision that was published about it.

    Attributes:
        name: where it stands, to be named in a violation.
        document: the document.
        decision: its annotation.
    """

    name: str
    document: Document
    decision: Decision


def audit(settings: Settings, published: Iterable[Published] = ()) -> Audit:
    """Check the index of these settings, and the decisions published about it.

    Raises:
        ServiceError: Redis is out of reach, refuses, or has no such index.
        ConfigurationMismatch: the index was built with other fingerprint settings.
    """
    with closing(connect(settings)) as client, reporting_errors():
        return _Auditor(client, settings).run(published)


class _Reader:
    """Reads the keys of an index, without writing."""

    def __init__(self, client: Client, settings: Settings, configuration: str) -> None:
        self.client = client
        self.layout = self._layout(settings.redis_namespace, configuration)

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each claim id with its value; one may come twice."""
        for _, found in self._scan("c", self._hash_page):
            yield from found.items()

    def sets(self) -> Iterator[tuple[bytes, dict[bytes, float]]]:
        """Yield each sorted set's key and members, once."""
        once = _Once(len(self.layout.prefix_bits) << self.layout.set_bits)
        for key, members in self._scan("t", self._set_page):
            table, name = _set_number(key)
            if once.first((table << self.layout.set_bits) + name):
                yield key, members

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

    def _layout(self, namespace: str, configuration: str) -> Layout:
        """Return the layout that the index itself tells."""
        key = f"{namespace}:{{index}}"
        stands: list[Any] = self.client.hmget(key, ["configuration", "layout"])
        match = _LAYOUT.fullmatch((stands[1] or b"").decode())
        if not match:
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
        partitions, set_bits, buckets = map(int, match.group(1, 2, 3))
        bits = tuple(map(int, match[4].split(",")))
        return Layout(namespace, partitions, bits, set_bits, buckets)


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


class _Known:
    """All claims of an index, as their records tell.

    Attributes:
        claims: claim ids, sorted.
        rows: for each claim the row of the original that it is, or what else it is, below 0.
        sketches: of each original.
        digests: of each original, 16 bytes.
        times: of each original.
        ids: document id of each original.
        owners: claim id of each original.
    """

    def __init__(self, records: Iterable[tuple[bytes, bytes]], width: int) -> None:
        claims, rows, owners = bytearray(), array("q"), bytearray()
        sketches, digests, times = bytearray(), bytearray(), array("d")
        self.ids: list[DocumentId] = []
        for claim, value in records:
            claims += claim
            if value[:1] != b"O":
                rows.append(_PENDING if value[:1] == b"P" else _VOID)
                continue
            record = decode_record(value[1:], width)
            rows.append(len(self.ids))
            self.ids.append(record.document_id)
            owners += claim
            sketches += record.sketch
            digests += record.digest
            times.append(record.time)
        # A hash is scanned, not read at once, so a record may have come twice.
        numbers = np.frombuffer(claims, ">u8").astype(np.uint64)
        self.claims, at = np.unique(numbers, return_index=True)
        self.rows: Rows = np.array(rows, np.int64)[at]
        self.owners = np.frombuffer(owners, ">u8").astype(np.uint64)
        self.sketches = np.frombuffer(sketches, np.uint8).reshape(-1, width)
        self.digests = np.frombuffer(digests, "<u8").reshape(-1, 2)
        self.times = np.array(times, np.float64)

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
            return np.full(len(claims), _UNKNOWN, np.int64)
        at = np.minimum(np.searchsorted(self.claims, claims), len(self.claims) - 1)
        return np.where(self.claims[at] == claims, self.rows[at], _UNKNOWN)

    def by_name(self) -> dict[str, int]:
        """Return the row of each original by the name of its duplicate group."""
        return {duplicate_id(self.ids[row], self.digest(row)): row for row in self.originals}


class _Entries:
    """The entries of all table keys, checked as they pass through.

    Attributes:
        kinds: entries of originals (0) and of other claims, by what they are.
        unknown: key and claim id of each entry of an unknown claim.
        seen: (originals, tables), whether the original stands in the table.
        times: how many entries each original has.
        sums: for each original a sum over its table keys, the same as ``sums_of`` gives.
        near: pairs of rows of originals that are near.
        pairs: pairs compared.
    """

    def __init__(self, known: _Known, layout: Layout, matcher: Matcher) -> None:
        self._known = known
        self._matcher = matcher
        self._bits = [max(0, bits - layout.set_bits) for bits in layout.prefix_bits]
        tables, count = len(layout.prefix_bits), len(known.ids)
        self.kinds: Counter[int] = Counter()
        self.unknown: list[tuple[bytes, bytes]] = []
        self.seen = np.zeros((count, tables), np.bool_)
        self.times = np.zeros(count, np.int64)
        self.sums = np.zeros(count, np.uint64)
        self.near: set[tuple[int, int]] = set()
        self.pairs = 0
        self._counts = np.zeros((tables, 3), np.int64)

    def read(self, sets: Iterable[tuple[bytes, dict[bytes, float]]]) -> None:
        """Take in all sorted sets."""
        block: list[tuple[bytes, dict[bytes, float]]] = []
        size = 0
        for one in sets:
            block.append(one)
            size += len(one[1])
            if size >= _BLOCK:
                self._take(block)
                block, size = [], 0
        if size:
            self._take(block)

    def counts(self) -> list[TableCounts]:
        """Return what stands in each table."""
        return [
            TableCounts(entries, keys, round(entries / max(keys, 1), 4), fullest)
            for entries, keys, fullest in self._counts.tolist()
        ]

    def _take(self, block: Sequence[tuple[bytes, dict[bytes, float]]]) -> None:
        members = [claim for _, found in block for claim in found]
        scores = np.array([score for _, found in block for score in found.values()], np.uint64)
        numbers = [(*_set_number(key), len(found)) for key, found in block]
        tables, names, sizes = np.array(numbers, np.int64).T
        tables = np.repeat(tables, sizes)
        shifts = np.array(self._bits, np.uint64)[tables]
        keys = (np.repeat(names, sizes).astype(np.uint64) << shifts) | scores
        rows = self._known.find(np.frombuffer(b"".join(members), ">u8").astype(np.uint64))
        self._note_unknown(rows, np.repeat(np.arange(len(block)), sizes), block, members)
        mine = rows >= 0
        for kind in (_PENDING, _VOID):
            self.kinds[kind] += int(np.count_nonzero(rows == kind))
        self.kinds[0] += int(np.count_nonzero(mine))
        self.seen[rows[mine], tables[mine]] = True
        np.add.at(self.times, rows[mine], 1)
        np.add.at(self.sums, rows[mine], _spread(keys[mine], tables[mine]))
        groups, tables_of = _groups(keys, tables)
        self._count(groups, tables_of)
        self._compare(groups[mine], rows[mine])

    def _note_unknown(
        self,
        rows: Rows,
        sets: Rows,
        block: Sequence[tuple[bytes, dict[bytes, float]]],
        members: Sequence[bytes],
    ) -> None:
        for at in np.flatnonzero(rows == _UNKNOWN).tolist():
            self.unknown.append((block[sets[at]][0], members[at]))

    def _count(self, groups: Rows, tables_of: Rows) -> None:
        """Count the entries of each key; all entries of a key are in one block."""
        sizes = np.bincount(groups, minlength=len(tables_of))
        np.add.at(self._counts[:, 0], tables_of, sizes)
        np.add.at(self._counts[:, 1], tables_of, 1)
        np.maximum.at(self._counts[:, 2], tables_of, sizes)

    def _compare(self, groups: Rows, rows: Rows) -> None:
        """Compare all originals of the same key with each other."""
        order = np.argsort(groups, kind="stable")
        groups, rows = groups[order], rows[order]
        starts = np.arange(len(rows))
        for distance in range(1, len(rows)):
            starts = starts[starts + distance < len(rows)]
            starts = starts[groups[starts + distance] == groups[starts]]
            if not len(starts):
                return
            self.pairs += len(starts)
            self._compare_rows(rows[starts], rows[starts + distance])

    def _compare_rows(self, left: Rows, right: Rows) -> None:
        known, matcher = self._known, self._matcher
        near = matcher.near(known.sketches[left], known.sketches[right])
        near &= matcher.within_window(known.times[left], known.times[right]) & (left != right)
        found = np.sort(np.stack([left[near], right[near]], axis=1), axis=1)
        self.near.update(map(tuple, found.tolist()))


class _Fact(NamedTuple):
    """What is checked of a published decision, without the text.

    Attributes:
        name: where it stands.
        id: document id.
        decision: its annotation.
        digest: of the normalised text.
        sketch: of the text.
        time: event time, if there is one.
        keys: sum over the table keys.
    """

    name: str
    id: DocumentId
    decision: Decision
    digest: bytes
    sketch: npt.NDArray[np.uint8]
    time: float | None
    keys: int

    @property
    def own_name(self) -> str:
        """Name of the duplicate group that this document would begin."""
        return duplicate_id(self.id, self.digest)


class _Decisions:
    """Published decisions, checked against the index.

    Attributes:
        count: decisions checked.
        others: decisions made with another configuration.
        violations: what is wrong.
        missing: decisions whose original is not among those read; it may have come later.
    """

    def __init__(self, fingerprinter: Fingerprinter, matcher: Matcher) -> None:
        self._fingerprinter = fingerprinter
        self._windowed = fingerprinter.settings.window is not None
        self._matcher = matcher
        self._answers: dict[str, tuple[str, bool]] = {}
        self.count = self.others = 0
        self.violations: list[Violation] = []
        self.missing: list[_Fact] = []

    def check(
        self, published: Iterable[Published], known: _Known, sums: npt.NDArray[np.uint64]
    ) -> None:
        """Check all decisions against the originals, whose keys have these sums."""
        names = known.by_name()
        decisions = iter(published)
        while batch := list(islice(decisions, _DECISIONS)):
            facts = self._facts(batch)
            self._check_answers(facts)
            self.missing += self._check_originals(facts, known, names, sums)

    def check_missing(self, known: _Known) -> None:
        """Check once more what was missing, against a later reading."""
        for fact in self._check_originals(self.missing, known, known.by_name(), None):
            self._report_missing(fact)

    def _facts(self, batch: Sequence[Published]) -> list[_Fact]:
        mine = [
            one for one in batch if one.decision.configuration == self._fingerprinter.configuration
        ]
        self.count += len(mine)
        self.others += len(batch) - len(mine)
        prints = self._fingerprinter.fingerprint([one.document.text for one in mine])
        tables = np.arange(prints.keys.shape[1], dtype=np.int64)
        sums = _spread(prints.keys, tables).sum(axis=1, dtype=np.uint64)
        return [
            _Fact(
                one.name,
                one.document.id,
                one.decision,
                prints.digests[row],
                prints.sketches[row],
                one.document.time,
                int(sums[row]),
            )
            for row, one in enumerate(mine)
            if not prints.empty[row]  # an empty text is an original that nothing is compared with
        ]

    def _check_answers(self, facts: Sequence[_Fact]) -> None:
        """I3: one answer for one document, which is an original once at most."""
        for fact in facts:
            name, is_original = fact.decision.duplicate_id, fact.decision.status is Status.ORIGINAL
            own = fact.own_name
            if is_original and (name != own or fact.decision.original_id != fact.id):
                self._report("I3", fact, "is an original, but of another document's group")
            if self._windowed:  # the same text is an original again when the window has passed
                continue
            before, was_original = self._answers.get(own, (name, False))
            if before != name:
                self._report("I3", fact, f"was decided twice: group {before} and group {name}")
            if is_original and was_original:
                self._report("I3", fact, "was published as an original twice")
            self._answers[own] = (before, is_original or was_original)

    def _check_originals(
        self,
        facts: Sequence[_Fact],
        known: _Known,
        names: dict[str, int],
        sums: npt.NDArray[np.uint64] | None,
    ) -> list[_Fact]:
        """I2, and that originals stand in the index; return the decisions of unknown originals."""
        missing, found = [], []
        for fact in facts:
            row = names.get(fact.decision.duplicate_id)
            if row is None or known.ids[row] != fact.decision.original_id:
                missing.append(fact)
            elif fact.decision.status is not Status.ORIGINAL:
                found.append((fact, row))
            elif sums is not None and fact.keys != int(sums[row]):
                self._report("I4", fact, "is an original that does not stand under all its keys")
        self._check_near(found, known)
        return missing

    def _check_near(self, found: Sequence[tuple[_Fact, int]], known: _Known) -> None:
        if not found:
            return
        rows = np.array([row for _, row in found], np.int64)
        sketches = np.stack([fact.sketch for fact, _ in found])
        near = self._matcher.near(sketches, known.sketches[rows])
        times = known.times[rows]
        mine = [fact.time for fact, _ in found]
        mine = [t if t is not None else other for t, other in zip(mine, times, strict=True)]
        inside = self._matcher.within_window(np.array(mine, np.float64), times)
        for (fact, row), alike, close in zip(found, near, inside, strict=True):
            original = fact.decision.original_id
            equal = fact.digest == known.digest(row)
            if not close or not (alike or equal):
                self._report("I2", fact, f"is not near its original {original}")
            elif equal != (fact.decision.status is Status.EXACT_DUPLICATE):
                self._report("I2", fact, f"is no {fact.decision.status} of {original}")

    def _report_missing(self, fact: _Fact) -> None:
        if fact.decision.status is Status.ORIGINAL:
            self._report("I3", fact, "is an original, but not in the index")
        else:
            original = fact.decision.original_id
            self._report("I2", fact, f"has {original} for its original, which is not in the index")

    def _report(self, invariant: str, fact: _Fact, what: str) -> None:
        self.violations.append(Violation(invariant, f"{fact.name}: document {fact.id} {what}"))


class _Auditor:
    """One audit."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._fingerprinter = Fingerprinter(settings)
        method = self._fingerprinter.method
        self._matcher = Matcher(method, settings.window)
        self._width = method.sketch_bytes
        self._pause = max(0.2, 2 * settings.claim_grace)
        self._reader = _Reader(client, settings, self._fingerprinter.configuration)

    def run(self, published: Iterable[Published]) -> Audit:
        """Read everything and check it."""
        known = self._known()
        entries = self._entries(known)
        decisions = _Decisions(self._fingerprinter, self._matcher)
        decisions.check(published, known, entries.sums)
        if decisions.missing:
            decisions.check_missing(self._known())
        violations = [*self._near(known, entries), *self._incomplete(known, entries)]
        unknown = self._still_unknown(entries.unknown)
        kinds = entries.kinds
        return Audit(
            originals=len(known.originals),
            pending=known.count(_PENDING),
            void=known.count(_VOID),
            entries=kinds.total() + len(entries.unknown),
            pending_entries=kinds[_PENDING],
            void_entries=kinds[_VOID],
            unknown_entries=unknown,
            pairs_compared=entries.pairs,
            decisions=decisions.count,
            other_configuration=decisions.others,
            tables=entries.counts(),
            violations=sorted([*violations, *decisions.violations]),
        )

    def _known(self) -> _Known:
        return _Known(self._reader.records(), self._width)

    def _entries(self, known: _Known) -> _Entries:
        entries = _Entries(known, self._reader.layout, self._matcher)
        entries.read(self._reader.sets())
        return entries

    def _near(self, known: _Known, entries: _Entries) -> Iterator[Violation]:
        """I1: no two originals are near each other."""
        pairs = sorted(entries.near | self._equal(known))
        rows = sorted({row for pair in pairs for row in pair})
        values = self._reader.values(known.owners[rows])
        standing = {row for row, value in zip(rows, values, strict=True) if value[:1] == b"O"}
        for left, right in pairs:
            if {left, right} <= standing:
                one, other = (_named(known, row) for row in (left, right))
                yield Violation("I1", f"originals {one} and {other} are near")

    def _equal(self, known: _Known) -> set[tuple[int, int]]:
        """Return pairs of originals with equal texts, neighbours in time."""
        rows = np.sort(known.originals)
        digests = known.digests[rows]
        order = rows[np.lexsort((known.times[rows], digests[:, 1], digests[:, 0]))]
        left, right = order[:-1], order[1:]
        same = (known.digests[left] == known.digests[right]).all(axis=1)
        same &= self._matcher.within_window(known.times[left], known.times[right])
        pairs = np.sort(np.stack([left[same], right[same]], axis=1), axis=1)
        return {(one, other) for one, other in pairs.tolist()}

    def _incomplete(self, known: _Known, entries: _Entries) -> Iterator[Violation]:
        """I4: an original stands under one key of each table."""
        tables = entries.seen.shape[1]
        rows = known.originals
        wrong = rows[~entries.seen[rows].all(axis=1) | (entries.times[rows] != tables)]
        if not len(wrong):
            return
        # Keys that move to another node may be passed by, so what either reading saw is there.
        again = self._entries(known)
        seen = entries.seen[wrong] | again.seen[wrong]
        times = np.minimum(entries.times[wrong], again.times[wrong])
        for row, missing, count in zip(wrong.tolist(), (~seen).sum(axis=1), times, strict=True):
            if missing:
                detail = f"is missing from {missing} of {tables} tables"
            elif count > tables:
                detail = f"stands under {count} keys of {tables} tables"
            else:
                continue
            yield Violation("I4", f"original {_named(known, row)} {detail}")

    def _still_unknown(self, entries: list[tuple[bytes, bytes]]) -> int:
        """Count the entries of claims that have no record, now and after a moment."""
        for wait in (0.0, self._pause):
            if not entries:
                break
            time.sleep(wait)
            claims = np.frombuffer(b"".join(claim for _, claim in entries), ">u8")
            values = self._reader.values(claims.astype(np.uint64))
            entries = [one for one, value in zip(entries, values, strict=True) if not value]
            stand = self._reader.stand(entries)
            entries = [one for one, stands in zip(entries, stand, strict=True) if stands]
        return len(entries)


def _named(known: _Known, row: int) -> str:
    return f"{known.ids[row]} (claim {int(known.owners[row]):016x})"


def _set_number(key: bytes) -> tuple[int, int]:
    """Return the table and the leading bits that a sorted set's key spells."""
    table, _, name = key.rpartition(b"}:t")[2].partition(b":")
    return int(table, 16), int(name, 16)


def _spread(keys: Claims, tables: Rows) -> Claims:
    """Mix table keys, so that a sum of them tells which they are."""
    width = int(tables.max(initial=0)) + 1
    factors = entry_keys(np.zeros((1, width), np.uint64))[0]
    return finalize(keys ^ factors[tables], _SPREAD)


def _groups(keys: Claims, tables: Rows) -> tuple[Rows, Rows]:
    """Number the different table keys: the number of each entry, the table of each number."""
    order = np.lexsort((keys, tables))
    ordered, ordered_tables = keys[order], tables[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = (ordered[1:] != ordered[:-1]) | (ordered_tables[1:] != ordered_tables[:-1])
    groups = np.empty(len(keys), np.int64)
    groups[order] = np.cumsum(first) - 1
    return groups, ordered_tables[first]
