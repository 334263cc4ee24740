"""Documents in memory beside peers: fingerprint, look up and insert, stage by stage."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks import documents
from benchmarks.documents import Found
from benchmarks.embedded import FOUND, FOUND_COLUMNS, original_of
from benchmarks.peers import PeerFigure, ask, least, package
from benchmarks.processes import one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.generate import GeneratedDocument, Language
from stream_dedup.settings import Settings
from stream_dedup.types import Decision, Document, Method

#: Documents in a call.
BATCH = 1024
#: How peers cut texts: the quickest way in Python, what gaoya does and the benchmarks of rensa do.
SHINGLE = "space:3"
#: We and the peers take turns so often.
ROUNDS = 3
LANGUAGES: tuple[Language, ...] = ("en", "ko")
LENGTHS = (15, 150, 1500)
#: Ways of ours, by name: method, and documents in a call.
OURS = {
    "stream-dedup": (Method.MINHASH, BATCH),
    "stream-dedup, one a call": (Method.MINHASH, 1),
    "stream-dedup, simhash": (Method.SIMHASH, BATCH),
    "stream-dedup, simhash, one a call": (Method.SIMHASH, 1),
    "stream-dedup, fused": (Method.FUSED, BATCH),
}
#: Ways of peers, by name: peer, method beside which it stands, and documents that are handed to its
#: program together. What has no calls for many is asked one by one there.
PEERS = {
    "gaoya, one a call": ("gaoya", Method.MINHASH, BATCH),
    "gaoya, in bulk": ("gaoya-bulk", Method.MINHASH, BATCH),
    "rensa": ("rensa", Method.MINHASH, BATCH),
    "rensa, one a call": ("rensa-single", Method.MINHASH, BATCH),
    "rensa, rho, all at once": ("rensa-rho", Method.MINHASH, 1 << 30),
    "datasketch, one a call": ("datasketch", Method.MINHASH, BATCH),
    "gaoya SimHash, one a call": ("gaoya-simhash", Method.SIMHASH, BATCH),
    "simhash, one a call": ("simhash", Method.SIMHASH, BATCH),
}
#: The fastest of these, which take documents of every kind.
FAST = {"gaoya, one a call": "gaoya", "rensa": "rensa"}
#: It flags originals as well, so what it found cannot be said.
_FLAGS = "rensa-rho"

_NOTE = (
    "Microseconds of CPU time for a document on one CPU, from `str` in memory to decision; no "
    "reading, no writing. *Shingles*: cut in Python, for peers that take them ready. "
    "*Fingerprint*: ours from the text, theirs from shingles. *Index*: look up, verify, insert, "
    "and ours to make the decision; gaoya takes texts, so its fingerprints are in it, that of an "
    "original twice, as its interface has it. Threshold .8 (SimHash: 64 bits, k = 3). In calls of "
    f"{BATCH:,} documents, or of one. Peers by the fastest way that they document, named in "
    "`peer_program.py`; rho samples token positions, takes the whole set at once, and flags "
    "originals with their copies, so it does another thing. *Times* is a peer's time beside ours: "
    f"below 1, the peer is faster. We and they take turns, {ROUNDS} rounds, the best counts. The "
    "documents are generated: real text has other lengths and words (see *Real text*). "
    f"{FOUND}"
)


class Answers(NamedTuple):
    """Decisions about generated documents, and the CPU time that they took.

    Attributes:
        documents: how many.
        fingerprint: seconds of it for fingerprints.
        cpu: seconds in all.
        found: what was found.
    """

    documents: int
    fingerprint: float
    cpu: float
    found: Found

    @property
    def micros(self) -> float:
        """Microseconds for a document."""
        return self.cpu / self.documents * 1e6


def decide(stream: Sequence[GeneratedDocument], method: Method, size: int) -> Answers:
    """Decide documents that are in memory already."""
    batch = [Document(document.id, document.text) for document in stream]
    decisions: list[Decision] = []
    making = 0.0
    with one_cpu(), Deduplicator(Settings(method=method)) as deduplicator:
        fingerprint = deduplicator.fingerprinter.fingerprint

        def timed(texts: Sequence[str], origins: Sequence[str] | None = None) -> object:
            nonlocal making
            started = time.process_time()
            prints = fingerprint(texts, origins)
            making += time.process_time() - started
            return prints

        deduplicator.fingerprinter.fingerprint = timed  # type: ignore[assignment,method-assign]
        began = time.process_time()
        for start in range(0, len(batch), size):
            decisions += deduplicator.decide(batch[start : start + size])
        cpu = time.process_time() - began
    found = documents.score(stream, [original_of(decision) for decision in decisions])
    return Answers(len(stream), making, cpu, found)


def cost(result: Answers | PeerFigure | None) -> float:
    """Return the CPU time of a run."""
    return 0.0 if result is None else result.cpu


def measure(options: argparse.Namespace) -> Report:
    """Measure all ways on one stream, then the fastest on every kind of document."""
    stream = documents.stream(options.documents)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, versions = _way_table(stream, folder, options.few)
        return Report("In memory", [table, _kind_table(folder, options.characters)], versions)


def _way_table(
    stream: Sequence[GeneratedDocument], folder: Path, few: int
) -> tuple[Table, dict[str, str]]:
    source = folder / "documents.jsonl"
    documents.write(source, stream)
    runs: dict[str, Callable[[], Answers | PeerFigure | None]] = {}
    for name, (method, size) in OURS.items():
        runs[name] = partial(decide, stream if size > 1 else stream[:few], method, size)
    for name, (peer, _, size) in PEERS.items():
        runs[name] = partial(_ask, peer, source, size)
    progress(f"{len(stream)} documents in memory")
    done = least(ROUNDS, runs, cost)
    rows: list[Row] = []
    versions = {}
    for name, result in done.items():
        if isinstance(result, Answers):
            rows.append(_own_row(name, result))
            continue
        peer, method, _ = PEERS[name]
        rows.append(_peer_row(name, result, stream, _beside(done, method)))
        if result is not None:
            versions[package(peer)] = result.version
    header = columns("library", "documents|,d", "shingles µs|.1f", "fingerprint µs|.1f")
    header += columns("index µs|.1f", "µs in all|.1f", "documents/s|,.0f")
    header += columns("times ours|.2f", "times ours, one a call|.2f")
    return Table("In memory beside peers", _NOTE, [*header, *FOUND_COLUMNS], rows), versions


def _ask(peer: str, source: Path, size: int) -> PeerFigure | None:
    return ask(peer, "decide", source, "--shingle", SHINGLE, "--batch", str(size))


def _beside(done: Mapping[str, Answers | PeerFigure | None], method: Method) -> tuple[float, float]:
    """Return our microseconds for a document with a method, in batches and one a call."""
    by_size = {}
    for name, (own, size) in OURS.items():
        answers = done[name]
        if own is method and isinstance(answers, Answers):
            by_size[size] = answers.micros
    return by_size[BATCH], by_size[1]


def _own_row(name: str, answers: Answers) -> Row:
    made = answers.fingerprint / answers.documents * 1e6
    micros = answers.micros
    rate = 1e6 / micros
    row: Row = [name, answers.documents, None, made, micros - made, micros, rate, None, None]
    return [*row, *answers.found]


def _peer_row(
    name: str,
    figure: PeerFigure | None,
    stream: Sequence[GeneratedDocument],
    own: tuple[float, float],
) -> Row:
    if figure is None:
        return [name, None, "not installed", *[None] * 9]
    peer, _, _ = PEERS[name]
    stages: list[float | None] = [
        figure.stage(stage) for stage in ("shingles", "fingerprint", "index")
    ]
    if package(peer) == "gaoya":
        stages[:2] = None, None
    found: Row = [None] * 3 if peer == _FLAGS else [*score(figure, stream)]
    micros = figure.micros
    ratios = [micros / one for one in own]
    return [name, figure.documents, *stages, micros, 1e6 / micros, *ratios, *found]


def score(figure: PeerFigure, stream: Sequence[GeneratedDocument]) -> Found:
    """Compare a peer's decisions with the truth."""
    attached = [None if at is None else stream[at].id for at in figure.attached]
    return documents.score(stream[: figure.documents], attached)


