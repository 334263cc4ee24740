"""What ``stream-dedup plan`` predicts, and what a Redis filled with random fingerprints takes.

Run: make plan-check, or python -m benchmarks.plan_check 1e7 --design "5 blocks"
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.fingerprinter import FingerprintMethod, Fingerprints, method_of
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.claims import Fate, Mode
from stream_dedup.index.keys import Places
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.store import Found, Round
from stream_dedup.settings import Settings
from stream_dedup.tables.plan import Design, Load, Plan, minhash_designs, predict, simhash_designs
from stream_dedup.types import Method
from tests.services.redis import RedisServer

ORIGINALS = ["1e5", "1e6"]
ID_BYTES = 20
#: Documents written together; documents that look for candidates, and that are claimed at the end.
BATCH, LOOKING, CLAIMED = 2_000, 20_000, 8_000
#: Candidates for a document beyond which claims would take minutes.
_MOST_CANDIDATES = 100.0


class Measured(NamedTuple):
    """What a server took.

    Attributes:
        bytes_per_original: growth of ``used_memory``, clients' buffers left out.
        candidates_per_probe: candidates that fresh random fingerprints met.
        server_us: CPU microseconds for a document claimed on top; None where skipped.
    """

    bytes_per_original: float
    candidates_per_probe: float
    server_us: float | None


class RandomDocuments:
    """Makes batches of documents with random fingerprints and no text."""

    def __init__(self, method: FingerprintMethod) -> None:
        self._method = method
        self._random = np.random.default_rng(7)
        self._made = 0

    def batch(self, count: int) -> IndexBatch:
        """Return so many documents, different from all before."""
        numbers = range(self._made, self._made + count)
        self._made += count
        digests = self._random.bytes(16 * count)
        return IndexBatch(
            ids=[f"{number:0{ID_BYTES}d}" for number in numbers],
            identities=np.array(numbers, np.uint64),
            times=np.zeros(count),
            prints=Fingerprints(
                np.zeros(count, np.bool_),
                [digests[at : at + 16] for at in range(0, 16 * count, 16)],
                *self._prints(count),
            ),
            ranks=np.full(count, np.inf),
        )

    def batches(self, count: int) -> Iterator[IndexBatch]:
        """Return so many documents, batch by batch."""
        for start in range(0, count, BATCH):
            yield self.batch(min(BATCH, count - start))

    def _prints(self, count: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        method = self._method
        if isinstance(method, SimHash):
            values = self._random.integers(0, 2**64, count, np.uint64)
            keys = np.stack([p.prefix(values) for p in method.permutations], axis=1)
            return keys, values.astype("<u8").view(np.uint8).reshape(count, -1)
        shape = (count, len(method.prefix_bits))
        sketches = self._random.integers(1, 256, (count, method.sketch_bytes), np.uint8)
        return self._random.integers(0, 2**53, shape, np.uint64), sketches


def checked_designs() -> list[tuple[Settings, Design]]:
    """Return what is checked: SimHash within 3 bits, MinHash from 0.8 on."""
    simhash, minhash = Settings(method=Method.SIMHASH, hamming=3), Settings()
    blocks = [design for design in simhash_designs(3) if design.tables <= 20]
    bands = minhash_designs(minhash.threshold, minhash.recall, SIGNATURE_VALUES)
    return [(simhash, design) for design in blocks] + [(minhash, design) for design in bands[:3:2]]


def predicted(settings: Settings, design: Design, originals: int) -> Plan:
    """Return the plan."""
    load = Load(originals, method_of(settings).sketch_bytes, ID_BYTES, memory=10**15)
    load = load._replace(ids=settings.index_ids)
    return predict(design, load)


def measure(
    server: RedisServer, settings: Settings, design: Design, originals: int, claimed: int = 0
) -> Measured:
    """Fill an empty server with random fingerprints, look, and claim so many more."""
    layout = {"redis_url": server.url, "expected_originals": originals}
    settings = settings.model_copy(update={**design.settings, **layout})
    index = RedisIndex.connect(settings)
    documents = RandomDocuments(method_of(settings))
    before = _memory(index)
    for batch in documents.batches(originals):
        _register(index, batch)
    size = (_memory(index) - before) / originals
    candidates = _look(index, documents) / design.tables
    few = candidates * design.tables <= _MOST_CANDIDATES
    taken = _claim(index, documents, claimed) if claimed and few else None
    index.close()
    return Measured(size, candidates, taken)


def _register(index: RedisIndex, batch: IndexBatch) -> None:
    """Write originals as the claim protocol does, but without asking who is near."""
    claims = index.ids.mint(time.time(), len(batch))
    round_ = index.store.round()
    round_.put(claims, index.records.encode(batch))
    _probe(round_, index, batch, claims, Mode.FORCE)
    round_.settle(claims, np.full(len(claims), Fate.ORIGINAL, np.uint8))
    round_.run()


def _look(index: RedisIndex, documents: RandomDocuments) -> float:
    """Return the candidates for a document that is not in the index."""
    candidates = 0
    for batch in documents.batches(LOOKING):
        round_ = index.store.round()
        nobody = np.zeros(len(batch), np.uint64)
        found = _probe(round_, index, batch, nobody, Mode.LOOK)
        round_.run()
        index.store.read_on(found)
        candidates += len(found.pairs[0])
    return candidates / LOOKING


def _probe(
    round_: Round, index: RedisIndex, batch: IndexBatch, claims: npt.NDArray[np.uint64], mode: Mode
) -> Found:
    suffixes, scores, partitions = index.store.layout.place(batch.prints.keys)
    flat = Places(suffixes.reshape(-1), scores.reshape(-1), partitions.reshape(-1))
    tables = batch.prints.keys.shape[1]
    modes = np.full(len(batch) * tables, mode, np.uint8)
    return round_.probe(flat, np.repeat(claims, tables), modes)


def _claim(index: RedisIndex, documents: RandomDocuments, count: int) -> float:
    """Claim documents through the whole protocol; return the server's microseconds for each."""
    batches = list(documents.batches(count))
    before = _cpu_seconds(index)
    for batch in batches:
        index.claim(batch)
    return (_cpu_seconds(index) - before) * 1e6 / count


