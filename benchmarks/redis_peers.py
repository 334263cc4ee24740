"""The Redis index beside datasketch's, and beside the same work in plain commands."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from benchmarks import documents
from benchmarks.peers import ask, least
from benchmarks.processes import one_cpu
from benchmarks.redis_index import BATCH, claim, cpu_told, originals_of, prepare, server_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.generate import GeneratedDocument
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.pairs import near_pairs, shares_earlier
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from tests.services.redis import RedisServer

#: Ways of ours and of datasketch, by name: documents in a call, and more settings or the peer.
OURS: dict[str, tuple[int, dict[str, int]]] = {
    "stream-dedup": (BATCH, {}),
    "stream-dedup, rows = 5": (BATCH, {"rows": 5}),
    "stream-dedup, rows = 4": (BATCH, {"rows": 4}),
    "stream-dedup, rows = 3": (BATCH, {"rows": 3}),
    "stream-dedup, one a call": (1, {}),
}
PEERS = {
    "datasketch": (BATCH, "datasketch-redis-batches"),
    "datasketch, one a call": (1, "datasketch-redis"),
    "datasketch, one a call, asyncio": (1, "datasketch-redis-async"),
}
#: Shares of copies that Functions and plain commands are measured with.
SHARES = (0.0, 0.5)
#: We and whom we stand beside take turns so often.
ROUNDS = 3
#: How peers cut texts (see ``in_memory``).
SHINGLE = "space:3"


class Beside(NamedTuple):
    """What a way of doing it took for some documents, in seconds.

    Attributes:
        documents: how many.
        seconds: by the clock.
        client: CPU time of the client.
        server: the same of Redis.
        found: what was found.
        version: of a peer.
    """

    documents: int
    seconds: float
    client: float
    server: float
    found: documents.Found
    version: str = ""

    @property
    def cpu(self) -> float:
        """CPU time of both sides."""
        return self.client + self.server

    def micros(self, seconds: float) -> float:
        """Return seconds as microseconds for a document."""
        return seconds / self.documents * 1e6


def cpu_of(result: Beside | None) -> float:
    """Return the CPU time of a run."""
    return 0.0 if result is None else result.cpu


def measure(options: argparse.Namespace) -> Report:
    """Measure datasketch beside ours, then Functions beside plain commands."""
    peers, versions = _beside_datasketch(options.documents)
    return Report("Redis beside others", [peers, _beside_commands(options.filling)], versions)


def _beside_datasketch(count: int) -> tuple[Table, dict[str, str]]:
    stream = documents.stream(count, seed=3)
    versions = {}
    with RedisServer() as server, tempfile.TemporaryDirectory() as folder:
        with server.client() as client:
            versions["Redis"] = str(client.info("server")["redis_version"])
        path = Path(folder) / "documents.jsonl"
        documents.write(path, stream)
        runs: dict[str, Callable[[], Beside | None]] = {}
        for name, (size, more) in OURS.items():
            runs[name] = partial(_decide, server, stream, size, more)
        for name, (size, peer) in PEERS.items():
            runs[name] = partial(_ask, server, path, stream, peer, size)
        done = least(ROUNDS, runs, cpu_of)
    beside = {size: done[name] for name, (size, more) in OURS.items() if not more}
    rows = [_row(name, done[name], None) for name in OURS]
    rows += [_row(name, done[name], beside[size]) for name, (size, _) in PEERS.items()]
    for one in done.values():
        if one is not None and one.version:
            versions["datasketch"] = one.version
    note = (
        f"Fingerprint, look up, verify and insert {count:,} generated documents with 30 % copies "
        f"into an empty Redis on the same machine, {BATCH:,} documents a call or one. Documents "
        "per second by the clock; CPU time of client and server for a document. "
        "datasketch has 16 bands of 6 values as we have, its shingles are cut in Python; its "
        "signatures for verification stay in its own memory, ours are in Redis. It documents "
        "sessions for many insertions, which a batch uses; for many queries its storage has a "
        "pipeline (`getmany`), which its index does not offer. It is not safe with several "
        "writers, ours is. *Times* is a peer's figure beside ours of as many documents a call: "
        f"of rates, and of the CPU time of both sides. In turns, {ROUNDS} rounds, the best counts. "
        "*Found*, *near found* and *wrong* as in memory."
    )
    header = columns("library", "documents|,d", "documents/s|,.0f", "client µs|,.1f")
    header += columns("server µs|,.1f", "times ours|.2f", "times ours, CPU time|.2f")
    header += columns("found|.2%", "near found|.2%", "wrong|.2%")
    return Table("Beside datasketch on Redis", note, header, rows), versions


def _decide(
    server: RedisServer, stream: Sequence[GeneratedDocument], size: int, more: dict[str, int]
) -> Beside:
    """Fingerprint and claim, one batch after another."""
    server.flush()
    settings = Settings.model_validate({"redis_url": server.url, **more})
    fingerprinter = Fingerprinter(settings)
    with closing(RedisIndex.connect(settings)) as index, one_cpu():
        clock, cpu = time.perf_counter(), time.process_time()
        claimed = claim(index, prepare(fingerprinter, stream, "compare", size))
        seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
    found = documents.score(stream, originals_of(claimed))
    return Beside(len(stream), seconds, cpu, claimed.server, found)


def _ask(
    server: RedisServer, path: Path, stream: Sequence[GeneratedDocument], peer: str, size: int
) -> Beside | None:
    server.flush()
    port = str(urlsplit(server.url).port)
    with server.client() as client:
        before = cpu_told(client.info("cpu"))
        more = ("--redis-port", port, "--batch", str(size), "--shingle", SHINGLE)
        figure = ask(peer, "decide", path, *more)
        served = cpu_told(client.info("cpu")) - before
    if figure is None:
        return None
    attached = [None if at is None else stream[at].id for at in figure.attached]
    found = documents.score(stream, attached)
    return Beside(len(stream), figure.seconds, figure.cpu, served, found, figure.version)


def _row(name: str, one: Beside | None, ours: Beside | None) -> Row:
    if one is None:
        return [name, None, "not installed", *[None] * 7]
    ratios = [None, None] if ours is None else [one.seconds / ours.seconds, one.cpu / ours.cpu]
    rate = one.documents / one.seconds
    micros = [one.micros(one.client), one.micros(one.server)]
    return [name, one.documents, rate, *micros, *ratios, *one.found]


class PlainClaims:
    """What a claim does, by commands in pipelines: not atomic, so for one writer only.

    The same keys, records and verification; what the batch has in common is found in memory.
    """

    def __init__(self, index: RedisIndex, *, counting: bool) -> None:
        """Take an index, and whether to count members of a key before they are listed."""
        self._index = index
        self._prefix = index.store.layout.partition_key(0).encode()
        self._counting = counting

    def claim(self, batch: IndexBatch) -> list[int | None]:
        """Return the claim of each document's original; register those that have none."""
        index = self._index
        keys, scores = self._spelled(index.store.layout.place(batch.prints.keys))
        attached = self._known(batch, self._look(keys, scores))
        rows = np.flatnonzero(np.array([one is None for one in attached]))
        ids = index.mint(len(batch))
        within: set[int] = set()
        if shares_earlier(batch.prints.keys[rows]).any():
            near = near_pairs(batch, rows, index.matcher)
            pairs = zip(near.later.tolist(), near.earlier.tolist(), strict=True)
            for row, earlier in sorted(pairs):
                if earlier not in within and attached[row] is None:
                    attached[row] = int(ids[earlier])
                    within.add(row)
        originals = [row for row in rows.tolist() if row not in within]
        self._enter(batch, originals, ids, keys, scores)
        return attached

    def _spelled(self, places: Any) -> tuple[list[list[bytes]], list[list[bytes]]]:
        keys = np.char.add(self._prefix, places.suffixes).tolist()
        return keys, places.scores.tolist()

    def _pipeline(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        with self._index.store.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            done: list[Any] = pipe.execute() if len(pipe) else []
        return done

    def _look(self, keys: list[list[bytes]], scores: list[list[bytes]]) -> list[set[bytes]]:
        """Return whom each document shares a key with."""
        places = [
            (row, key, score)
            for row, (mine, at) in enumerate(zip(keys, scores, strict=True))
            for key, score in zip(mine, at, strict=True)
        ]
        if self._counting:
            counts = self._pipeline(("ZCOUNT", key, score, score) for _, key, score in places)
            places = [place for place, count in zip(places, counts, strict=True) if count]
        found: list[set[bytes]] = [set() for _ in keys]
        commands = (("ZRANGEBYSCORE", key, score, score) for _, key, score in places)
        for (row, _, _), members in zip(places, self._pipeline(commands), strict=True):
            found[row].update(members)
        return found

    def _known(self, batch: IndexBatch, met: list[set[bytes]]) -> list[int | None]:
        """Read and verify whom documents met; return the earliest that is near each."""
        index = self._index
        claims = sorted({claim for one in met for claim in one})
        numbers = np.array([int.from_bytes(claim) for claim in claims], np.uint64)
        values = self._pipeline(
            ("HGET", bucket, claim)
            for bucket, claim in zip(self._buckets(numbers), claims, strict=True)
        )
        records = {
            claim: index.records.decode(value[1:])
            for claim, value in zip(claims, values, strict=True)
        }
        attached: list[int | None] = [None] * len(met)
        pairs = [(row, claim) for row, one in enumerate(met) for claim in sorted(one)]
        if pairs:
            mine = batch.prints.evidence.rows(np.array([row for row, _ in pairs], np.int64))
            theirs = index.records.evidence([records[claim] for _, claim in pairs])
            _, near = index.matcher.compare(mine, theirs)
            for (row, claim), is_near in zip(pairs, near.tolist(), strict=True):
                if is_near and attached[row] is None:
                    attached[row] = int.from_bytes(claim)
        return attached

    def _buckets(self, claims: Any) -> list[bytes]:
        _, buckets = self._index.store.layout.record_places(claims)
        return [b"%sc%d" % (self._prefix, bucket) for bucket in buckets.tolist()]

    def _enter(
        self,
        batch: IndexBatch,
        rows: Sequence[int],
        ids: Any,
        keys: list[list[bytes]],
        scores: list[list[bytes]],
    ) -> None:
        """Write record and entries of each original, that of its id too."""
        if not rows:
            return
        chosen = np.array(rows, np.int64)
        originals, claims = batch.rows(chosen), ids[chosen]
        members = [int(claim).to_bytes(8) for claim in claims.tolist()]
        records = self._index.records.encode(originals)
        named = self._index.store.layout.place_ids(originals.ids)

        def commands() -> Iterator[tuple[Any, ...]]:
            id_keys, id_scores = self._spelled(named)
            buckets = self._buckets(claims)
            for at, (row, member) in enumerate(zip(rows, members, strict=True)):
                yield "HSETNX", buckets[at], member, b"O" + records[at]
                for key, score in zip(keys[row], scores[row], strict=True):
                    yield "ZADD", key, score, member
                yield "ZADD", id_keys[at], id_scores[at], member

        self._pipeline(commands())


def _beside_commands(originals: int) -> Table:
    fingerprinter = Fingerprinter(Settings())
    filling = documents.stream(originals, duplicates=0, seed=2)
    filled = prepare(fingerprinter, filling, "filling")
    rows: list[Row] = []
    for share in SHARES:
        for size, count in ((BATCH, 4 * BATCH), (1, 500)):
            # Copies of what is in the index already, but for the last ones.
            stream = documents.stream(count, duplicates=share, distance=count, seed=5)
            batches = prepare(fingerprinter, stream, f"share {share}", size)
            progress(f"{share:.0%} copies, {size} a call")
            rows += _ways(filled, stream, batches, f"{share:.0%} copies, {size:,} a call")
    note = (
        f"The same work on an index of {originals:,} originals, fingerprints made before: probe 16 "
        "keys, read and verify whom they lead to, and write an original's record, its 16 entries "
        "and that of its id. *Functions* is what the index does, atomically for each document, so "
        "any number of workers may claim at once. *Commands* does it by ZRANGEBYSCORE, HGET, "
        "HSETNX and ZADD in pipelines, two or three round trips for a batch; *counted* lists only "
        "keys where ZCOUNT found somebody. It is right for a single writer only, and costs what it "
        "costs with redis-py without hiredis, as the index has it. Microseconds of CPU time for a "
        f"document; in turns, {ROUNDS} rounds, the best counts."
    )
    header = columns("documents", "way", "client µs|.1f", "server µs|.1f", "both µs|.1f")
    header += columns("times Functions|.2f", "by the clock µs|.1f", "found|.2%")
    return Table("Functions beside plain commands", note, header, rows)


def _ways(
    filled: Sequence[IndexBatch],
    stream: Sequence[GeneratedDocument],
    batches: Sequence[IndexBatch],
    name: str,
) -> list[Row]:
    with RedisServer() as server:
        runs: dict[str, Callable[[], Beside]] = {
            "Functions": partial(_by_functions, server, filled, stream, batches),
            "commands": partial(_by_commands, server, filled, stream, batches, counting=False),
            "commands, counted": partial(
                _by_commands, server, filled, stream, batches, counting=True
            ),
        }
        done = least(ROUNDS, runs, cpu_of)
    rows: list[Row] = []
    for way, one in done.items():
        client, served, both = map(one.micros, (one.client, one.server, one.cpu))
        times = None if way == "Functions" else one.cpu / done["Functions"].cpu
        found = one.found.duplicates if name[0] != "0" else None
        clock = one.micros(one.seconds)
        rows.append([name, way, client, served, both, times, clock, found])
    return rows


def _filled(server: RedisServer, filled: Sequence[IndexBatch]) -> RedisIndex:
    server.flush()
    originals = sum(map(len, filled))
    settings = Settings(redis_url=server.url, expected_originals=originals)
    index = RedisIndex.connect(settings)
    for batch in filled:
        index.register(batch)
    return index


def _by_functions(
    server: RedisServer,
    filled: Sequence[IndexBatch],
    stream: Sequence[GeneratedDocument],
    batches: Sequence[IndexBatch],
) -> Beside:
    with closing(_filled(server, filled)) as index, one_cpu():
        done = claim(index, batches)
    found = documents.score(stream, originals_of(done))
    return Beside(len(stream), done.seconds, done.client, done.server, found)


def _by_commands(
    server: RedisServer,
    filled: Sequence[IndexBatch],
    stream: Sequence[GeneratedDocument],
    batches: Sequence[IndexBatch],
    *,
    counting: bool,
) -> Beside:
    attached: list[int | None] = []
    with closing(_filled(server, filled)) as index, one_cpu():
        plain = PlainClaims(index, counting=counting)
        server_time, clock, client = server_cpu(index), time.perf_counter(), time.process_time()
        for batch in batches:
            attached += plain.claim(batch)
        client, seconds = time.process_time() - client, time.perf_counter() - clock
        served = server_cpu(index) - server_time
        names = _names(index, attached)
    return Beside(len(stream), seconds, client, served, documents.score(stream, names))


def _names(index: RedisIndex, attached: Sequence[int | None]) -> list[str | None]:
    """Return the id of the original that each document is attached to."""
    claims = sorted({one for one in attached if one is not None})
    buckets = index.store.layout.record_places(np.array(claims, np.uint64))[1].tolist()
    prefix = index.store.layout.partition_key(0)
    ids = {}
    for claimed, bucket in zip(claims, buckets, strict=True):
        value: Any = index.store.client.hget(f"{prefix}c{bucket}", claimed.to_bytes(8))
        ids[claimed] = str(index.records.decode(value[1:]).document_id)
    return [None if one is None else ids[one] for one in attached]


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=3_000, help="beside datasketch")
    parser.add_argument("--filling", type=int, default=20_000, help="originals beside commands")
    run(parser, measure)


if __name__ == "__main__":
    main()
