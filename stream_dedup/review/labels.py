"""The labels that people give, in an SQLite database of their own, which outlives the window.

A pair is kept with both documents, so that it can be shown, estimated from and exported when the
window has long moved on. Pairs of one fingerprint configuration belong together: the newest draw
says what their strata stand for, and each draw takes away the pairs of those before it that have
no label. A label is one transaction. One that is undone or given anew stays, marked with the time.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
import zstandard

from stream_dedup.evaluate.sets import Rows
from stream_dedup.review.database import transaction
from stream_dedup.review.estimates import Asked, Count, by_gain
from stream_dedup.review.label_schema import open_labels
from stream_dedup.review.label_types import Label, LastDraw, Pair, consensus
from stream_dedup.review.pairs import Draw, Side
from stream_dedup.review.strata import Scale
from stream_dedup.review.turns import SHARED_EVERY, Turns, Waiting

#: Pairs of a configuration and how often each has been called what.
_PAIRS = """
SELECT p.id, p.draw, p.stratum, p.taken, p.score, p.shared, p.earlier, p.later,
       count(l.id) AS labellers,
       ifnull(sum(l.label = 1), 0) AS yes, ifnull(sum(l.label = 0), 0) AS no,
       ifnull(max(l.labeller = :labeller), 0) AS mine
