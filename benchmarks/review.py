"""The review page over a window of a million documents: how fast it fills, and every page."""

from __future__ import annotations

import argparse
import html
import itertools
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import httpx2
import msgspec
import numpy as np

from benchmarks import machine
from benchmarks.processes import cpu_of
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.types import Decision, Method, Status
from tests.services.process import free_ports

#: Milliseconds that a page may take.
TARGET = 100
#: Documents a second of event time, words of a document, and origins.
RATE, WORDS, SOURCES = 100, 60, 5000
_BEGIN = 1_700_000_000
_TOGETHER = 10_000
_START_SECONDS = 60.0
_FILL_SECONDS = 3600.0


class Annotated(msgspec.Struct):
    """An annotated document."""

    id: str
    text: str
    time: float
    source: str
    url: str
    dedup: Decision


def documents(count: int, largest: int) -> Iterator[Annotated]:
    """Make annotated documents: one group of ``largest``, and others of very different sizes.

    Args:
        count: documents in all; about half of them are originals.
        largest: documents of the largest group, that of the first document, about.
    """
    rng = random.Random(1)
    words = [f"word{number}" for number in range(20_000)]
    texts: dict[int, str] = {}
    for number in range(count):
        draw = rng.random()
        of = 0 if draw < largest / count else int(number * rng.random()) if draw < 0.5 else number
        status = rng.choice([Status.EXACT_DUPLICATE, Status.NEAR_DUPLICATE])
        if of not in texts:
            texts[number] = " ".join(rng.choices(words, k=WORDS))
            of, status = number, Status.ORIGINAL
        text, similarity = texts[of], None
        if status is Status.EXACT_DUPLICATE:
            similarity = 1.0
        elif status is Status.NEAR_DUPLICATE:
            text, similarity = text + " " + rng.choice(words), rng.uniform(0.8, 1.0)
        name, group = f"document-{of}", f"{of:024x}"
        yield Annotated(
            f"document-{number}",
            text,
            _BEGIN + number / RATE,
            f"site-{int(SOURCES * rng.random() ** 3)}.example",
            f"https://site.example/{number}",
            Decision(status, group, name, Method.MINHASH, "0" * 16, similarity=similarity),
        )


def write(path: Path, count: int, largest: int) -> None:
    """Write annotated documents, one a line."""
    made = documents(count, largest)
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        while some := list(itertools.islice(made, _TOGETHER)):
            file.write(b"\n".join([*map(encode, some), b""]))


@contextmanager
def serving(folder: Path, count: int) -> Iterator[tuple[httpx2.Client, int]]:
    """Serve the page over the documents; give a client, and the process."""
    (port,) = free_ports(1)
    command = [sys.executable, "-c", "from stream_dedup.cli.main import main; main()", "review"]
    flags = {
        "review-port": port,
        "review-window": count,
        "review-file": folder / "window.db",
        "review-labels": folder / "labels.db",
        "time-field": "time",
    }
    command += [f"--{name}={value}" for name, value in flags.items()]
    with (
        subprocess.Popen([*command, str(folder / "annotated.jsonl")]) as process,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=_START_SECONDS) as client,
    ):
        try:
            _until(client, "/healthz", "ok", _START_SECONDS)
            yield client, process.pid
        finally:
            process.terminate()


