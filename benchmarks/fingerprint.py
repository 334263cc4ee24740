"""From text to fingerprint on one core: rate, share of each stage, and the rate of peers."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar
from unittest import mock

from benchmarks import documents
from benchmarks.peers import PeerFigure, ask
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
PEERS = ("rensa", "datasketch", "simhash")
#: Texts handed over together, as ``stream-dedup run`` does.
BATCH = 1024
REPEATS = 3
#: Peers take the first documents of each kind, so many words of them.
PEER_WORDS = 200_000
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


def fastest(fingerprinter: Fingerprinter, texts: Sequence[str]) -> float:
    """Return documents per second of CPU time, the best of some runs."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for start in range(0, len(texts), BATCH):
            fingerprinter.fingerprint(texts[start : start + BATCH])
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


def peer_figures(case: Case, at_most: int) -> dict[str, PeerFigure | None]:
    """Let every peer fingerprint the first of the documents."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "documents.jsonl"
        documents.write(path, case.documents[:at_most])
        return {peer: ask(peer, "fingerprint", path) for peer in PEERS}


def measure(options: argparse.Namespace) -> Report:
    """Measure every kind of document with both methods and all peers."""
    rates: list[Row] = []
    choices: list[Row] = []
    parts: list[Row] = []
    versions: dict[str, str] = {}
    for case in cases(options.characters):
        progress(f"{case.language}, {case.words} words, {len(case.documents)} documents")
        own = {}
        with one_cpu():
            for method in (Method.MINHASH, Method.SIMHASH):
                fingerprinter = Fingerprinter(Settings(method=method))
                own[method] = fastest(fingerprinter, case.texts)
                parts.append(
                    [method, case.language, case.words, *shares(fingerprinter, case.texts)]
                )
            choices.append([f"{case.language}, {case.words} words", *choice_rates(case)])
        found = peer_figures(case, PEER_WORDS // case.words)
        versions |= {peer: figure.version for peer, figure in found.items() if figure}
        compared = chain.from_iterable(_compared(*item, own) for item in found.items())
        rates.append([f"{case.language}, {case.words} words", *own.values(), *compared])
    return Report(
        "Fingerprints", [_rate_table(rates), _choice_table(choices), _share_table(parts)], versions
    )


def _compared(peer: str, figure: PeerFigure | None, own: dict[Method, float]) -> Row:
    """Return a peer's rate, and how many times ours is that."""
    if figure is None:
        return ["not installed", None]
    rate = figure.documents / figure.cpu
    return [rate, own[Method.SIMHASH if peer == "simhash" else Method.MINHASH] / rate]


def _rate_table(rows: list[Row]) -> Table:
    names = chain.from_iterable((f"{peer}|,.0f", f"ours / {peer}|.1f") for peer in PEERS)
    note = (
        f"{_NOTE} Peers make MinHash fingerprints of 128 permutations (rensa, "
        "datasketch) or 64-bit SimHash on shingles of the same three words, one document at a "
        f"time, as their interfaces have it, the first {PEER_WORDS:,} words of the same texts, "
        "the best of as many runs; the ratio takes our MinHash or SimHash accordingly."
    )
    header = columns("documents", "MinHash|,.0f", "SimHash|,.0f", *names)
    return Table("From text to fingerprint", note, header, rows)


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