def _cpu_seconds(index: RedisIndex) -> float:
    cpu: dict[str, float] = index.store.client.info("cpu")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def _memory(index: RedisIndex) -> int:
    memory: dict[str, int] = index.store.client.info("memory")
    return memory["used_memory"] - memory["mem_clients_normal"]


def check(options: argparse.Namespace) -> Report:
    """Measure each design at each number of originals."""
    rows: list[Row] = []
    version = ""
    for originals in options.originals:
        for settings, design in checked_designs():
            if options.design in (None, design.name):
                progress(f"{originals:,} originals, {design.name}")
                with RedisServer() as server:
                    measured = measure(server, settings, design, originals, CLAIMED)
                    with server.client() as client:
                        version = str(client.info("server")["redis_version"])
                rows.append(_row(predicted(settings, design, originals), measured, originals))
    header = columns("design", "originals|,d", *_figures("bytes/original", ".1f"))
    header += columns(*_figures("candidates/probe", ".3g"), *_figures("server µs", ".1f"))
    return Report(
        "Plans", [Table("Predicted and measured", _NOTE, header, rows)], {"Redis": version}
    )


_NOTE = (
    "`used_memory` per original; candidates of a probe for fresh random fingerprints; CPU time of "
    "the server for an original claimed on top. A ratio is measured / predicted; for candidates "
    "it is left out where fewer than 100 were expected."
)


def _figures(name: str, form: str) -> list[str]:
    return [f"{name} predicted|{form}", f"measured|{form}", "ratio|.2f"]


def _row(plan: Plan, measured: Measured, originals: int) -> Row:
    expected = plan.candidates_per_document * LOOKING
    cells: Row = [plan.design.name, originals]
    cells += _compared(plan.bytes_per_original, measured.bytes_per_original)
    cells += _compared(plan.candidates_per_probe, measured.candidates_per_probe)
    if expected < 100:
        cells[-1] = None
    return cells + _compared(1e6 / plan.documents_per_second, measured.server_us)


def _compared(expected: float, found: float | None) -> Row:
    return [expected, found, None if found is None else found / expected]


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__)
    parser.add_argument(
        "originals",
        nargs="*",
        type=lambda text: int(float(text)),
        default=ORIGINALS,
        help="numbers of originals",
    )
    parser.add_argument("--design", help="only the design of this name")
    run(parser, check)


if __name__ == "__main__":
    main()
