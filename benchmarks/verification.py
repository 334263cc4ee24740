"""What each kind of evidence takes: bytes of an original, time of a pair, error of the estimate.

Run: python -m benchmarks.verification
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.processes import one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.settings import Settings
from stream_dedup.types import Measure, Method, VerifyBy
from stream_dedup.verify.evidence import Evidence, Scores

#: Words of a document, and how many pairs of such documents are compared.
SIZES = {150: 512, 2_000: 256, 20_000: 32}
#: Share of the words that are others in a near copy: resemblance of about 0.85 by 3-word shingles.
CHANGED = 0.027
_WORDS = 20_000
_TIMES = 5

#: What is measured. Of evidence on shingles all measures take the same time.
WAYS = [
    Settings(),
    Settings(method=Method.SIMHASH),
    *(Settings(verify_by=kind) for kind in VerifyBy if kind not in {"sketch", "text"}),
    *(Settings(verify_by=VerifyBy.TEXT, measure=one) for one in (Measure.LCS, Measure.EDIT)),
]
EXACT = Settings(verify_by=VerifyBy.SHINGLES)


class Texts(NamedTuple):
    """Documents of one size: the originals, a near copy of each, and as many strangers."""

    originals: list[str]
    copies: list[str]
    strangers: list[str]


def draw(words: int, pairs: int) -> Texts:
    """Draw documents of random words."""
    rng = random.Random(words)

    def text() -> list[str]:
        return [f"w{rng.randrange(_WORDS):x}" for _ in range(words)]

    originals = [text() for _ in range(pairs)]
    copies = [list(one) for one in originals]
    for copy in copies:
        for _ in range(round(words * CHANGED)):
            copy[rng.randrange(words)] = f"w{rng.randrange(_WORDS):x}"
    joined = [
        [" ".join(one) for one in part] for part in (originals, copies, [text() for _ in copies])
    ]
    return Texts(*joined)


def per_pair(compare: Callable[[], object], pairs: int) -> float:
    """Return the microseconds of CPU time for a pair, the best of some runs."""
    best = float("inf")
    for _ in range(_TIMES):
        began = time.process_time()
        compare()
        best = min(best, time.process_time() - began)
    return best / pairs * 1e6


def evidence_of(settings: Settings, texts: list[str]) -> Evidence:
    """Return what is kept of each text."""
    return Fingerprinter(settings).fingerprint(texts).evidence


def measure_one(settings: Settings, texts: Texts, truth: Scores) -> Row:
    """Measure one way on documents of one size."""
    printer = Fingerprinter(settings)
    sides = [evidence_of(settings, part) for part in texts]
    original, copy, stranger = sides
    pairs = len(texts.originals)
    compare = printer.verifier.compare
    size = original.sketches.shape[1] + sum(map(len, original.payloads)) / pairs
    near = per_pair(lambda: compare(original, copy), pairs)
    far = per_pair(lambda: compare(original, stranger), pairs)
    made = per_pair(lambda: printer.fingerprint(texts.originals), pairs)
    estimates = settings.measure is Measure.RESEMBLANCE and not settings.by_hamming
    error = _error(compare(original, copy)[0], truth) if estimates else None
    name = "simhash" if settings.by_hamming else settings.verify_by.value
    measure = "Hamming distance" if settings.by_hamming else settings.measure.value
    return [name, measure, len(texts.originals[0].split()), size, made, near, far, error]


def _error(found: Scores, truth: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean((found - truth) ** 2)))


def measure(_options: argparse.Namespace) -> Report:
    """Measure all ways on documents of all sizes."""
    rows: list[Row] = []
    with one_cpu():
        for words, pairs in SIZES.items():
            progress(f"documents of {words:,} words")
            texts = draw(words, pairs)
            exact = [evidence_of(EXACT, part) for part in (texts.originals, texts.copies)]
            truth = Fingerprinter(EXACT).verifier.compare(*exact)[0]
            rows += [measure_one(settings, texts, truth) for settings in WAYS]
    header = columns("evidence", "measure", "words|,d", "bytes/original|,.0f")
    header += columns("µs to fingerprint|,.0f", "µs/near pair|,.1f", "µs/other pair|,.1f")
    header += columns("error|.4f")
    return Report("Verification", [Table("Evidence and measures", _NOTE, header, rows)])


_NOTE = (
    "Documents of random words. A near pair has a resemblance of about 0.85, another pair nothing "
    "in common; times are CPU time. To fingerprint a document includes tables and evidence. The "
    "error is the root mean square error of the resemblance of near pairs, against that of all "
    "shingles."
)


def main() -> None:
    """Run from the command line."""
    run(arguments(__doc__), measure)


if __name__ == "__main__":
    main()