def _until(client: httpx2.Client, path: str, sign: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if sign in client.get(path).text:
                return
        except httpx2.TransportError:
            pass
        if time.monotonic() > deadline:
            msg = f"{path} did not say {sign!r} within {seconds:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.2)


def pages(client: httpx2.Client) -> dict[str, str]:
    """Return the address of every kind of page, by what it shows."""
    largest = f"/groups/{0:024x}"
    found = {"overview": "/", "largest group": largest}
    text = client.get(largest).text
    links = [html.unescape(link) for link in re.findall(r'(?:href|hx-get)="([^"#]+)', text)]
    own = dict.fromkeys(link for link in links if link.startswith(f"{largest}?"))
    found |= {f"largest group, {_last(link)}": link for link in own if "with" not in link}
    compared = next((link for link in links if "/compare?" in link), None)
    if compared is not None:
        found["largest group, one pair"] = compared
    found |= {
        "another group": f"/groups/{7:024x}",
        "search": "/search",
        "search, an id": "/search?q=document-99",
        "search, a group": f"/search?q={7:024x}",
        "search, no such id": "/search?q=nothing",
        "label": "/label",
    }
    return found


def _last(link: str) -> str:
    """Name a page of a group by what its address asks for last."""
    return (
        re.sub(r"=.*", "", link.rpartition("?")[2].rpartition("&")[2])
        + " "
        + (
            "newest"
            if "newest" in link
            else "oldest"
            if "oldest" in link
            else "nearest"
            if "nearest" in link
            else ""
        )
    )


class Timed(NamedTuple):
    """What a page took.

    Attributes:
        waits: milliseconds until each answer.
        cpu: milliseconds of CPU time of the server for each.
        size: bytes of an answer.
    """

    waits: list[float]
    cpu: float
    size: int


def time_page(client: httpx2.Client, pid: int, path: str, times: int) -> Timed:
    """Ask for a page again and again."""
    taken, size = [], 0
    before = cpu_of(pid)
    for _ in range(times):
        began = time.perf_counter()
        answer = client.get(path)
        taken.append(1000 * (time.perf_counter() - began))
        answer.raise_for_status()
        size = len(answer.content)
    return Timed(taken, 1000 * (cpu_of(pid) - before) / times, size)


def measure(options: argparse.Namespace) -> Report:
    """Fill a window, then ask for every page."""
    count: int = options.documents
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        progress(f"{count:,} documents")
        write(folder / "annotated.jsonl", count, options.largest)
        size = (folder / "annotated.jsonl").stat().st_size
        progress("filling")
        with serving(folder, count) as (client, pid):
            began = time.monotonic()
            _until(client, "/search", "status done", _FILL_SECONDS)
            seconds, cpu = time.monotonic() - began, cpu_of(pid)
            held = sum(one.stat().st_size for one in folder.glob("window.db*"))
            rows: list[Row] = []
            for page, path in pages(client).items():
                progress(page)
                time_page(client, pid, path, 3)
                waits, spent, answer = time_page(client, pid, path, options.times)
                p50, p99 = np.percentile(waits, [50, 99]).tolist()
                fast = "yes" if p99 < TARGET else "no"
                rows.append([page, p50, p99, max(waits), spent, answer, fast])
    return _report(options, [count, size, held, seconds, count / seconds, count / cpu], rows)


def _report(options: argparse.Namespace, filled: Row, rows: Sequence[Row]) -> Report:
    fill = Table(
        "Filling the window",
        "From an annotated file. *Rate* is by the clock while the page is looked at five times a "
        "second, *of CPU* by the CPU time of the whole process.",
        columns(
            "documents|,.0f",
            "file, bytes|,.0f",
            "window, bytes|,.0f",
            "seconds|.1f",
            "rate, docs/s|,.0f",
            "of CPU, docs/s|,.0f",
        ),
        [filled],
    )
    shown = Table(
        "Pages",
        f"Each {options.times} times over HTTP, one after the other; the largest group has about "
        f"{options.largest:,} documents. Milliseconds, *CPU* of the server; *fast* is p99 below "
        f"{TARGET}.",
        columns("page", "p50|.1f", "p99|.1f", "longest|.1f", "CPU|.1f", "bytes|,.0f", "fast"),
        list(rows),
    )
    facts = machine.facts() | {"SQLite": sqlite3.sqlite_version, "FastAPI": version("fastapi")}
    where = Table(
        "Where", "It was measured on this.", columns("", ""), list(map(list, facts.items()))
    )
    return Report("Review page", [fill, shown, where])


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000, help="documents in the window")
    parser.add_argument("--largest", type=int, default=100_000, help="documents in one group")
    parser.add_argument("--times", type=int, default=100, help="times that each page is asked for")
    parser.add_argument("--folder", type=Path, help="where there is room for files of some GB")
    run(parser, measure)


if __name__ == "__main__":
    main()
