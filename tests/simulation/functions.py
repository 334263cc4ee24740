"""A Redis with the library of Functions, in Python, and a client of it.

``tests/integration/test_simulated_redis.py`` holds the Functions here to those in claims.lua: the
same calls get the same replies. Only those are here that a worker calls; of a sweep there is only
what it does to records and fences, in one piece, and with fewer than ``PAGE`` claims under any key
there are no further pages.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from redis.exceptions import ResponseError

from stream_dedup.index.keys import ClaimIds

#: Members of a sorted set by their scores of 16 digits; a hash.
Table = dict[bytes, bytes]

_PUT = struct.Struct("<8sII")
_RECORD = struct.Struct("<8sI")
_SETTLE = struct.Struct("<8sIc")
_REGISTER = struct.Struct("<8sII")
_INCARNATION = struct.Struct("<8sIQQ")
_NO_FENCE = bytes(8)


class Functions:
    """The state of one Redis (or one Cluster), and the Functions upon it.

    Attributes:
        tables: sorted sets and hashes by key.
        originals: the counter of originals of each partition.
        events: what claims went through.
    """

    def __init__(self) -> None:
        self.tables: dict[bytes, Table] = {}
        self.originals: dict[bytes, int] = {}
        self.index: dict[str, str] = {}
        self.fences: dict[bytes, bytes] = {}
        #: Tokens of incarnations by worker number.
        self.tokens: dict[int, bytes] = {}
        self.clock = 0
        self.events: Counter[str] = Counter()
        self.workers = 0
        #: What each write replaced, the latest last; what a failover loses.
        self._journal: list[tuple[bytes, bytes, bytes | None]] = []

    def call(self, function: str, key: bytes, *arguments: Any) -> Any:
        """Call a function on a partition, or on the index."""
        return getattr(self, function)(key, *arguments)

    def lose(self, writes: int) -> None:
        """Take back the latest writes, as a failover to a replica that was behind does."""
        for _ in range(min(writes, len(self._journal))):
            name, field, before = self._journal.pop()
            if before is None:
                self.tables[name].pop(field, None)
            else:
                self.tables[name][field] = before

    def snapshot(self) -> dict[str, Any]:
        """Return all that Redis would write down."""
        kept = {*vars(self)} - {"events"}
        return deepcopy({name: value for name, value in vars(self).items() if name in kept})

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to what was written down."""
        vars(self).update(deepcopy(snapshot))

    def enter(
        self, _key: bytes, configuration: str, layout: str, clock: str, time: float, token: bytes
    ) -> list[Any]:
        """See ``enter`` in claims.lua; ``time`` is the earlier one of both times of day."""
        begins = int("configuration" not in self.index)
        stands = [self.index.setdefault("configuration", configuration).encode()]
        stands.append(self.index.setdefault("layout", layout).encode())
        self.workers += 1
        self.tokens[self.workers] = token
        return [*stands, self.workers, self._move(clock, time), begins]

    def advance(
        self, _key: bytes, _watermark: str, clock: str, time: float, number: int, token: bytes
    ) -> list[Any]:
        """See ``advance`` in claims.lua; there is no window, so no watermark."""
        if self.tokens.get(number) != token:
            raise self._lost()
        return [b"", self._move(clock, time)]

    def sweep(self, prefixes: list[bytes], time: float, longest_attempt: float) -> None:
        """Do to records and fences what a sweep does, which brings no clock of its own."""
        fence = ClaimIds.first_at(int(self._move("0", time)) / 1000 - longest_attempt)
        self.events["sweep"] += 1
        for prefix in prefixes:
            self.fences[prefix] = max(self.fences.get(prefix, _NO_FENCE), fence.to_bytes(8, "big"))
            for name, table in self.tables.items():
                if name.startswith(prefix + b"c"):
                    for claim in [one for one, value in table.items() if value[:1] != b"O"]:
                        if self._is_fenced(prefix, claim):
                            self._drop(name, claim)

    def mark(self, prefix: bytes, _rows: bytes, incarnation: bytes) -> bytes:
        """See ``mark`` in claims.lua."""
        self._check(prefix, incarnation)
        return b"OK"

    def forgot(self, _key: bytes, _count: int) -> bytes:
        """See ``forgot`` in claims.lua; only sweeps ask for the count."""
        return b"OK"

    def probe(
        self, prefix: bytes, rows: bytes, limit: int, width: int, incarnation: bytes
    ) -> list[bytes]:
        """See ``probe`` in claims.lua."""
        self._check(prefix, incarnation)
        found = []
        for number, (suffix, score, claim, mode) in enumerate(
            struct.iter_unpack(f"<{width}s16s8sB", rows)
        ):
            key = prefix + suffix
            others = [one for one in self._members(key, score, limit) if one != claim]
            found += [struct.pack("<I", number) + one for one in others]
            if mode == 2 or (mode == 1 and not others):
                self._set(key, claim, score)
        return [b"".join(found), b""]

    def register(  # noqa: PLR0917 - as in claims.lua
        self,
        prefix: bytes,
        rows: bytes,
        limit: int,
        width: int,
        tables: int,
        every: int,
        *rest: Any,
    ) -> list[Any]:
        """See ``register`` in claims.lua."""
        compared, incarnation = rest[:-1], rest[-1]
        self._check(prefix, incarnation)
        fates, found, committed, ruled_out = b"", [], 0, 0
        for number, (claim, bucket, known, record, places) in enumerate(
            _registrations(rows, width, every)
        ):
            passed = {claim} | {known[at : at + 8] for at in range(0, len(known), 8)}
            seen: list[bytes] = []
            for suffix, score in places[:tables]:
                for other in self._members(prefix + suffix, score, limit):
                    if other in passed:
                        continue
                    passed.add(other)
                    if compared and self._is_far(prefix, record, other, *compared[:4]):
                        ruled_out += 1
                    else:
                        seen.append(other)
            found += [struct.pack("<I", number) + other for other in seen]
            if seen:
                fates += b"M"
                continue
            if self._is_fenced(prefix, claim):
                fates += b"V"
                continue
            bucket_key = b"%sc%d" % (prefix, bucket)
            if claim in self.tables.get(bucket_key, {}):
                fates += self._stands(self.tables[bucket_key][claim], record)
                continue
            self._set(bucket_key, claim, b"O" + record)
            for suffix, score in places:
                self._set(prefix + suffix, claim, score)
            fates += b"O"
            committed += 1
        reply = [fates, b"".join(found), self._count(prefix, committed), ruled_out]
        return [*reply, self.fences.get(prefix, _NO_FENCE)]

    def put(self, prefix: bytes, rows: bytes, incarnation: bytes) -> list[bytes]:
        """See ``put`` in claims.lua."""
        self._check(prefix, incarnation)
        at, fates = 0, b""
        while at < len(rows):
            claim, bucket, length = _PUT.unpack_from(rows, at)
            at += _PUT.size + length
            key = b"%sc%d" % (prefix, bucket)
            record, stands = rows[at - length : at], self.tables.get(key, {}).get(claim)
            if self._is_fenced(prefix, claim):
                fates += b"V"
            elif stands is None:
                self._set(key, claim, b"P" + record)
                fates += b"P"
            else:
                fates += self._stands(stands, record)
        return [fates, self.fences.get(prefix, _NO_FENCE)]

    def read(self, prefix: bytes, rows: bytes) -> bytes:
        """See ``read`` in claims.lua."""
        values = [
            self.tables.get(b"%sc%d" % (prefix, bucket), {}).get(claim)
            or (b"V" if self._is_fenced(prefix, claim) else b"")
            for claim, bucket in _RECORD.iter_unpack(rows)
        ]
        return b"".join(struct.pack("<I", len(value)) + value for value in values)

    def settle(self, prefix: bytes, rows: bytes, incarnation: bytes) -> list[Any]:
        """See ``settle`` in claims.lua."""
        self._check(prefix, incarnation)
        fates, committed = b"", 0
        for claim, bucket, fate in _SETTLE.iter_unpack(rows):
            key = b"%sc%d" % (prefix, bucket)
            value = self.tables.get(key, {}).get(claim, b"")
            stands = value[:1]
            if fate == b"O" and stands == b"V":
                self.events["claim found void at its commit"] += 1
            if not value and self._is_fenced(prefix, claim):
                self.events["claim behind the fence"] += 1
                stands = b"V"
            elif not value or (stands == b"P" and fate == b"V"):
                self.events["claim voided"] += 1
                stands = b"V"
                self._set(key, claim, b"V")
            elif stands == b"P":
                stands = b"O"
                self._set(key, claim, b"O" + value[1:])
                committed += 1
            fates += stands
        return [fates, self._count(prefix, committed), self.fences.get(prefix, _NO_FENCE)]

    def withdraw(self, prefix: bytes, rows: bytes, width: int) -> bytes:
        """See ``withdraw`` in claims.lua."""
        for suffix, claim in struct.iter_unpack(f"<{width}s8s", rows):
            self._drop(prefix + suffix, claim)
        return b"OK"

    def forget(self, prefix: bytes, rows: bytes) -> bytes:
        """See ``forget`` in claims.lua."""
        for claim, bucket in _RECORD.iter_unpack(rows):
            self._drop(b"%sc%d" % (prefix, bucket), claim)
        return b"OK"

    def note(self, prefix: bytes, rows: bytes, width: int, incarnation: bytes) -> bytes:
        """See ``note`` in claims.lua."""
        self._check(prefix, incarnation)
        for suffix, score, claim in struct.iter_unpack(f"<{width}s16s8s", rows):
            self._set(prefix + suffix, claim, score)
        return b"OK"

    def retire(self, prefix: bytes, rows: bytes) -> bytes:
        """See ``retire`` in claims.lua."""
        fates = b""
        for claim, bucket in _RECORD.iter_unpack(rows):
            key = b"%sc%d" % (prefix, bucket)
            fate = self.tables.get(key, {}).get(claim, b"-")[:1]
            if fate == b"O":
                self._set(key, claim, b"V")
                self._count(prefix, -1)
            fates += fate
        return fates

    def _members(self, key: bytes, score: bytes, limit: int) -> list[bytes]:
        entries = self.tables.get(key)
        if not entries:
            return []
        found = sorted(claim for claim, one in entries.items() if one == score)
        assert len(found) < limit, "a simulated key never has a page of claims"
        return found

    def _is_far(  # noqa: PLR0917 - as in claims.lua
        self,
        prefix: bytes,
        record: bytes,
        claim: bytes,
        buckets: int,
        at: int,
        size: int,
        most: int,
    ) -> bool:
        number = int.from_bytes(claim, "big")
        value = self.tables.get(b"%sc%d" % (prefix, _bucket_of(number, buckets)), {}).get(claim)
        if not value or value[:1] == b"V":
            return False
        mine = int.from_bytes(record[at - 1 : at - 1 + size], "little")
        other = int.from_bytes(value[at : at + size], "little")
        return (mine ^ other).bit_count() > most

    def _stands(self, value: bytes, record: bytes) -> bytes:
        fate = _fate_of(value, record)
        self.events["id taken"] += fate == b"T"
        return fate

    def _is_fenced(self, prefix: bytes, claim: bytes) -> bool:
        return claim < self.fences.get(prefix, _NO_FENCE)

    def _check(self, prefix: bytes, incarnation: bytes) -> None:
        """Do what ``is_lost`` in claims.lua does."""
        if not incarnation:
            return
        token, number, known, mark = _INCARNATION.unpack(incarnation)
        key, field = prefix + b"w", b"%d" % number
        stands = self.tables.get(key, {}).get(field, b"")
        last = int(stands[8:]) if stands[:8] == token else 0
        if last < known:
            raise self._lost()
        if last < mark:
            self._set(key, field, token + b"%d" % mark)

    def _lost(self) -> ResponseError:
        self.events["lost writes noticed"] += 1
        return ResponseError("LOST Redis lacks writes that it had carried out")

    def _move(self, clock: str, time: float) -> bytes:
        """Do what ``clock`` in claims.lua does."""
        self.clock = max(self.clock, int(clock), int(time))
        return b"%d" % self.clock

    def _count(self, prefix: bytes, more: int) -> int:
        self.originals[prefix] = self.originals.get(prefix, 0) + more
        return self.originals[prefix]

    def _set(self, name: bytes, field: bytes, value: bytes) -> None:
        table = self.tables.setdefault(name, {})
        self._journal.append((name, field, table.get(field)))
        table[field] = value

    def _drop(self, name: bytes, field: bytes) -> None:
        table = self.tables.get(name, {})
        if field in table:
            self._journal.append((name, field, table.pop(field)))


