"""The error of the resemblance estimate and the recall of the bands, beside classic MinHash."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.processes import one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.classic import ClassicMinHash
from stream_dedup.fingerprint.minhash import BINS, MinHash
from stream_dedup.settings import Settings
from stream_dedup.tables.bands import BandDesign, find_probability
from stream_dedup.text.shingles import Hashes, Shingles

SIZES = (20, 50, 150, 500, 2000)
RESEMBLANCES = (0.5, 0.7, 0.8, 0.9)
#: Pairs that are worked on together; their arrays stay in a core's cache.
_TOGETHER = 20

Estimates = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
#: Takes the sets on the left and on the right of pairs, (pairs, shingles) each; returns for each
#: pair the estimated resemblance, and whether a band is equal.
Compare = Callable[[Hashes, Hashes], tuple[Estimates, Flags]]


class Measured(NamedTuple):
    """What was found for one size and resemblance.

    Attributes:
        bias: mean of the estimates less the true resemblance.
        error: root mean square of the same difference.
        recall: share of the pairs that have an equal band.
    """

    bias: float
    error: float
    recall: float


class Method:
    """A fingerprint method: sketches for the estimate, table keys for the bands."""

    def __init__(self, method: MinHash | ClassicMinHash) -> None:
        self._method = method
        self.design = method.design

    def compare(self, left: Hashes, right: Hashes) -> tuple[Estimates, Flags]:
        """Compare sets pair by pair."""
        left_keys, left_sketches = self._method.fingerprint(_as_shingles(left))
        right_keys, right_sketches = self._method.fingerprint(_as_shingles(right))
        estimates, _ = self._method.compare(left_sketches, right_sketches)
        return estimates, (left_keys == right_keys).any(axis=1)


def _as_shingles(sets: Hashes) -> Shingles:
    count, size = sets.shape
    return Shingles(sets.reshape(-1), np.arange(count + 1, dtype=np.int64) * size)


def shared_shingles(size: int, resemblance: float) -> int:
    """Return how many shingles two sets of this size share at (nearly) this resemblance."""
    return round(2 * size * resemblance / (1 + resemblance))


def measure_pairs(
    compares: list[Compare], size: int, shared: int, pairs: int, seed: int
) -> list[Measured]:
    """Compare random pairs of sets by each method; the same pairs for all."""
    random = np.random.PCG64([seed, size, shared])
    truth = shared / (2 * size - shared)
    estimates: list[list[Estimates]] = [[] for _ in compares]
    flags: list[list[Flags]] = [[] for _ in compares]
    for _ in range(0, pairs, _TOGETHER):
        drawn = random.random_raw(_TOGETHER * (2 * size - shared)).reshape(_TOGETHER, -1)
        left, right = drawn[:, :size], drawn[:, size - shared :]
        for number, compare in enumerate(compares):
            estimated, found = compare(np.ascontiguousarray(left), np.ascontiguousarray(right))
            estimates[number].append(estimated)
            flags[number].append(found)
    return [
        _summary(np.concatenate(estimated) - truth, np.concatenate(found))
        for estimated, found in zip(estimates, flags, strict=True)
    ]


def _summary(errors: Estimates, found: Flags) -> Measured:
    return Measured(float(errors.mean()), float(np.sqrt((errors**2).mean())), float(found.mean()))


def measure(options: argparse.Namespace) -> Report:
    """Measure all sizes and resemblances."""
    own = Method(MinHash(Settings()))
    classic = Method(ClassicMinHash(Settings(minhash="classic")))
    errors: list[Row] = []
    recalls: list[Row] = []
    with one_cpu():
        for size in SIZES:
            progress(f"sets of {size} shingles")
            for wanted in RESEMBLANCES:
                shared = shared_shingles(size, wanted)
                truth = shared / (2 * size - shared)
                ours, theirs = measure_pairs(
                    [own.compare, classic.compare], size, shared, options.pairs, options.seed
                )
                pair = (ours.bias, theirs.bias, ours.error, theirs.error)
                errors.append([size, truth, *pair, ours.error / theirs.error])
                theory = find_probability(truth, own.design)
                recalls.append([size, truth, theory, ours.recall, theirs.recall])
    tables = [_error_table(errors, options.pairs), _recall_table(recalls, own.design)]
    return Report("MinHash: error and recall", tables)


def _error_table(rows: list[Row], pairs: int) -> Table:
    note = (
        f"{pairs:,} random pairs of sets of each size and resemblance. Bias and root mean square "
        f"error of the resemblance estimated from our sketch ({BINS} bins of one permutation, 8 "
        f"bits each, {BINS} bytes) and from {SIGNATURE_VALUES} classic permutations (`minhash = "
        f"classic`; 8 bits each, {SIGNATURE_VALUES} bytes). Below 1 in the last column ours is "
        "the more exact."
    )
    header = columns("shingles|d", "resemblance|.3f", "bias, ours|+.4f", "bias, classic|+.4f")
    more = columns("error, ours|.4f", "error, classic|.4f", "ours / classic|.2f")
    return Table("Error of the estimate", note, [*header, *more], rows)


def _recall_table(rows: list[Row], design: BandDesign) -> Table:
    note = (
        f"Share of the same pairs that agree in at least one of {design.bands} bands of "
        f"{design.rows} values, which makes them candidates, beside the theory "
        f"1 - (1 - J^{design.rows})^{design.bands}. Ours are the library's own table keys."
    )
    header = columns("shingles|d", "resemblance|.3f", "theory|.1%", "ours|.1%", "classic|.1%")
    return Table("Recall of the bands", note, header, rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=4000, help="pairs of each kind")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same figures")
    run(parser, measure)


if __name__ == "__main__":
    main()
