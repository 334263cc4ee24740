"""Pairs to label, drawn from strata of exact resemblance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_dedup.evaluate.documents import Corpus
from stream_dedup.evaluate.join import Pairs
from stream_dedup.evaluate.lists import SamplePair
from stream_dedup.evaluate.sets import Rows

#: Lower ends of the strata; the last ends with 1, the first begins with the floor.
STRATA = (0.5, 0.6, 0.7, 0.8, 0.9)


class Stratum(NamedTuple):
    """Pairs of similar resemblance.

    Attributes:
        name: its bounds, ``0.5-0.6``; the lower one is inside.
        pairs: numbers of its pairs.
    """

    name: str
    pairs: Rows


def strata(pairs: Pairs, bounds: tuple[float, ...] = STRATA) -> list[Stratum]:
    """Divide pairs by their resemblance, from the floor that they were found at up to 1."""
    edges = [pairs.threshold, *(bound for bound in bounds if bound > pairs.threshold), 1.0]
    which = np.searchsorted(edges[1:-1], pairs.resemblance, side="right")
    return [
        Stratum(f"{edges[at]:g}-{edges[at + 1]:g}", np.flatnonzero(which == at))
        for at in range(len(edges) - 1)
    ]


def allocate(available: list[int], wanted: int) -> list[int]:
    """Share ``wanted`` draws equally among strata; what a small one lacks goes to the others."""
    shares = [0] * len(available)
    while wanted > 0:
        open_ = [at for at, size in enumerate(available) if shares[at] < size]
        if not open_:
            break
        each = max(1, wanted // len(open_))
        for at in open_:
            more = min(each, available[at] - shares[at], wanted)
            shares[at] += more
            wanted -= more
    return shares


def sample(corpus: Corpus, pairs: Pairs, wanted: int, seed: int) -> list[SamplePair]:
    """Draw pairs of different texts to label, as many from each stratum, in random order.

    Documents with equal shingle sets are represented by the first of them. The order does not give
    the similarity away by place.

    Args:
        corpus: the documents.
        pairs: all pairs from the floor on.
        wanted: pairs to draw in all; fewer when there are fewer.
        seed: the same seed and documents give the same sample.
    """
    generator = np.random.default_rng(seed)
    divided = strata(pairs)
    shares = allocate([len(stratum.pairs) for stratum in divided], wanted)
    drawn = []
    for stratum, count in zip(divided, shares, strict=True):
        chosen = (
            generator.choice(stratum.pairs, count, replace=False) if count else stratum.pairs[:0]
        )
        drawn += [_pair(corpus, pairs, pair, stratum) for pair in chosen.tolist()]
    order = generator.permutation(len(drawn)).tolist()
    return [drawn[place] for place in order]


def _pair(corpus: Corpus, pairs: Pairs, pair: int, stratum: Stratum) -> SamplePair:
    left = corpus.documents[int(pairs.earlier[pair])]
    right = corpus.documents[int(pairs.later[pair])]
    return SamplePair(
        id=left.id,
        other_id=right.id,
        similarity=round(float(pairs.resemblance[pair]), 6),
        stratum=stratum.name,
        stratum_pairs=len(stratum.pairs),
        label=None,
        text=left.text,
        other_text=right.text,
    )