def _fate_of(value: bytes, record: bytes) -> bytes:
    """Do what ``fate_of`` in claims.lua does."""
    same = value[1:9] == record[:8] and value[17:33] == record[16:32]
    return value[:1] if same or value[:1] == b"V" else b"T"


def _bucket_of(claim: int, buckets: int) -> int:
    """Do what ``bucket_of`` in claims.lua and ``record_places`` in keys.py do."""
    mask, times = (1 << 64) - 1, 0xD6E8FEB86659FD93
    mixed = claim ^ 0x5851F42D4C957F2D
    for _ in range(2):
        mixed = (mixed ^ (mixed >> 32)) * times & mask
    mixed ^= mixed >> 32
    return (mixed >> 24) % buckets


def _registrations(
    rows: bytes, width: int, every: int
) -> Iterator[tuple[bytes, int, bytes, bytes, list[tuple[bytes, bytes]]]]:
    """Yield claim, bucket, known claims, record, and suffix and score of each place."""
    place = struct.Struct(f"<{width}s16s")
    at = 0
    while at < len(rows):
        claim, bucket, length = _REGISTER.unpack_from(rows, at)
        at += _REGISTER.size
        known = rows[at : at + length]
        at += length + 4
        (length,) = struct.unpack_from("<I", rows, at - 4)
        record = rows[at : at + length]
        at += length
        end = at + every * place.size
        yield claim, bucket, known, record, list(place.iter_unpack(rows[at:end]))
        at = end