FROM pairs p LEFT JOIN labels l ON l.pair = p.id AND l.undone_at IS NULL
WHERE p.configuration = :configuration GROUP BY p.id ORDER BY p.id
"""
_KEEP_PAIR = """
INSERT INTO pairs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (configuration, earlier, later) DO UPDATE SET draw = excluded.draw
"""
_TABLE = """
SELECT a.labeller AS first, b.labeller AS second, a.label AS one, b.label AS other, count(*) AS n
FROM labels a JOIN labels b ON b.pair = a.pair AND b.labeller > a.labeller
JOIN pairs p ON p.id = a.pair AND p.configuration = ?
WHERE a.undone_at IS NULL AND b.undone_at IS NULL GROUP BY 1, 2, 3, 4
"""


class Labels:
    """Pairs to label and the labels they have, for any number of threads."""

    def __init__(self, path: Path) -> None:
        """Open the database of labels, or make it.

        Raises:
            StateError: the file cannot be used, or is another database.
        """
        self._lock = threading.Lock()
        self._turns = Turns()
        self._database = open_labels(path)

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def add(self, draw: Draw, scale: Scale, settings: dict[str, Any]) -> None:
        """Keep the pairs of a new draw, and forget those without a label of the ones before it."""
        taken = {stratum.name: stratum.taken for stratum in scale.strata}
        with self._transaction() as execute:
            execute(
                "DELETE FROM pairs WHERE id NOT IN (SELECT pair FROM labels) "
                "AND id NOT IN (SELECT value FROM json_each(?))",
                (_written(self._turns.held()),),
            )
            number = execute(
                "INSERT INTO draws VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    _now(),
                    draw.configuration,
                    draw.seed,
                    _written(settings),
                    *draw.asked,
                    draw.held,
                    draw.of,
                    _written(draw.found),
                ),
            ).lastrowid
            for pair in draw.pairs:
                ends = [self._keep(side) for side in (pair.left, pair.right)]
                key = (pair.left.id + pair.right.id).encode()
                # By the ids, so that a pair that is drawn again is shared or not as before.
                shared = xxhash.xxh3_64_intdigest(key) % SHARED_EVERY == 0
                kind = (pair.stratum, taken[pair.stratum], pair.score)
                execute(_KEEP_PAIR, (number, draw.configuration, *kind, *ends, shared))
            self._restratify(draw.configuration, scale)
            execute(
                "DELETE FROM documents WHERE id NOT IN (SELECT earlier FROM pairs) "
                "AND id NOT IN (SELECT later FROM pairs)"
            )

    def last_draw(self) -> LastDraw | None:
        """Return the newest draw; None before the first."""
        with self._lock:
            row = self._database.execute("SELECT * FROM draws ORDER BY id DESC LIMIT 1").fetchone()
        if row is None:
            return None
        return LastDraw(
            row["id"],
            row["at"],
            row["configuration"],
            row["seed"],
            msgspec.json.decode(row["settings"]),
            Asked(row["originals"], row["asked"]),
            row["held"],
            row["of"],
            msgspec.json.decode(row["found"]),
        )

    def next_pair(self, labeller: str, draw: LastDraw, scale: Scale) -> Pair | None:
        """Return the pair that a labeller should see (``Turns.take``); None when none is left."""
        with self._lock:
            rows = self._rows(draw.configuration, labeller)
            counts = _counts(rows, draw, scale)
            order = by_gain([count for _, count in counts], draw.asked, scale.near_from)
            waiting = [
                Waiting(row["id"], row["stratum"], row["shared"], row["labellers"], row["mine"])
                for row in rows
            ]
            chosen = self._turns.take(labeller, waiting, [counts[place][0] for place in order])
            return None if chosen is None else self._pair(chosen)

    def pair(self, number: int) -> Pair | None:
        """Return a pair; None where there is none of this number."""
        with self._lock:
            return self._pair(number)

    def label(self, number: int, labeller: str, label: Label) -> bool:
        """Label a pair, in place of the labeller's own label if it has one.

        Returns:
            Whether there is such a pair.
        """
        with self._transaction() as execute:
            if not execute("SELECT 1 FROM pairs WHERE id = ?", (number,)).fetchone():
                return False
            now = _now()
            execute(
                "UPDATE labels SET undone_at = ? "
                "WHERE pair = ? AND labeller = ? AND undone_at IS NULL",
                (now, number, labeller),
            )
            execute(
                "INSERT INTO labels VALUES (NULL, ?, ?, ?, ?, NULL)", (number, labeller, label, now)
            )
            self._turns.release(labeller)
        return True

    def undo(self, labeller: str) -> int | None:
        """Take back a labeller's latest label, and show them its pair next.

        Returns:
            The number of the pair; None where the labeller has no label.
        """
        with self._transaction() as execute:
            row = execute(
                "SELECT id, pair FROM labels WHERE labeller = ? AND undone_at IS NULL "
                "ORDER BY id DESC LIMIT 1",
                (labeller,),
            ).fetchone()
            if row is None:
                return None
            execute("UPDATE labels SET undone_at = ? WHERE id = ?", (_now(), row["id"]))
            self._turns.hold(row["pair"], labeller)
            return int(row["pair"])

    def counts(self, draw: LastDraw, scale: Scale) -> list[tuple[str, Count]]:
        """Return the name of each stratum that has pairs, and what is known of it.

        A pair is what most of its labellers say, leaving out those who are unsure; one with as many
        for as against has no label.
        """
        with self._lock:
            return _counts(self._rows(draw.configuration), draw, scale)

    def given(self, configuration: str) -> dict[str, dict[Label, int]]:
        """Return how often each labeller has given each label, by name."""
        with self._lock:
            rows = self._database.execute(
                "SELECT l.labeller, l.label, count(*) FROM labels l JOIN pairs p ON p.id = l.pair "
                "WHERE l.undone_at IS NULL AND p.configuration = ? GROUP BY 1, 2 ORDER BY 1, 2",
                (configuration,),
            ).fetchall()
        found: dict[str, dict[Label, int]] = {}
        for labeller, label, count in rows:
            found.setdefault(labeller, dict.fromkeys(Label, 0))[Label(label)] = count
        return found

    def tables(self, configuration: str) -> dict[tuple[str, str], Rows]:
        """Return, for any two labellers, how often one gave each label where the other gave which.

        (labels, labels) int64, rows by the labeller named first.
        """
        with self._lock:
            rows = self._database.execute(_TABLE, (configuration,)).fetchall()
        found: dict[tuple[str, str], Rows] = {}
        for row in rows:
            names = (row["first"], row["second"])
            table = found.setdefault(names, np.zeros((len(Label), len(Label)), np.int64))
            table[row["one"], row["other"]] = row["n"]
        return found

    def labelled(self, configuration: str) -> list[tuple[Pair, dict[str, Label]]]:
        """Return the pairs that have labels and who gave which, in the order they were drawn in."""
        with self._lock:
            rows = self._database.execute(
                "SELECT l.pair, l.labeller, l.label FROM labels l JOIN pairs p ON p.id = l.pair "
                "WHERE l.undone_at IS NULL AND p.configuration = ? ORDER BY l.pair, l.id",
                (configuration,),
            ).fetchall()
            found: dict[int, dict[str, Label]] = {}
            for number, labeller, label in rows:
                found.setdefault(number, {})[labeller] = Label(label)
            pairs = [(self._pair(number), labels) for number, labels in found.items()]
        return [(pair, labels) for pair, labels in pairs if pair is not None]

    def unlabelled(self, configuration: str) -> int:
        """Return how many pairs nobody has labelled."""
        with self._lock:
            return sum(not row["labellers"] for row in self._rows(configuration))

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._lock, transaction(self._database):
            yield self._database.execute

    def _rows(self, configuration: str, labeller: str = "") -> list[sqlite3.Row]:
        names = {"configuration": configuration, "labeller": labeller}
        return self._database.execute(_PAIRS, names).fetchall()

    def _keep(self, side: Side) -> int:
        """Keep a document; return its number."""
        digest = xxhash.xxh3_128_digest(side.text.encode())
        text = zstandard.compress(side.text.encode())
        values = (side.id, digest, text, side.at, side.source, side.row)
        row = self._database.execute(
            "INSERT INTO documents VALUES (NULL, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (name, digest) DO UPDATE SET place = excluded.place RETURNING id",
            values,
        ).fetchone()
        return int(row["id"])

    def _restratify(self, configuration: str, scale: Scale) -> None:
        """Put all pairs of a configuration into the strata of a scale."""
        execute = self._database.execute
        for row in execute(
            "SELECT id, taken, score FROM pairs WHERE configuration = ?", (configuration,)
        ).fetchall():
            place = int(scale.place([row["score"]], taken=bool(row["taken"]))[0])
            execute(
                "UPDATE pairs SET stratum = ? WHERE id = ?", (scale.strata[place].name, row["id"])
            )

    def _pair(self, number: int) -> Pair | None:
        row = self._database.execute("SELECT * FROM pairs WHERE id = ?", (number,)).fetchone()
        if row is None:
            return None
        left, right = (
            Side(one["name"], _unpacked(one["text"]), one["at"], one["source"], one["place"])
            for name in ("earlier", "later")
            for one in self._database.execute("SELECT * FROM documents WHERE id = ?", (row[name],))
        )
        return Pair(number, left, right, row["stratum"], row["score"], bool(row["taken"]))


def _counts(rows: list[sqlite3.Row], draw: LastDraw, scale: Scale) -> list[tuple[str, Count]]:
    labels: dict[str, list[tuple[int, bool]]] = {}
    for row in rows:
        label = consensus(row["yes"], row["no"])
        if label is not None:
            labels.setdefault(row["stratum"], []).append((label, row["draw"] == draw.id))
    counts = []
    for stratum in scale.strata:
        if pairs := draw.found.get(stratum.name, 0):
            given = labels.get(stratum.name, [])
            numbers = len(given), sum(label for label, _ in given), sum(here for _, here in given)
            counts.append((stratum.name, Count(stratum.taken, stratum.low, pairs, *numbers)))
    return counts


def _unpacked(text: bytes) -> str:
    return zstandard.decompress(text).decode()


def _written(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _now() -> int:
    return time.time_ns() // 1_000_000
