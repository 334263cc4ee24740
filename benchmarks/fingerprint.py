"""From text to fingerprint on one core: rate, share of each stage, and the rate of peers."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar
from unittest import mock

from benchmarks import documents
from benchmarks.peers import PeerFigure, ask, cpu_of, package
from benchmarks.processes import one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint import fingerprinter as stages
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.frequencies import Frequencies
from stream_dedup.fingerprint.hashing import frequencies_origin
from stream_dedup.fingerprint.weights import distinct
from stream_dedup.generate import GeneratedDocument, Language, StreamShape, generate
from stream_dedup.settings import Settings
from stream_dedup.text.normalize import normalize
from stream_dedup.text.shingles import word_shingles
from stream_dedup.types import Method

P = ParamSpec("P")
R = TypeVar("R")

LENGTHS = (15, 150, 1500)
LANGUAGES: tuple[Language, ...] = ("en", "ko")
#: Peers, by the method of ours that they stand beside.
PEERS = {
    Method.MINHASH: ("gaoya", "rensa", "datasketch"),
    Method.SIMHASH: ("gaoya-simhash", "simhash"),
}
#: How peers cut texts: the quickest way in Python, what gaoya does and the benchmarks of rensa do.
SHINGLE = "space:3"
#: Texts handed over together, as ``stream-dedup run`` does.
BATCH = 1024
REPEATS = 3
#: Peers take the first documents of each kind, so many words of them.
PEER_WORDS = 200_000
#: As many of ours go one a call.
PEER_DOCUMENTS = 2_000
#: We and the peers take turns so often.
ROUNDS = 3
#: Peers whose shingles are cut in Python beforehand.
PYTHON_SHINGLES = ("rensa", "datasketch")
#: Every kind of fingerprint but the two that are compared with peers, by setting name.
CHOICES: dict[str, dict[str, str | int]] = {
    "MinHash, classic": {"method": "minhash", "minhash": "classic"},
    "SimHash, 128 bits": {"method": "simhash", "simhash_bits": 128},
    "SimHash, weights one": {"method": "simhash", "weights": "one"},
    "SimHash, tf-idf": {"method": "simhash", "weights": "tfidf"},
    "fused": {"method": "fused"},
}
STAGES = ("normalise", "digest", "tokens and shingles", "sketch or bits, keys", "the rest")

_NOTE = (
    "Documents per second of one core's CPU time, from `str` to digest, table keys and sketch, in "
    f"batches of {BATCH:,}; the best of {REPEATS} runs."
)
_MICROS = (
    "Microseconds of one core's CPU time for a document, from `str` in memory to the fingerprint: "
    "ours with digest and table keys, in batches of "
    f"{BATCH:,} and with one document a call; peers by the fastest way "
    "that they document (see `peer_program.py`), on the same three words, the first "
    "%s words of the same texts. We and they take turns, three rounds; each figure is the best of "
    "nine runs. *Times* is the peer's time beside ours in batches. "
)


class Own(NamedTuple):
    """What our own fingerprints take, in documents per second.

    Attributes:
        rate: in batches.
        single: one document a call.
        shares: share of each stage, in batches.
    """

    rate: float
    single: float
    shares: list[float]

    @property
    def micros(self) -> float:
        """Microseconds for a document, in batches."""
        return 1e6 / self.rate

    def stage(self, name: str) -> float:
        """Return microseconds of a stage for a document, in batches."""
        return self.micros * self.shares[STAGES.index(name)]


class Laps:
    """CPU time between the stages of a fingerprint, which follow each other chunk by chunk."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._last = 0.0

    def lap(self, stage: str) -> None:
        """Book the time since the last lap to a stage."""
        now = time.process_time()
        self.seconds[stage] += now - self._last
        self._last = now

    def start(self) -> None:
        """Begin the first lap."""
        self._last = time.process_time()

    def around(self, function: Callable[P, R], before: str, during: str) -> Callable[P, R]:
        """Return the function with a lap before and after it."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            self.lap(before)
            result = function(*args, **kwargs)
            self.lap(during)
            return result

        return timed


class Case(NamedTuple):
    """One kind of document."""

    language: Language
    words: int
    documents: list[GeneratedDocument]

    @property
    def name(self) -> str:
        """Return what rows call it."""
        return f"{self.language}, {self.words} words"

    @property
    def texts(self) -> list[str]:
        """Return the texts."""
        return [document.text for document in self.documents]


def cases(characters: int) -> Iterator[Case]:
    """Yield originals of each language and length, about as many characters of each."""
    for language in LANGUAGES:
        for words in LENGTHS:
            count = max(200, characters // (6 * words))
            shape = StreamShape(
                documents=count, duplicate_share=0, exact_share=1, words=words, language=language
            )
            yield Case(language, words, list(generate(shape)))


def fastest(fingerprinter: Fingerprinter, texts: Sequence[str], batch: int = BATCH) -> float:
    """Return documents per second of CPU time, the best of some runs."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for start in range(0, len(texts), batch):
            fingerprinter.fingerprint(texts[start : start + batch])
        best = min(best, time.process_time() - began)
    return len(texts) / best


