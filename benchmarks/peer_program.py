"""What runs in the peers' environment: ``peer_program.py PEER TASK DOCUMENTS [options]``.

Uses nothing but the standard library, the peer, and what its documentation advises beside it. Each
peer is used in the fastest way that its documentation or its source has for the task; what that is
stands at its class. A task is

``fingerprint``  texts in memory are cut into shingles and fingerprinted, in batches
``decide``       the same, and looked up, and inserted when nothing near was found
``annotate``     the same from file to file: what ``stream-dedup run`` does

Prints one JSON object, ``benchmarks.peers.PeerFigure``. CPU time is taken stage by stage.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

THRESHOLD = 0.8
PERMUTATIONS = 128
#: Bands and values in each: what stream-dedup takes at this threshold, too.
BANDS = (16, 6)
#: rensa shares its 128 values out to the bands evenly: with 16 bands of 8 values it would miss one
#: in twenty pairs at the threshold. 32 of 4 cost it less than a microsecond more.
RENSA_BANDS = 32
HAMMING = 3
#: Runs of which a fingerprint figure is the best.
REPEATS = 3
STAGES = ("shingles", "fingerprint", "index")

_WORDS = re.compile(r"\w+")

#: Shingles of a text, or what a peer takes instead.
Cut = Any
Fingerprint = Any
Attached = list[int | None]


def shingler(shingle: str) -> Callable[[str], list[str]]:
    """Return what cuts a text into its shingles.

    ``word:3`` takes words as stream-dedup does in scripts with spaces, ``space:3`` what stands
    between white space (as gaoya does and the benchmarks of rensa do; the quickest in Python),
    ``char:5`` characters. A text that is shorter than a shingle, or has no token, is one itself, so
    that it matches only an equal one. An empty text has none.
    """
    unit, size = shingle.split(":")
    count = int(size)

    def words(text: str) -> list[str]:
        text = text.lower()
        tokens = text.split() if unit == "space" else _WORDS.findall(text)
        if len(tokens) < count:
            plain = " ".join(tokens or text.split())
            return [plain] if plain else []
        return list(map(" ".join, zip(*(tokens[at:] for at in range(count)), strict=False)))

    def characters(text: str) -> list[str]:
        plain = " ".join(text.lower().split())
        if len(plain) < count or not _WORDS.search(plain):
            return [plain] if plain else []
        return [plain[at : at + count] for at in range(len(plain) - count + 1)]

    return characters if unit == "char" else words


class Peer:
    """A library; decides documents in order, batch by batch.

    Empty texts resemble nothing, so no peer is asked about them.
    """

    def __init__(self, shingle: str) -> None:
        self.shingles = shingler(shingle)

    def cut(self, texts: Sequence[str]) -> list[Cut]:
        """Cut texts; what is false is empty."""
        shingles = self.shingles
        return [shingles(text) for text in texts]

    def fingerprint(self, cuts: Sequence[Cut]) -> list[Fingerprint]:
        """Make fingerprints."""
        raise NotImplementedError

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Return the number of each document's original, if there is one; insert the others."""
        raise NotImplementedError


class Rensa(Peer):
    """``RMinHash.from_token_sets`` and ``RMinHashDeduplicator``, both for whole batches.

    Its documentation has these for streams: originals are inserted, candidates verified by sketch.
    """

    def __init__(self, shingle: str) -> None:
        super().__init__(shingle)
        rensa: Any = import_module("rensa")
        self._make = rensa.RMinHash.from_token_sets
        self._index = rensa.RMinHashDeduplicator(
            threshold=THRESHOLD, num_perm=PERMUTATIONS, use_lsh=True, num_bands=RENSA_BANDS
        )

    def fingerprint(self, cuts: Sequence[Cut]) -> list[Fingerprint]:
        """Make fingerprints."""
        return list(self._make(cuts, num_perm=PERMUTATIONS, seed=42))

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        added = self._index.add_pairs(zip(map(str, numbers), prints, strict=True))
        if all(added):
            return [None] * len(added)
        copies = [one for one, is_new in zip(prints, added, strict=True) if not is_new]
        # The earliest: what the batch registered after a copy may be among them.
        originals = (min(map(int, found)) for found in self._index.get_duplicate_sets(copies))
        return [None if is_new else next(originals) for is_new in added]


