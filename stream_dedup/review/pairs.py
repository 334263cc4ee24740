"""Draws pairs to label from the window: by strata, within each at random."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from stream_dedup.evaluate.sets import Rows, Values
from stream_dedup.review.estimates import Asked
from stream_dedup.review.near import NearestBefore, Texts
from stream_dedup.review.strata import Scale
from stream_dedup.review.window import Window, unpacked
from stream_dedup.settings import Settings

#: Originals, at random, that are held to all before them.
MOST_ASKED = 2_000
#: Pairs of each stratum that are kept to be labelled.
MOST_OF_STRATUM = 40
#: Seconds that looking for near originals may take; what has been seen by then is used.
MOST_SECONDS = 300.0
#: Pairs with a longer text are not shown: nobody would read them.
LONGEST_TEXT = 50_000

#: Rows of the window that are read together, and texts that are fingerprinted together: short
#: enough steps that pages are answered in between.
_ROWS, _TEXTS = 5_000, 128
#: Seconds that one of these steps may take, beside everything else.
_SECONDS = 60.0
#: Pairs of a stratum that are looked at for such as can be shown.
_MOST_TRIES = 10 * MOST_OF_STRATUM

_SCAN = """
SELECT d.row, d.status, d.similarity, d.hamming_distance, g.original_row, d.configuration
FROM documents d LEFT JOIN groups g ON g.duplicate_id = d.duplicate_id
WHERE d.row > ? ORDER BY d.row LIMIT ?
"""
_NEWEST = "SELECT configuration FROM documents ORDER BY row DESC LIMIT 1"
_DOCUMENTS = """
SELECT d.row, d.id, d.at, d.source, t.text FROM json_each(?) wanted
JOIN documents d ON d.row = wanted.value JOIN texts t ON t.row = d.row
"""
_ORIGINAL, _NEAR = 0, 2


class Side(NamedTuple):
    """One document of a pair.

    Attributes:
        id: its id, as JSON.
        text: its text.
        at: its time, in milliseconds.
        source: what it comes from.
        row: where in its window it stood.
    """

    id: str
    text: str
    at: int
    source: str
    row: int


class DrawnPair(NamedTuple):
    """A pair to label.

    Attributes:
        stratum: name of its stratum.
        score: its score.
        left: the earlier document.
        right: the later one.
    """

    stratum: str
    score: float
    left: Side
    right: Side


class Draw(NamedTuple):
    """Pairs drawn from a window, and what they stand for.

    Attributes:
        configuration: version of the fingerprint configuration that decided.
        seed: the same seed and window give the same pairs.
        asked: how many originals were asked about, of how many.
        held: originals that they have been held to.
        of: originals that there were to hold them to.
        found: pairs found in each stratum, by its name.
        pairs: the pairs drawn, those of each stratum in random order.
    """

    configuration: str
    seed: int
    asked: Asked
    held: int
    of: int
    found: dict[str, int]
    pairs: list[DrawnPair]


class _Pairs(NamedTuple):
    """Pairs by the rows of their documents."""

    later: Rows
    earlier: Rows
    scores: Values


class _Scan(NamedTuple):
    """What the window holds of one configuration: rows of originals, and the taken pairs.

    The original of a pair is -1 where it has left the window.
    """

    configuration: str
    originals: Rows
    taken: _Pairs


def draw(
    window: Window,
    settings: Settings,
    seed: int,
    go_on: Callable[[], bool] = lambda: True,
    most_seconds: float = MOST_SECONDS,
) -> Draw | None:
    """Draw pairs from a window; None where it is empty or ``go_on`` says to stop.

    Of the documents it takes those that the newest configuration in the window has decided.

    Raises:
        SettingsError: a file that the settings name cannot be used.
    """
    scale = Scale(settings)
    generator = np.random.default_rng(seed)
    scan = _scan(window, scale)
    if scan is None:
        return None
    chosen = np.sort(generator.permutation(scan.originals)[:MOST_ASKED])
    asked = _texts(_documents(window, chosen))
    pool = scan.originals[scan.originals < chosen.max(initial=0)]
    nearest = NearestBefore(settings, scale, asked)
    held = _hold(window, nearest, pool, go_on, time.monotonic() + most_seconds)
    hit = nearest.rows >= 0
    left = _Pairs(asked.rows[hit], nearest.rows[hit], nearest.scores[hit])
    found: dict[str, int] = {}
    pairs: list[DrawnPair] = []
    for taken, group in ((True, scan.taken), (False, left)):
        places = scale.place(group.scores, taken=taken)
        for number in np.unique(places).tolist():
            inside, name = np.flatnonzero(places == number), scale.strata[number].name
            found[name] = len(inside)
            mixed = generator.permutation(inside[group.earlier[inside] >= 0])
            pairs += _shown(window, name, group, mixed)
    every = Asked(len(scan.originals), len(chosen))
    return Draw(scan.configuration, seed, every, held, len(pool), found, pairs) if go_on() else None


def _scan(window: Window, scale: Scale) -> _Scan | None:
    """Read which documents the window holds, a few at a time; None where there are none."""
    with window.reader(_SECONDS) as reader:
        newest = reader.execute(_NEWEST).fetchone()
    if newest is None:
        return None
    originals: list[int] = []
    duplicates: list[tuple[int, int, float]] = []
    last = -1
    while True:
        with window.reader(_SECONDS) as reader:
            rows = reader.execute(_SCAN, (last, _ROWS)).fetchall()
        if not rows:
            break
        last = rows[-1][0]
        for row, status, similarity, distance, original, version in rows:
            if version != newest[0]:
                continue
            if status == _ORIGINAL:
                originals.append(row)
            elif status == _NEAR and (score := scale.score(similarity, distance)) is not None:
                duplicates.append((row, -1 if original is None else original, score))
    later, earlier, scores = np.array(duplicates, np.float64).reshape(-1, 3).T
    taken = _Pairs(later.astype(np.int64), earlier.astype(np.int64), scores)
    return _Scan(newest[0], np.array(originals, np.int64), taken)


def _documents(window: Window, rows: Rows) -> list[Side]:
    """Read documents; without those whose text is not known, or that have left meanwhile."""
    with window.reader(_SECONDS) as reader:
        found = reader.execute(_DOCUMENTS, [msgspec.json.encode(rows.tolist())]).fetchall()
    sides = [Side(name, unpacked(text), at, source, row) for row, name, at, source, text in found]
    return sorted(sides, key=lambda side: side.row)


def _texts(sides: list[Side]) -> Texts:
    return Texts(
        np.array([side.row for side in sides], np.int64),
        np.array([side.at for side in sides], np.int64),
        [side.text for side in sides],
        [side.source for side in sides],
    )


def _hold(
    window: Window, nearest: NearestBefore, pool: Rows, go_on: Callable[[], bool], until: float
) -> int:
    """Hold those asked about to the originals; return to how many, before the time was up."""
    for first in range(0, len(pool), _TEXTS):
        began = time.monotonic()
        if began > until or not go_on():
            return first
        nearest.hold(_texts(_documents(window, pool[first : first + _TEXTS])))
        # Half of a core is left to the pages.
        time.sleep(time.monotonic() - began)
    return len(pool)


def _shown(window: Window, stratum: str, pairs: _Pairs, order: Rows) -> Iterator[DrawnPair]:
    """Yield the first pairs of a stratum, in its random order, that can be shown."""
    shown = 0
    for place in order[:_MOST_TRIES].tolist():
        rows = np.array([pairs.earlier[place], pairs.later[place]])
        sides = _documents(window, rows)
        if len(sides) < 2 or max(len(side.text) for side in sides) > LONGEST_TEXT:
            continue
        yield DrawnPair(stratum, round(float(pairs.scores[place]), 4), sides[0], sides[1])
        shown += 1
        if shown == MOST_OF_STRATUM:
            return
