"""The documents of one seed, the settings they are decided with, and which of them are near.

The texts come from a small pool that is fingerprinted once, by the real code; a seed takes some
families of it. A family is a chain of edits: texts next to each other are near, those at its ends
are not, and some share table keys without being near.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Fingerprints
from stream_dedup.index.keys import Layout, Places
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId
from tests.simulation.producer import REFUSED

INPUT, OUTPUT, LETTERS = "in", "out", "letters"
_FAMILIES = 6
_MEMBERS = 5
_WORDS = 24

_METHODS = (
    {"method": "minhash", "threshold": 0.7, "rows": 3, "recall": 0.8},
    {"method": "simhash", "hamming": 6, "blocks": 7, "shingle": "word:1"},
)
#: What cannot be decoded.
_POISON = (b"", b"{", b"[1]", b'{"id": 1}', b'{"text": 5}', b"\xff\xfe", b'{"text": "a", "id": {}}')


class Remembering(Fingerprinter):
    """Fingerprints texts of the pool by looking them up.

    Attributes:
        near: (texts, texts) bool, whether texts share a key and are near, or are equal.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        texts = pool()
        self._rows = {text: row for row, text in enumerate(texts)}
        self._prints = super().fingerprint(texts)
        self.near = self._compare_all()

    def fingerprint(
        self, texts: Sequence[str], origins: Sequence[str] | None = None
    ) -> Fingerprints:
        """Return what was made of these texts before."""
        rows = [self._rows[text] for text in texts]
        empty, digests, keys, sketches, _ = self._prints
        found = [digests[row] for row in rows]
        return Fingerprints(empty[rows], found, keys[rows], sketches[rows])

    def are_near(self, one: str, other: str) -> bool:
        """Whether two texts of the pool are near."""
        return bool(self.near[self._rows[one], self._rows[other]])

    def _compare_all(self) -> npt.NDArray[np.bool_]:
        count = len(self._rows)
        one, other = (side.ravel() for side in np.indices((count, count)))
        evidence = self._prints.evidence
        _, near = self.verifier.compare(evidence.rows(one), evidence.rows(other))
        keys = self._prints.keys
        shared = (keys[one] == keys[other]).any(axis=1)
        empty = self._prints.empty
        found: npt.NDArray[np.bool_] = near & shared & ~empty[one] & ~empty[other]
        return found.reshape(count, count)


@lru_cache(maxsize=1)
def pool() -> list[str]:
    """Return the texts: families one after the other, then one with nothing in it."""
    rng = random.Random(5)
    texts = []
    for family in range(_FAMILIES):
        words = [f"f{family}w{rng.randrange(999)}" for _ in range(_WORDS)]
        for member in range(_MEMBERS):
            texts.append(" ".join(words))
            words[3 + 5 * member % _WORDS] = f"edit{family}x{member}"
    return [*texts, "!?"]


@lru_cache(maxsize=8)
def fingerprinter(method: int) -> Remembering:
    """Return what fingerprints by one of the methods."""
    return Remembering(settings_of(method))


@lru_cache(maxsize=8)
def settings_of(method: int) -> Settings:
    """Return the settings of one of the methods."""
    return Settings.model_validate(
        {
            **_METHODS[method],
            "input_topic": INPUT,
            "output_topic": OUTPUT,
            "dead_letter_topic": LETTERS,
            "expected_originals": 1000,
            "batch_wait": 40.0,
            "max_document_bytes": 2000,
        }
    )


@lru_cache(maxsize=1 << 14)
def _placed(layout: Layout, keys: bytes, tables: int) -> Places:
    return Layout.place(layout, np.frombuffer(keys, np.uint64).reshape(-1, tables))


@lru_cache(maxsize=1 << 14)
def _placed_ids(layout: Layout, *ids: DocumentId) -> Places:
    return Layout.place_ids(layout, ids)