@contextmanager
def timed_stages(fingerprinter: Fingerprinter) -> Iterator[Laps]:
    """Take the time of each stage: the library's own functions, with clocks around them."""
    laps = Laps()
    _, digest, shingle, method, rest = STAGES
    wrapped = [
        (stages, "normalize", laps.around(normalize, rest, STAGES[0])),
        (stages, "word_shingles", laps.around(word_shingles, digest, shingle)),
        (
            fingerprinter.method,
            "fingerprint",
            laps.around(fingerprinter.method.fingerprint, shingle, method),
        ),
    ]
    with ExitStack() as stack:
        for owner, name, replacement in wrapped:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        laps.start()
        yield laps
        laps.lap(rest)


def shares(fingerprinter: Fingerprinter, texts: Sequence[str]) -> list[float]:
    """Return the share of CPU time of each stage."""
    with timed_stages(fingerprinter) as laps:
        for start in range(0, len(texts), BATCH):
            fingerprinter.fingerprint(texts[start : start + BATCH])
    total = sum(laps.seconds.values())
    return [laps.seconds[stage] / total for stage in STAGES]


def choice_rates(case: Case) -> Iterator[float]:
    """Yield the documents per second of each of ``CHOICES``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learned.freq"
        frequencies = Frequencies(frequencies_origin(Settings()))
        shingles = distinct(Fingerprinter(Settings()).shingles(case.texts[:BATCH]))
        frequencies.add(shingles.hashes, len(case.texts[:BATCH]))
        frequencies.write(path)
        for values in CHOICES.values():
            settings = Settings.model_validate({"frequencies_file": path, **values})
            yield fastest(Fingerprinter(settings), case.texts)


def own_figure(method: Method, texts: Sequence[str]) -> Own:
    """Fingerprint texts by ourselves."""
    fingerprinter = Fingerprinter(Settings(method=method))
    few = texts[:PEER_DOCUMENTS]
    return Own(
        fastest(fingerprinter, texts), fastest(fingerprinter, few, 1), shares(fingerprinter, texts)
    )


def own_figures(texts: Sequence[str]) -> dict[Method, Own]:
    """Fingerprint texts by both methods, on one CPU."""
    with one_cpu():
        return {method: own_figure(method, texts) for method in PEERS}


def measure_case(
    case: Case, at_most: int
) -> tuple[dict[Method, Own], dict[str, PeerFigure | None]]:
    """Let us and every peer fingerprint the same texts in turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "documents.jsonl"
        documents.write(path, case.documents[:at_most])
        own: list[dict[Method, Own]] = []
        found: dict[str, list[PeerFigure | None]] = {
            peer: [] for peers in PEERS.values() for peer in peers
        }
        for _ in range(ROUNDS):
            own.append(own_figures(case.texts))
            for peer, figures in found.items():
                figures.append(ask(peer, "fingerprint", path, "--shingle", SHINGLE))
    best = {method: max((one[method] for one in own), key=lambda one: one.rate) for method in PEERS}
    return best, {peer: min(figures, key=cpu_of) for peer, figures in found.items()}