class RensaSingle(Rensa):
    """The same for one document after the other: ``update``, ``add``, ``get_duplicates``."""

    def __init__(self, shingle: str) -> None:
        super().__init__(shingle)
        self._one: Any = import_module("rensa").RMinHash

    def fingerprint(self, cuts: Sequence[Cut]) -> list[Fingerprint]:
        """Make fingerprints."""
        made = []
        for shingles in cuts:
            one = self._one(num_perm=PERMUTATIONS, seed=42)
            one.update(shingles)
            made.append(one)
        return made

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        index = self._index
        return [
            None if index.add(str(number), one) else min(map(int, index.get_duplicates(one)))
            for number, one in zip(numbers, prints, strict=True)
        ]


class RensaRho(Peer):
    """rensa's fastest way, for a set that is there as a whole: the rho sketch, and flags for all.

    It samples token positions, and flags every document that shares a band with any other,
    originals too. So it does not answer which original a copy belongs to.
    """

    def __init__(self, shingle: str) -> None:
        super().__init__(shingle)
        rensa: Any = import_module("rensa")
        self._make = rensa.RMinHash.digest_matrix_from_token_sets_rho
        self._index = rensa.RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=8)

    def fingerprint(self, cuts: Sequence[Cut]) -> list[Fingerprint]:
        """Make fingerprints."""
        return [self._make(cuts, num_perm=PERMUTATIONS, seed=42)]

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        flags = self._index.query_duplicate_flags_matrix_one_shot(prints[0])
        return [
            number if is_flagged else None
            for number, is_flagged in zip(numbers, flags, strict=True)
        ]


class Datasketch(Peer):
    """``MinHash`` copied from an empty one, as ``MinHash.bulk`` does, hashed by xxHash.

    A hash function faster than SHA-1 is what its documentation advises; shingles are bytes.
    """

    def __init__(self, shingle: str) -> None:
        super().__init__(shingle)
        self.module: Any = import_module("datasketch")
        self._empty = self.module.MinHash(
            num_perm=PERMUTATIONS, hashfunc=import_module("xxhash").xxh32_intdigest
        )
        self._kept: dict[int, Fingerprint] = {}
        self._index = self.index()

    def index(self, **storage: Any) -> Any:
        """Return an empty index."""
        return self.module.MinHashLSH(num_perm=PERMUTATIONS, params=BANDS, **storage)

    def fingerprint(self, cuts: Sequence[Cut]) -> list[Fingerprint]:
        """Make fingerprints."""
        made = []
        for shingles in cuts:
            one = self._empty.copy()
            one.update_batch("\0".join(shingles).encode().split(b"\0"))
            made.append(one)
        return made

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        attached: Attached = []
        for number, one in zip(numbers, prints, strict=True):
            original = self.nearest(one, self._index.query(one))
            if original is None:
                self._index.insert(number, one, check_duplication=False)
                self._kept[number] = one
            attached.append(original)
        return attached

    def nearest(self, one: Fingerprint, candidates: Iterable[int]) -> int | None:
        """Return the earliest candidate that is near by signature, as its documentation advises."""
        kept = self._kept
        near = (key for key in candidates if kept[key].jaccard(one) >= THRESHOLD)
        return min(near, default=None)


class DatasketchRedis(Datasketch):
    """Tables in Redis, one document after the other; signatures stay in the client's memory."""

    def __init__(self, shingle: str, port: int) -> None:
        self._storage = {
            "type": "redis",
            "basename": b"peer",
            "redis": {"host": "127.0.0.1", "port": port},
            "redis_buffer": {"transaction": False},
        }
        super().__init__(shingle)

    def index(self, **storage: Any) -> Any:
        """Return an empty index."""
        return super().index(storage_config=self._storage, **storage)


