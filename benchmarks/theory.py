"""Fingerprints held to their theory: the estimate's error, the bands, and SimHash's angle.

Run: python -m benchmarks.theory [--plot docs/images/theory.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.minhash_error import Measured, Method, measure_pairs, shared_shingles
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.classic import ClassicMinHash
from stream_dedup.fingerprint.minhash import BINS, MinHash
from stream_dedup.fingerprint.simhash import simhash
from stream_dedup.settings import Settings
from stream_dedup.tables.bands import find_probability
from stream_dedup.text.shingles import Shingles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Shingles in a set; odd, so that no bit of a SimHash is a tie.
SIZE = 151
RESEMBLANCES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BITS = 64
BLUE, ORANGE, GREY = "#2b8cd6", "#e08214", "#8a8f98"


class Point(NamedTuple):
    """What was measured at one resemblance, and what theory says.

    Attributes:
        resemblance: of the pairs, exact.
        ours: one-permutation hashing.
        classic: one function for each value.
        expected: root mean square errors that theory gives, ours and classic.
        found: share of pairs that share a table key that theory gives.
        distance: mean Hamming distance of the SimHashes.
        angle: the mean that their angle gives.
    """

    resemblance: float
    ours: Measured
    classic: Measured
    expected: tuple[float, float]
    found: float
    distance: float
    angle: float


def one_permutation_error(resemblance: float, union: int) -> float:
    """Return the root mean square error of our estimate (Li, Owen, Zhang 2012, section 3).

    The variance of matching / filled bins, J (1 - J) (E[1 / m] (1 + 1 / (f - 1)) - 1 / (f - 1)) for
    f shingles in the union and m filled bins, with E[1 / m] taken as 1 / E[m]. Two values that
    differ agree in their 8 bits, which are 1 to 255, with a probability of 1/255: that adds a
    bias and some variance.
    """
    accident = 1 / 255
    filled = BINS * (1 - (1 - 1 / BINS) ** union)
    rest = 1 / (union - 1)
    variance = resemblance * (1 - resemblance) * ((1 + rest) / filled - rest)
    variance *= (1 - accident) ** 2
    variance += (1 - resemblance) * accident * (1 - accident) / filled
    bias = (1 - resemblance) * accident
    return float(np.sqrt(variance + bias**2))


def classic_error(resemblance: float) -> float:
    """Return the same for 128 functions of 8 bits each (Li and Koenig 2010, theorem 2)."""
    accident = 1 / 256
    agreeing = resemblance + (1 - resemblance) * accident
    return float(np.sqrt(agreeing * (1 - agreeing) / SIGNATURE_VALUES)) / (1 - accident)


def measure_distance(shared: int, pairs: int, seed: int) -> float:
    """Return the mean Hamming distance of random sets of SIZE that share so many shingles."""
    random = np.random.PCG64([seed, shared])
    drawn = random.random_raw(pairs * (2 * SIZE - shared)).reshape(pairs, -1)
    starts = np.arange(pairs + 1, dtype=np.int64) * SIZE
    left, right = (
        simhash(Shingles(np.ascontiguousarray(part).reshape(-1), starts))
        for part in (drawn[:, :SIZE], drawn[:, SIZE - shared :])
    )
    return float(np.bitwise_count(left ^ right).mean())


def measure_point(wanted: float, pairs: int, seed: int) -> Point:
    """Measure one resemblance."""
    shared = shared_shingles(SIZE, wanted)
    union = 2 * SIZE - shared
    truth = shared / union
    own = Method(MinHash(Settings()))
    classic = Method(ClassicMinHash(Settings(minhash="classic")))
    ours, theirs = measure_pairs([own.compare, classic.compare], SIZE, shared, pairs, seed)
    return Point(
        truth,
        ours,
        theirs,
        (one_permutation_error(truth, union), classic_error(truth)),
        find_probability(truth, own.design),
        measure_distance(shared, pairs, seed),
        BITS * float(np.arccos(shared / SIZE)) / np.pi,
    )


def measure(options: argparse.Namespace) -> Report:
    """Measure every resemblance; draw it if there is a file to draw to."""
    points = []
    for resemblance in RESEMBLANCES:
        progress(f"resemblance {resemblance}")
        points.append(measure_point(resemblance, options.pairs, options.seed))
    if options.plot:
        draw(points, options.plot)
    return Report("Fingerprints and their theory", [_table(points, options.pairs)])


def _table(points: list[Point], pairs: int) -> Table:
    rows: list[Row] = [
        [
            one.resemblance,
            *(one.ours.error, one.expected[0], one.ours.error / one.expected[0]),
            *(one.classic.error, one.expected[1], one.classic.error / one.expected[1]),
            *(one.ours.recall, one.found, one.distance, one.angle),
        ]
        for one in points
    ]
    note = (
        f"{pairs:,} random pairs of sets of {SIZE} shingles at each resemblance. Root mean square "
        "error of the estimated resemblance, and its ratio to the theory; share of the pairs that "
        "have a table key in common beside 1 - (1 - J^r)^b; mean Hamming distance of their "
        "SimHashes beside 64 times the angle of the sets, over pi."
    )
    errors = columns("error, ours|.4f", "theory|.4f", "ratio|.2f")
    classic = columns("error, classic|.4f", "theory|.4f", "ratio|.2f")
    more = columns("share a key|.4f", "theory|.4f", "Hamming|.2f", "angle|.2f")
    header = [*columns("resemblance|.3f"), *errors, *classic, *more]
    return Table("Measured and expected", note, header, rows)


def draw(points: list[Point], path: Path) -> None:
    """Draw the three pictures side by side."""
    # Imported here because the figures can be had without it.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    axes = figure.subplots(1, 3)
    at = np.array([one.resemblance for one in points])
    _draw_errors(axes[0], at, points)
    _draw_bands(axes[1], at, points)
    _draw_angle(axes[2], points)
    for one in axes:
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
        one.legend(frameon=False)
    figure.savefig(path, dpi=144)


def _draw_errors(axes: Axes, at: npt.NDArray[np.float64], points: list[Point]) -> None:
    axes.plot(at, [one.expected[0] for one in points], color=BLUE, label="theory, ours")
    axes.plot(at, [one.ours.error for one in points], "o", color=BLUE, label="measured, ours")
    axes.plot(at, [one.expected[1] for one in points], color=ORANGE, label="theory, classic")
    axes.plot(at, [one.classic.error for one in points], "o", color=ORANGE, label="classic")
    axes.set(title="Error of the MinHash estimate", xlabel="resemblance", ylabel="RMS error")
    axes.set_ylim(bottom=0)


def _draw_bands(axes: Axes, at: npt.NDArray[np.float64], points: list[Point]) -> None:
    design = MinHash(Settings()).design
    fine = np.linspace(0, 1, 200)
    curve = [find_probability(one, design) for one in fine.tolist()]
    label = f"1 - (1 - J^{design.rows})^{design.bands}"
    axes.plot(fine, curve, color=GREY, label=label)
    axes.plot(at, [one.ours.recall for one in points], "o", color=BLUE, label="ours")
    axes.plot(at, [one.classic.recall for one in points], "x", color=ORANGE, label="classic")
    axes.set(title="Pairs with a table key in common", xlabel="resemblance", ylabel="share")


def _draw_angle(axes: Axes, points: list[Point]) -> None:
    angles = [one.angle for one in points]
    axes.plot([0, max(angles)], [0, max(angles)], color=GREY, label="theory")
    axes.plot(angles, [one.distance for one in points], "o", color=BLUE, label="ours")
    axes.set(title="SimHash follows the angle", xlabel="64 angle / pi", ylabel="mean distance")


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs of each resemblance")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same figures")
    parser.add_argument("--plot", type=Path, help="picture to draw (PNG or SVG)")
    run(parser, measure)


if __name__ == "__main__":
    main()