class RememberedLayout(Layout):
    """A layout that looks up what it has placed before, of which there is little."""

    def place(self, keys: npt.NDArray[np.uint64]) -> Places:
        """See ``Layout.place``."""
        return _placed(self, keys.tobytes(), keys.shape[1])

    def place_ids(self, ids: Sequence[DocumentId]) -> Places:
        """See ``Layout.place_ids``."""
        return _placed_ids(self, *ids)


class Input(NamedTuple):
    """One input record.

    Attributes:
        key: its key.
        value: its value; None for a tombstone.
        id: id of its document; None if it has none.
        text: text of its document; None if it has none.
        refused: whether the broker refuses what is said of it.
        kills: whether a process that decides it ends, or hangs until it is ended.
    """

    key: bytes | None
    value: bytes | None
    id: str | None = None
    text: str | None = None
    refused: bool = False
    kills: bool = False


class World(NamedTuple):
    """What one seed begins with.

    Attributes:
        settings: of all workers.
        prints: fingerprints its documents.
        logs: input records of each partition; None where an offset holds none.
        workers: number of worker processes.
        forgets: whether there are tombstones.
    """

    settings: Settings
    prints: Remembering
    logs: list[list[Input | None]]
    workers: int
    forgets: bool

    @classmethod
    def draw(cls, rng: random.Random) -> World:
        """Draw a world."""
        method = rng.randrange(len(_METHODS))
        changes = {
            "partitions": rng.choice([1, 4, 4]),
            "batch_documents": rng.randrange(1, 5),
            # The fence of a sweep comes close to claims, and overtakes those of who is stopped.
            "longest_attempt": rng.choice([3.0, 30.0, 600.0]),
        }
        settings = settings_of(method).model_copy(update=changes)
        forgets = rng.random() < 0.15
        workers = rng.choice([1, 1, 1, 2] if forgets else [1, 2, 3, 3])
        logs: list[list[Input | None]] = [[] for _ in range(rng.randrange(1, workers + 1))]
        texts = _draw_texts(rng)
        inputs: list[Input] = []
        culprit = rng.randrange(8) if rng.random() < 0.1 else None
        count = rng.randrange(8, 21) if rng.random() < 0.06 else rng.randrange(3, 8)
        for number in range(count):
            one = _draw_input(rng, number, texts, inputs, forgets=forgets)
            if number == culprit:
                one = _draw_culprit(number, one)
            inputs.append(one)
            log = rng.choice(logs)
            if rng.random() < 0.1:
                log.append(None)
            log.append(one)
        return cls(settings, fingerprinter(method), logs, workers, forgets)


def _draw_texts(rng: random.Random) -> list[str]:
    texts = pool()
    chosen = []
    for family in rng.sample(range(_FAMILIES), rng.choice([1, 1, 2])):
        chosen += texts[family * _MEMBERS : (family + 1) * _MEMBERS]
    return chosen


def _draw_culprit(number: int, one: Input) -> Input:
    """Return a document, or what comes in its place, that processes die at."""
    name = f"k{number}"
    value = json.dumps({"text": "kills", "id": name}).encode()
    return Input(one.key, value, name, "kills", kills=True)


def _draw_input(
    rng: random.Random, number: int, texts: list[str], before: list[Input], *, forgets: bool
) -> Input:
    kind = rng.random()
    key = f"d{number}".encode()
    if kind < 0.06:
        return Input(key, rng.choice(_POISON))
    if kind < 0.08:
        return Input(None, None)
    if forgets and kind < 0.25 and before:
        return Input(rng.choice(before).key or key, None)
    if 0.25 < kind < 0.32 and before:  # sent twice by whoever sends
        earlier = rng.choice(before)
        if earlier.text is not None:
            return earlier
    text = "!?" if kind > 0.98 else rng.choice(texts)
    fields = {"text": text, "id": key.decode(), "more": number}
    refused = 0.32 < kind < 0.34
    if refused:
        fields["mark"] = REFUSED.decode()
    return Input(key, json.dumps(fields).encode(), key.decode(), text, refused)
