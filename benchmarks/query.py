"""How long a question over HTTP takes: one document at a given rate, and batches in a row."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import numpy as np

from benchmarks import documents
from benchmarks.processes import cpu_of
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.generate import GeneratedDocument
from stream_dedup.index.redis import RedisIndex
from tests.services.process import free_ports
from tests.services.redis import RedisServer

PERCENTILES = (50, 99, 99.9)
#: Documents in one request of the batch form.
BATCH = 256
#: Documents registered together while the index is filled.
FILLING = 1000
START_SECONDS = 60.0


class Answered(NamedTuple):
    """What came of the questions.

    Attributes:
        waits: seconds from when each was due to its answer, failures left out.
        known: share of the answers that know the text.
        failures: answers other than 200.
        cpu: CPU time of the service for each question, seconds.
    """

    waits: list[float]
    known: float
    failures: int
    cpu: float


@contextmanager
def serving(*place: str) -> Iterator[tuple[str, int]]:
    """Run the service on an index; return its address and process id once it is ready."""
    (port,) = free_ports(1)
    program = [sys.executable, "-c", "from stream_dedup.cli.main import main; main()", "serve"]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([*program, "--serve-port", str(port), *place]) as process:
        try:
            _wait_for(f"{address}/readyz")
            yield address, process.pid
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx2.get(url).status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass
        if time.monotonic() > deadline:
            msg = f"{url} was not ready in {START_SECONDS:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.1)


async def ask_at_rate(address: str, pid: int, texts: Sequence[str], rate: float) -> Answered:
    """Ask about one text after another, each when it is due, whatever has become of the others."""
    waits: list[float] = []
    known = failures = 0
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx2.AsyncClient(base_url=address, limits=limits, timeout=30) as client:

        async def ask(text: str, due: float) -> None:
            nonlocal known, failures
            response = await client.post("/v1/query", json={"text": text})
            if response.status_code != httpx2.codes.OK:
                failures += 1
                return
            waits.append(time.perf_counter() - due)
            known += response.json()["known"]

        cpu, began = cpu_of(pid), time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number, text in enumerate(texts):
                due = began + number / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.create_task(ask(text, due))
        spent = cpu_of(pid) - cpu
    return Answered(waits, known / max(1, len(waits)), failures, spent / len(texts))


def ask_in_batches(address: str, pid: int, texts: Sequence[str]) -> tuple[float, float]:
    """Ask about texts in batches; return documents a second, and CPU seconds for each."""
    with httpx2.Client(base_url=address, timeout=60) as client:
        cpu, began = cpu_of(pid), time.perf_counter()
        for start in range(0, len(texts), BATCH):
            part = [{"text": text} for text in texts[start : start + BATCH]]
            client.post("/v1/query", json={"documents": part}).raise_for_status()
        seconds = time.perf_counter() - began
    return len(texts) / seconds, (cpu_of(pid) - cpu) / len(texts)


def measure_service(
    name: str, place: Sequence[str], texts: Sequence[str], rate: float
) -> list[Row]:
    """Measure the service on one index; a row for one document at a time, and one for batches."""
    with serving(*place) as (address, pid):
        ask_in_batches(address, pid, texts[:BATCH])  # everything is loaded then
        progress(f"{name}: {len(texts)} questions, {rate:g} a second")
        one = asyncio.run(ask_at_rate(address, pid, texts, rate))
        progress(f"{name}: batches")
        many, cpu = ask_in_batches(address, pid, texts)
    found = [1000 * float(wait) for wait in np.percentile(one.waits, PERCENTILES)]
    most = 1000 * max(one.waits)
    return [
        [f"{name}, one", rate, *found, most, 1e6 * one.cpu, one.known, one.failures],
        [f"{name}, batches of {BATCH}", many, *[None] * 4, 1e6 * cpu, None, None],
    ]


def fill(deduplicator: Deduplicator, stream: Sequence[GeneratedDocument]) -> None:
    """Register originals."""
    with deduplicator:
        for start in range(0, len(stream), FILLING):
            deduplicator.decide(
                [
                    Document(document.id, document.text, source=f"filling/{document.id}")
                    for document in stream[start : start + FILLING]
                ]
            )


def questions(originals: Sequence[GeneratedDocument], count: int) -> list[str]:
    """Return texts to ask about, half of them originals of the index and half new."""
    new = documents.stream(count - count // 2, duplicates=0, seed=9)
    picked = np.random.default_rng(9).integers(len(originals), size=count // 2)
    texts = [document.text for document in new] + [originals[row].text for row in picked.tolist()]
    order = np.random.default_rng(8).permutation(count)
    return [texts[row] for row in order.tolist()]


def measure(options: argparse.Namespace) -> Report:
    """Measure the service on a state file and on Redis."""
    originals = documents.stream(options.originals, duplicates=0, seed=2)
    texts = questions(originals, int(options.rate * options.seconds))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "originals.db"
        progress(f"a state file of {len(originals)} originals")
        fill(Deduplicator(state=state), originals)
        rows += measure_service("memory", ["--state", str(state)], texts, options.rate)
    with RedisServer() as server:
        settings = Settings(redis_url=server.url, expected_originals=max(1_000, options.originals))
        progress(f"Redis with {len(originals)} originals")
        fill(Deduplicator(settings, index=RedisIndex.connect(settings)), originals)
        rows += measure_service("Redis", ["--redis-url", server.url], texts, options.rate)
    return Report("Questions over HTTP", [_table(rows, options)], {"httpx2": httpx2.__version__})


def _table(rows: list[Row], options: argparse.Namespace) -> Table:
    note = (
        f"`stream-dedup serve` on an index of {options.originals:,} originals, asked about texts "
        f"of 150 words, half of them known. *One*: {options.rate:g} requests a second of one "
        "document for "
        f"{options.seconds:g} s, each sent when it is due whether or not those before have been "
        "answered; milliseconds from when it was due to its answer. *Batches*: one request after "
        "another. CPU time of the service for each document; service, Redis and client on one "
        "machine."
    )
    header = columns("index", "documents/s|,.0f", *(f"p{p:g} ms|.1f" for p in PERCENTILES))
    more = columns("most ms|.1f", "CPU µs|,.0f", "known|.1%", "failures")
    return Table("Is this text known?", note, [*header, *more], rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--originals", type=int, default=100_000, help="originals in the index")
    parser.add_argument("--rate", type=float, default=100, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30, help="time that they are sent")
    run(parser, measure)


if __name__ == "__main__":
    main()