class DatasketchRedisAsync(DatasketchRedis):
    """The same by ``AsyncMinHashLSH``, which asks all tables about a document at once."""

    def index(self, **storage: Any) -> Any:
        """Return an empty index, connected."""
        del storage
        self._loop = asyncio.new_event_loop()
        index = import_module("datasketch.aio").AsyncMinHashLSH(
            num_perm=PERMUTATIONS,
            params=BANDS,
            storage_config={**self._storage, "type": "aioredis"},
        )
        return self._loop.run_until_complete(_awaited(index))

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        return self._loop.run_until_complete(self._decide(numbers, prints))

    async def _decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        attached: Attached = []
        for number, one in zip(numbers, prints, strict=True):
            original = self.nearest(one, await self._index.query(one))
            if original is None:
                await self._index.insert(number, one, check_duplication=False)
                self._kept[number] = one
            attached.append(original)
        return attached


async def _awaited(index: Any) -> Any:
    return await index


class DatasketchRedisBatches(DatasketchRedis):
    """The same for whole batches: one pipeline for each table to look up, one to insert.

    ``insertion_session`` is its documented way to insert many. For many queries its index has no
    call; its storage has ``getmany``, a pipeline. Copies within a batch are found in memory.
    """

    def index(self, **storage: Any) -> Any:
        """Return an empty index."""
        return super().index(prepickle=False, **storage)

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        attached: Attached = []
        local = self.module.MinHashLSH(num_perm=PERMUTATIONS, params=BANDS)
        with self._index.insertion_session() as session:
            found = zip(numbers, prints, self._candidates(prints), strict=True)
            for number, one, candidates in found:
                original = self.nearest(one, candidates | set(local.query(one)))
                if original is None:
                    session.insert(b"%d" % number, one, check_duplication=False)
                    local.insert(number, one, check_duplication=False)
                    self._kept[number] = one
                attached.append(original)
        return attached

    def _candidates(self, prints: Sequence[Fingerprint]) -> list[set[int]]:
        candidates: list[set[int]] = [set() for _ in prints]
        ranges = zip(self._index.hashtables, self._index.hashranges, strict=True)
        for table, (start, end) in ranges:
            keys = [bytes(one.hashvalues[start:end].byteswap().data) for one in prints]
            for one, members in zip(candidates, table.getmany(*keys), strict=True):
                one.update(map(int, members))
        return candidates


class Simhash(Peer):
    """``Simhash`` of shingles by xxHash (its hash function is a parameter, MD5 by default)."""

    def __init__(self, shingle: str) -> None:
        super().__init__(shingle)
        module: Any = import_module("simhash")
        self._make, self._hash = module.Simhash, import_module("xxhash").xxh64_digest
        self._index = module.SimhashIndex([], k=HAMMING)

    def fingerprint(self, cuts: Sequence[Cut]) -> list[Fingerprint]:
        """Make fingerprints."""
        make, hashed = self._make, self._hash
        return [make(shingles, hashfunc=hashed) for shingles in cuts]

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        attached: Attached = []
        for number, one in zip(numbers, prints, strict=True):
            near = self._index.get_near_dups(one)
            if not near:
                self._index.add(str(number), one)
            attached.append(min(map(int, near), default=None))
        return attached