def measure(options: argparse.Namespace) -> Report:
    """Measure every kind of document with both methods and all peers."""
    rates: dict[Method, list[Row]] = {method: [] for method in PEERS}
    sketches: list[Row] = []
    choices: list[Row] = []
    parts: list[Row] = []
    versions: dict[str, str] = {}
    for case in cases(options.characters):
        progress(f"{case.language}, {case.words} words, {len(case.documents)} documents")
        own, found = measure_case(case, PEER_WORDS // case.words)
        with one_cpu():
            choices.append([case.name, *choice_rates(case)])
        versions |= {package(peer): figure.version for peer, figure in found.items() if figure}
        for method, figure in own.items():
            parts.append([method, case.language, case.words, *figure.shares])
            rates[method].append([case.name, *_compared(figure, found, PEERS[method])])
        sketches.append([case.name, *_sketches(own[Method.MINHASH], found)])
    tables = [
        _rate_table(Method.MINHASH, rates),
        _sketch_table(sketches),
        _rate_table(Method.SIMHASH, rates),
        _choice_table(choices),
        _share_table(parts),
    ]
    return Report("Fingerprints", tables, versions)


def _compared(own: Own, found: Mapping[str, PeerFigure | None], peers: Sequence[str]) -> Row:
    """Return our times, and for each peer: its time, that of its shingles, and the ratio."""
    row: Row = [own.rate, own.micros, 1e6 / own.single]
    for peer in peers:
        figure = found[peer]
        if figure is None:
            row += [None] * len(_columns_of(peer))
            continue
        row.append(figure.micros)
        if not _cuts_itself(peer):
            row.append(figure.stage("shingles"))
        row.append(figure.micros / own.micros)
    return row


def _sketches(own: Own, found: Mapping[str, PeerFigure | None]) -> Row:
    row: Row = [own.stage("sketch or bits, keys")]
    for peer in PYTHON_SHINGLES:
        figure = found[peer]
        made = None if figure is None else figure.stage("fingerprint")
        row += [made, None if made is None else made / own.stage("sketch or bits, keys")]
    return row


def _cuts_itself(peer: str) -> bool:
    return package(peer) == "gaoya"


def _columns_of(peer: str) -> list[str]:
    shingles = [] if _cuts_itself(peer) else [f"{peer}, its shingles µs|.1f"]
    return [f"{peer} µs|.1f", *shingles, f"times {peer}|.2f"]


def _rate_table(method: Method, rates: Mapping[Method, list[Row]]) -> Table:
    note = _MICROS % f"{PEER_WORDS:,}"
    if method is Method.MINHASH:
        note += (
            "Signatures of 128 values, of gaoya 96, in 16 bands. rensa and datasketch take "
            "shingles that are ready, so to cut them is left to the caller and here done in "
            "Python; that is a part of their time."
        )
    else:
        note += "64 bits; simhash takes shingles that are ready, cut in Python."
    peers = [column for peer in PEERS[method] for column in _columns_of(peer)]
    own = ("documents", "documents/s|,.0f", "µs|.1f", "µs, one a call|.1f")
    title = f"From text to {'MinHash' if method is Method.MINHASH else 'SimHash'} fingerprint"
    return Table(title, note, columns(*own, *peers), rates[method])


def _sketch_table(rows: list[Row]) -> Table:
    note = (
        "The part of the table above that makes signatures of shingles, in microseconds of CPU "
        "time for a document: ours from hashes of the shingles to sketch and table keys, the "
        "peers' from shingles as strings or bytes, which they hash, to a signature without keys. "
        "*Times* as above: below 1, the peer is faster."
    )
    peers = (
        column for peer in PYTHON_SHINGLES for column in (f"{peer} µs|.1f", f"times {peer}|.2f")
    )
    header = columns("documents", "stream-dedup µs|.1f", *peers)
    return Table("From shingles to MinHash signature", note, header, rows)


def _choice_table(rows: list[Row]) -> Table:
    note = f"{_NOTE} The same for the other kinds of fingerprint."
    return Table(
        "Every kind", note, columns("documents", *(f"{name}|,.0f" for name in CHOICES)), rows
    )


def _share_table(rows: list[Row]) -> Table:
    note = (
        "Share of CPU time in each stage, by clocks around the library's own functions. The rest "
        "is cutting the batch into chunks and copying results into place."
    )
    header = columns("method", "language", "words|d", *(f"{stage}|.0%" for stage in STAGES))
    return Table("Stages of a fingerprint", note, header, rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--characters", type=int, default=6_000_000, help="text of each kind, about so long"
    )
    run(parser, measure)


if __name__ == "__main__":
    main()
