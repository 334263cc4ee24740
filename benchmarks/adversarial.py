"""Documents that are made to meet under one table key, by one who knows the seed or does not.

The attacker has the code and the settings. With the seed too, phrases are searched whose hashes lie
as one table wants them, and unrelated words are put around these: the documents do not resemble
each other, and share a table key. Under a secret seed the same documents are as good as any.

No seed is needed to fill in a template: documents that resemble each other a little less than the
threshold are all originals, and share a good part of their keys.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import SecretStr

from benchmarks.programs import peak_of
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import index_batch
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Hashes
from stream_dedup.types import Document, Status
from tests.services.redis import RedisServer

#: The table that is aimed at.
TABLE = 0
#: Documents made and fingerprinted at a time.
BATCH = 10_000
#: Documents claimed together, as a worker does.
CLAIMED = 1_000
#: Words of a document, and how many there are to choose from.
WORDS = 210
VOCABULARY = 20_000
#: Phrases of three words, one shingle each, that are searched through.
POOL = 200_000
#: Phrases in a document that is aimed at a SimHash table, and bits that each must have right beyond
#: half of the table's.
SIMHASH_PHRASES = 60
SIMHASH_MARGIN = 6
#: Words of a template, and of what is filled in: word 3-grams then have a resemblance of .68.
FIXED, FILLED = 122, 28
#: Cells that keys are counted in to see whether they are spread evenly.
CELLS = 1024

Texts = Iterator[list[str]]
#: Makes the words of so many documents, (documents, WORDS), from a source of chance.
Make = Callable[[np.random.Generator, int], npt.NDArray[np.int64]]


class Spread(NamedTuple):
    """How documents lie under the keys of a table.

    Attributes:
        documents: how many there are.
        keys: different keys.
        high: entries under a key, 99.99 % of the documents' keys having no more.
        largest: entries under the fullest key.
        deviation: chi-square of the keys over ``CELLS`` cells by its degrees of freedom: about 1
            where they are even.
    """

    documents: int
    keys: int
    high: int
    largest: int
    deviation: float


def vocabulary() -> npt.NDArray[np.str_]:
    """Return the words that all documents are made of."""
    return np.array([f"w{number:x}" for number in range(VOCABULARY)])


def honest(random: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Make documents of words by chance."""
    return random.integers(0, VOCABULARY, (count, WORDS))


def aim(fingerprinter: Fingerprinter, seed: int = 1) -> Make:
    """Search for phrases that bring every document with them under one key of ``TABLE``.

    Args:
        fingerprinter: of the seed that the attacker knows or supposes.
        seed: of the search.
    """
    random = np.random.default_rng(seed)
    pool = random.integers(0, VOCABULARY, (POOL, 3))
    hashes = fingerprinter.shingles(list(spell(pool))).hashes
    method: Any = fingerprinter.method
    if isinstance(method, SimHash):
        return _aim_majority(method, pool, hashes)
    return _aim_minima(method.design.rows, pool, hashes)


