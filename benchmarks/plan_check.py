"""What ``stream-dedup plan`` predicts, and what a Redis filled with random fingerprints takes.

Run: make plan-check, or python -m benchmarks.plan_check 1e7 --design "5 blocks"
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from benchmarks.filling import FILLED, ID_BYTES, RandomDocuments, fill, look
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.fingerprinter import method_of
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.tables.plan import Design, Load, Plan, minhash_designs, predict, simhash_designs
from stream_dedup.types import Method
from tests.services.redis import RedisServer

ORIGINALS = ["1e5", "1e6"]
#: Documents that look for candidates, and that are claimed at the end.
LOOKING, CLAIMED = 20_000, 8_000
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
    before = memory(index)
    for batch in documents.batches(originals, FILLED):
        fill(index, batch)
    size = (memory(index) - before) / originals
    candidates = look(index, documents.batches(LOOKING)) / LOOKING / design.tables
    few = candidates * design.tables <= _MOST_CANDIDATES
    taken = _claim(index, documents, claimed) if claimed and few else None
    index.close()
    return Measured(size, candidates, taken)


def _claim(index: RedisIndex, documents: RandomDocuments, count: int) -> float:
    """Claim documents through the whole protocol; return the server's microseconds for each."""
    batches = list(documents.batches(count))
    before = cpu_seconds(index)
    for batch in batches:
        index.claim(batch)
    return (cpu_seconds(index) - before) * 1e6 / count


def cpu_seconds(index: RedisIndex) -> float:
    """Return the CPU time, user and system, of the server so far."""
    cpu: dict[str, float] = index.store.client.info("cpu")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def memory(index: RedisIndex) -> int:
    """Return the memory that the server uses, clients' buffers left out."""
    used: dict[str, int] = index.store.client.info("memory")
    return used["used_memory"] - used["mem_clients_normal"]


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