def _kind_table(folder: Path, characters: int) -> Table:
    rows: list[Row] = []
    for language, words in product(LANGUAGES, LENGTHS):
        stream = documents.stream(
            max(200, characters // (6 * words)), language=language, words=words
        )
        progress(f"{language}, {words} words, {len(stream)} documents")
        path = folder / "kind.jsonl"
        documents.write(path, stream)
        runs: dict[str, Callable[[], Answers | PeerFigure | None]] = {
            "stream-dedup": partial(decide, stream, Method.MINHASH, BATCH)
        }
        for name in FAST:
            peer, _, size = PEERS[name]
            runs[name] = partial(_ask, peer, path, size)
        rows.append([f"{language}, {words} words", *_kind_row(least(ROUNDS, runs, cost), stream)])
    names = (column for name in FAST.values() for column in (f"{name} µs|.1f", f"times {name}|.2f"))
    found = (f"found by {name}|.2%" for name in ("stream-dedup", *FAST.values()))
    note = (
        "As above, by language and length: microseconds of CPU time for a document, ours and "
        "rensa's in batches, gaoya's one a call, and its time beside ours; share of the copies "
        "that were attached to their original (exact ones only below "
        f"{documents.NEAR_WORDS} words)."
    )
    header = columns("documents", "number|,d", "stream-dedup µs|.1f", *names, *found)
    return Table("In memory, by kind of document", note, header, rows)


def _kind_row(
    done: Mapping[str, Answers | PeerFigure | None], stream: Sequence[GeneratedDocument]
) -> Row:
    own = done["stream-dedup"]
    assert isinstance(own, Answers)
    row: Row = [len(stream), own.micros]
    found: Row = [own.found.duplicates]
    for name in FAST:
        figure = done[name]
        if isinstance(figure, PeerFigure):
            row += [figure.micros, figure.micros / own.micros]
            found.append(score(figure, stream).duplicates)
        else:
            row += [None, None]
            found.append(None)
    return [*row, *found]


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=30_000, help="documents of the stream")
    parser.add_argument("--few", type=int, default=3_000, help="of these, ours one a call")
    parser.add_argument(
        "--characters", type=int, default=6_000_000, help="text of each other kind, about so long"
    )
    run(parser, measure)


if __name__ == "__main__":
    main()