class Gaoya(Peer):
    """``MinHashStringIndex``, which cuts, fingerprints and verifies by itself, in Rust.

    It takes texts only, so an original is fingerprinted twice: to look it up, and to insert it. To
    hold ids it advises ``smallvec`` where few documents are alike. Texts of fewer words than a
    shingle, all of which it takes for copies of each other, are compared as they are.
    """

    container = "smallvec"

    def __init__(self, shingle: str) -> None:
        super().__init__(shingle)
        unit, size = shingle.split(":")
        self._analyzer = {
            "analyzer": "char" if unit == "char" else "word",
            "lowercase": True,
            "ngram_range": (int(size), int(size)),
        }
        self._short: dict[str, int] = {}
        self._size = int(size)
        self._index = self.index()

    def index(self) -> Any:
        """Return an empty index."""
        bands, rows = BANDS
        return import_module("gaoya.minhash").MinHashStringIndex(
            hash_size=32,
            jaccard_threshold=THRESHOLD,
            num_bands=bands,
            band_size=rows,
            id_container=self.container,
            **self._analyzer,
        )

    def cut(self, texts: Sequence[str]) -> list[Cut]:
        """Cut texts (see ``Peer.cut``)."""
        return [text if text.strip() else "" for text in texts]

    def fingerprint(self, cuts: Sequence[Cut]) -> list[Fingerprint]:
        """Leave texts as they are: fingerprints are made in ``decide``, and alone in ``sketch``."""
        return list(cuts)

    def sketch(self, texts: Sequence[str]) -> list[Fingerprint]:
        """Make fingerprints and do nothing with them."""
        make = self._index.minhash_index.tokenize_and_minhash
        return [make(text) for text in texts]

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        attached: Attached = []
        for number, text in zip(numbers, prints, strict=True):
            if self._is_short(text):
                first = self._short.setdefault(" ".join(text.lower().split()), number)
                attached.append(None if first == number else first)
                continue
            near = self._index.query(text)
            if not near:
                self._index.insert_document(number, text)
            attached.append(min(near, default=None))
        return attached

    def _is_short(self, text: str) -> bool:
        if self._analyzer["analyzer"] == "char":
            return len(text) < self._size
        return len(text.split(None, self._size)) < self._size


class GaoyaBulk(Gaoya):
    """The same by ``par_bulk_insert_docs`` and ``par_bulk_query``, on as many cores as it may use.

    All of a batch are inserted, then looked up, and whoever has an earlier one near is taken out
    again. So all are fingerprinted twice; ids are in sets, which it advises where some are removed.
    """

    container = "set"

    def decide(self, numbers: Sequence[int], prints: Sequence[Fingerprint]) -> Attached:
        """Decide documents (see ``Peer.decide``)."""
        is_long = [not self._is_short(text) for text in prints]
        long = [at for at, is_so in enumerate(is_long) if is_so]
        short = [at for at, is_so in enumerate(is_long) if not is_so]
        attached: Attached = [None] * len(prints)
        few = super().decide([numbers[at] for at in short], [prints[at] for at in short])
        for at, original in zip(short, few, strict=True):
            attached[at] = original
        ids, texts = [numbers[at] for at in long], [prints[at] for at in long]
        self._index.par_bulk_insert_docs(ids, texts)
        copies: set[int] = set()
        for at, number, near in zip(long, ids, self._index.par_bulk_query(texts), strict=True):
            original = min((one for one in near if one not in copies), default=number)
            if original < number:
                attached[at] = original
                copies.add(number)
        for number in copies:
            self._index.remove(number)
        return attached


class GaoyaSimHash(Gaoya):
    """``SimHashStringIndex``: 64 bits in four blocks."""

    def index(self) -> Any:
        """Return an empty index."""
        return import_module("gaoya.simhash").SimHashStringIndex(
            hash_size=64, num_blocks=HAMMING + 1, hamming_distance=HAMMING, **self._analyzer
        )

    def sketch(self, texts: Sequence[str]) -> list[Fingerprint]:
        """Make fingerprints and do nothing with them."""
        make = self._index.index.tokenize_and_simhash
        return [make(text) for text in texts]


PEERS: dict[str, Callable[..., Peer]] = {
    "rensa": Rensa,
    "rensa-single": RensaSingle,
    "rensa-rho": RensaRho,
    "datasketch": Datasketch,
    "datasketch-redis": DatasketchRedis,
    "datasketch-redis-async": DatasketchRedisAsync,
    "datasketch-redis-batches": DatasketchRedisBatches,
    "simhash": Simhash,
    "gaoya": Gaoya,
    "gaoya-bulk": GaoyaBulk,
    "gaoya-simhash": GaoyaSimHash,
}
#: What each is called in its package's metadata.
PACKAGES = {name: name.partition("-")[0] for name in PEERS}