def _aim_minima(rows: int, pool: npt.NDArray[np.int64], hashes: Hashes) -> Make:
    """Give each value of the first band the phrase with the smallest hash of all at its place."""
    # A place is two bins, and a bin the upper 8 of 64 bits; the others are the value.
    places = (hashes >> np.uint64(57)).astype(np.int64)
    values = hashes & np.uint64((1 << 56) - 1)
    best = [
        np.flatnonzero(places == place)[values[places == place].argmin()] for place in range(rows)
    ]
    phrases = pool[best].reshape(-1)

    def make(random: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        words = honest(random, count)
        words[:, : len(phrases)] = phrases
        return words

    return make


def _aim_majority(method: SimHash, pool: npt.NDArray[np.int64], hashes: Hashes) -> Make:
    """Collect phrases whose hashes have most bits of the first table's prefix; use some each."""
    prefix = method.permutations[TABLE].prefix
    bits = np.uint64(1) << np.arange(64, dtype=np.uint64)
    wanted = np.bitwise_or.reduce(bits[prefix(bits) != 0])
    right = np.bitwise_count(hashes & wanted).astype(np.int64)
    good = pool[right >= method.prefix_bits[TABLE] / 2 + SIMHASH_MARGIN]

    def make(random: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        words = honest(random, count)
        chosen = random.integers(0, len(good), (count, SIMHASH_PHRASES))
        words[:, : 3 * SIMHASH_PHRASES] = good[chosen].reshape(count, -1)
        return words

    return make


def template(random: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Make documents of some 1 KB from one template, all of them below the threshold."""
    fixed = np.random.default_rng(3).integers(0, VOCABULARY, FIXED)
    filled = random.integers(0, VOCABULARY, (count, FILLED))
    return np.hstack([np.broadcast_to(fixed, (count, FIXED)), filled])


def spell(words: npt.NDArray[np.int64]) -> Iterator[str]:
    """Write documents out."""
    return (" ".join(row) for row in vocabulary()[words].tolist())


def texts(make: Make, documents: int, seed: int = 2) -> Texts:
    """Make documents, a batch at a time, the same for the same seed."""
    random = np.random.default_rng(seed)
    for start in range(0, documents, BATCH):
        yield list(spell(make(random, min(BATCH, documents - start))))


def keys_of(fingerprinter: Fingerprinter, made: Texts) -> Hashes:
    """Return the keys of documents in ``TABLE``."""
    return np.concatenate([fingerprinter.fingerprint(batch).keys[:, TABLE] for batch in made])


def spread(keys: Hashes) -> Spread:
    """Describe how keys of one table are distributed."""
    entries = np.unique(keys, return_counts=True)[1]
    # The last bits of a key decide.
    cells = np.bincount((keys % np.uint64(CELLS)).astype(np.int64), minlength=CELLS)
    expected = len(keys) / CELLS
    deviation = float(((cells - expected) ** 2 / expected).sum() / (CELLS - 1))
    high = int(np.quantile(np.repeat(entries, entries), 0.9999, method="higher"))
    return Spread(len(keys), len(entries), high, int(entries.max()), deviation)


def settings_of(method: str, seed: str = "", **more: Any) -> Settings:
    """Return settings with a seed."""
    return Settings.model_validate({"method": method, "seed": SecretStr(seed), **more})


def measure_spread(method: str, documents: int, secret: str) -> list[Row]:
    """Spread honest and aimed documents, under the known and under the secret seed."""
    known = Fingerprinter(settings_of(method))
    unknown = Fingerprinter(settings_of(method, secret))
    began = time.monotonic()
    aimed = aim(known)
    searched = time.monotonic() - began
    rows: list[Row] = []
    for name, fingerprinter, make in (
        ("honest, secret seed", unknown, honest),
        ("aimed, secret seed", unknown, aimed),
        ("aimed, known seed", known, aimed),
    ):
        progress(f"{method}: {name}")
        found = spread(keys_of(fingerprinter, texts(make, documents)))
        seconds = searched if make is aimed else None
        rows.append([f"{method}, {name}", seconds, *found[1:], found.largest / found.documents])
    return rows


def claim(name: str, settings: Settings, make: Make, documents: int, parts: int) -> list[Row]:
    """Decide documents through an empty index, a part after the other; the cost of each part."""
    rows: list[Row] = []
    with RedisServer() as server:
        index = RedisIndex.connect(settings.model_copy(update={"redis_url": server.url}))
        fingerprinter = Fingerprinter(settings)
        words = [text for batch in texts(make, documents) for text in batch]
        each = documents // parts
        for part in range(parts):
            progress(f"{name}: part {part + 1} of {parts}")
            before, began, capped, originals, claiming = _cpu(server), 0.0, 0, 0, 0.0
            for start in range(part * each, (part + 1) * each, CLAIMED):
                chosen = words[start : min(start + CLAIMED, (part + 1) * each)]
                batch = index_batch(
                    [
                        Document(str(start + n), text, source=str(start + n))
                        for n, text in enumerate(chosen)
                    ],
                    fingerprinter.fingerprint(chosen),
                )
                began = time.monotonic()
                originals += sum(attachment is None for attachment in index.claim(batch))
                claiming += time.monotonic() - began
                capped += index.counts.capped
            spent = (_cpu(server) - before) / each
            rows.append(
                [
                    name,
                    (part + 1) * each,
                    originals / each,
                    capped / each,
                    spent * 1e6,
                    claiming / each * 1e6,
                ]
            )
        index.close()
    return rows


def _cpu(server: RedisServer | None) -> float:
    if server is None:
        return 0.0
    with server.client() as client:
        used: Any = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def measure_cost(method: str, documents: int, parts: int, cap: int) -> list[Row]:
    """Claim honest documents and aimed ones, both under the known seed."""
    settings = settings_of(method, max_candidates=cap)
    aimed = aim(Fingerprinter(settings))
    return [
        row
        for name, make in (("honest", honest), ("aimed", aimed))
        for row in claim(f"{method}, {name}", settings, make, documents, parts)
    ]


def fill(kind: str, name: str, documents: int, parts: int, cap: int) -> list[Row]:
    """Decide documents through the worker's stages, with default settings but for the cap."""
    make = {"honest": honest, "template": template}[name]
    settings = settings_of("minhash", max_candidates=cap)
    rows: list[Row] = []
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer()) if kind == "Redis" else None
        index = None
        if server is not None:
            settings = settings.model_copy(update={"redis_url": server.url})
            index = RedisIndex.connect(settings)
        deduplicator = stack.enter_context(Deduplicator(settings, index=index))
        words = [text for batch in texts(make, documents) for text in batch]
        each = documents // parts
        for part in range(parts):
            progress(f"{kind}, {name}: part {part + 1} of {parts}")
            before, began, originals = _cpu(server), time.process_time(), 0
            for start in range(part * each, (part + 1) * each, CLAIMED):
                chosen = words[start : min(start + CLAIMED, (part + 1) * each)]
                decided = deduplicator.decide(
                    [Document(str(start + n), text) for n, text in enumerate(chosen)]
                )
                originals += sum(decision.status is Status.ORIGINAL for decision in decided)
            client = (time.process_time() - began) / each
            spent = (_cpu(server) - before) / each
            most = peak_of(os.getpid()) / 2**20
            last = (part + 1) * each
            rows.append(
                [f"{kind}, {name}", last, originals / each, client * 1e6, spent * 1e6, most]
            )
    return rows


def measure_templates(documents: Sequence[int], parts: int, cap: int) -> list[Row]:
    """Fill indexes with honest documents and with a template, each in a process of its own."""
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")
    for kind, count in zip(("embedded", "Redis"), documents, strict=True):
        for name in ("honest", "template"):
            with ProcessPoolExecutor(1, context) as pool:
                rows += pool.submit(fill, kind, name, count, parts, cap).result()
    return rows


def measure(options: argparse.Namespace) -> Report:
    """Measure the spread of keys, and what aimed documents and templates cost."""
    methods = ("minhash", "simhash")
    spreads = [row for m in methods for row in measure_spread(m, options.documents, options.secret)]
    costs = [
        row
        for method in (methods if options.claims else ())
        for row in measure_cost(method, options.claims, options.parts, options.cap)
    ]
    templates = (
        measure_templates(options.templates, options.parts, options.cap)
        if all(options.templates)
        else []
    )
    spread_note = (
        f"{options.documents:,} documents of {WORDS} words that do not resemble each other, under "
        "the keys of one table. Aimed documents are made with the known (empty) seed, by a search "
        "that took so many seconds once. Keys; entries under a key that all but .01 % of the "
        "documents meet at most, and under the fullest; chi-square over "
        f"{CELLS:,} cells by its degrees of freedom, about 1 where keys are even (a SimHash has "
        "blocks that are not); share of all documents under the fullest key."
    )
    cost_note = (
        f"The known seed, an empty index, max_candidates {options.cap:,}, claims of {CLAIMED:,} "
        "documents, one part after another. Documents claimed; share that became originals; "
        "capped probes, server time and time of the claim, each per document of the part."
    )
    template_note = (
        f"Documents of {FIXED} words of a template and {FILLED} of their own, and honest ones, "
        f"through an empty index in batches of {CLAIMED:,}, max_candidates {options.cap:,}, the "
        "other settings as they are by default; each index in a process of its own. Documents "
        "decided; share that became originals; CPU time of the process and of Redis, each per "
        "document of the part; peak memory of the process."
    )
    return Report(
        "Adversarial documents",
        [
            Table(
                "Spread over the keys of one table",
                spread_note,
                columns(
                    "documents",
                    "search s|.1f",
                    "keys|,",
                    "99.99 %|,",
                    "fullest|,",
                    "chi²/df|,.2f",
                    "share|.4%",
                ),
                spreads,
            ),
            Table(
                "Cost of what is aimed with the seed",
                cost_note,
                columns(
                    "documents",
                    "claimed|,",
                    "originals|.1%",
                    "capped|.2f",
                    "server µs|,.0f",
                    "claim µs|,.0f",
                ),
                costs,
            ),
            Table(
                "Cost of templates",
                template_note,
                columns(
                    "index, documents",
                    "decided|,",
                    "originals|.1%",
                    "process µs|,.0f",
                    "Redis µs|,.0f",
                    "peak MiB|,.0f",
                ),
                templates,
            ),
        ],
    )


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=100_000, help="documents to spread")
    parser.add_argument("--claims", type=int, default=24_000, help="documents to claim, or 0")
    parser.add_argument("--parts", type=int, default=6, help="parts that the cost is told of")
    parser.add_argument("--cap", type=int, default=4096, help="max_candidates")
    parser.add_argument(
        "--templates",
        type=int,
        nargs=2,
        default=(20_000, 6_000),
        help="documents of a template for the embedded index, and for Redis; or 0 0",
    )
    parser.add_argument("--secret", default="nobody knows this one", help="the secret seed")
    run(parser, measure)


if __name__ == "__main__":
    main()