class Laps:
    """CPU time of the stages, which follow each other batch by batch."""

    def __init__(self) -> None:
        self.stages = dict.fromkeys(STAGES, 0.0)
        self._last = time.process_time()

    def lap(self, stage: str) -> None:
        """Book the time since the last lap to a stage."""
        now = time.process_time()
        self.stages[stage] += now - self._last
        self._last = now


def decide_batch(peer: Peer, first: int, texts: Sequence[str], laps: Laps) -> Attached:
    """Decide a batch whose first document has this number."""
    cuts = peer.cut(texts)
    laps.lap("shingles")
    asked = [at for at, cut in enumerate(cuts) if cut]
    prints = peer.fingerprint([cuts[at] for at in asked])
    laps.lap("fingerprint")
    attached: Attached = [None] * len(texts)
    for at, original in zip(asked, peer.decide([first + at for at in asked], prints), strict=True):
        attached[at] = original
    laps.lap("index")
    return attached


def batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield items in batches."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def fingerprint_all(peer: Peer, texts: Sequence[str], size: int) -> dict[str, Any]:
    """Fingerprint every text; the best of some runs, as for ours."""
    make = peer.sketch if isinstance(peer, Gaoya) else peer.fingerprint
    best: dict[str, Any] = {}
    for _ in range(REPEATS):
        laps = Laps()
        for batch in batches(texts, size):
            cuts = peer.cut(batch)
            laps.lap("shingles")
            make([cut for cut in cuts if cut])
            laps.lap("fingerprint")
        cpu = sum(laps.stages.values())
        if not best or cpu < best["cpu"]:
            best = {"cpu": cpu, "seconds": cpu, "stages": laps.stages}
    return best


def decide_all(peer: Peer, texts: Sequence[str], size: int) -> dict[str, Any]:
    """Decide every text, in order."""
    attached: Attached = []
    clock, laps = time.perf_counter(), Laps()
    for batch in batches(texts, size):
        attached += decide_batch(peer, len(attached), batch, laps)
    seconds = time.perf_counter() - clock
    cpu = sum(laps.stages.values())
    return {"cpu": cpu, "seconds": seconds, "stages": laps.stages, "attached": attached}


def annotate(peer: Peer, source: Path, output: Path, size: int) -> dict[str, Any]:
    """Write each line of a file with what was decided about it; return no decisions."""
    orjson: Any = import_module("orjson")
    laps, count, duplicates = Laps(), 0, 0
    with source.open("rb") as lines, output.open("wb") as written:
        for batch in batches(map(orjson.loads, lines), size):
            attached = decide_batch(peer, count, [one["text"] for one in batch], laps)
            for document, original in zip(batch, attached, strict=True):
                document["dedup"] = {"duplicate": original is not None, "original": original}
                written.write(orjson.dumps(document) + b"\n")
            count += len(batch)
            duplicates += len(batch) - attached.count(None)
    return {"documents": count, "cpu": 0.0, "seconds": 0.0, "duplicates": duplicates}


def main() -> None:
    """Do the task and print its figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("task", choices=("fingerprint", "decide", "annotate"))
    parser.add_argument("documents", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--redis-port", type=int)
    parser.add_argument("--shingle", default="word:3")
    parser.add_argument("--batch", type=int, default=1024)
    options = parser.parse_args()
    # As ours does: the lists of a batch go by their reference counts.
    gc.disable()
    more = () if options.redis_port is None else (options.redis_port,)
    peer = PEERS[options.peer](options.shingle, *more)
    if options.task == "annotate":
        figure = annotate(peer, options.documents, options.output, options.batch)
    else:
        with options.documents.open(encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
        task = fingerprint_all if options.task == "fingerprint" else decide_all
        figure = {"documents": len(texts), **task(peer, texts, options.batch)}
    print(json.dumps({"version": version(PACKAGES[options.peer]), **figure}))


if __name__ == "__main__":
    main()
