"""Synthetic document streams whose duplicates are known, for tests and benchmarks.

Every document carries its truth: the original it was made from and whether it is an exact or a
near copy of it. Copies are always made from the original itself (a star, never a chain).

All randomness is raw 64-bit output of NumPy's PCG64, turned into numbers by integer arithmetic
here. NumPy keeps the raw output of its bit generators the same for ever, which it does not promise
for the methods of ``Generator``; so a seed gives the same stream on every machine and version.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np

from stream_dedup.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Language = Literal["en", "ko", "zh", "ja", "mixed"]

#: Languages that a mixed stream is made of, in equal parts.
LANGUAGES = ("en", "ko", "zh", "ja")
#: Pseudo-words of each language.
VOCABULARY = 32_768
#: Event time at which every stream begins.
START = datetime(2026, 1, 1, tzinfo=UTC)

#: Zipf-Mandelbrot: the word of rank r is drawn in proportion to 1 / (r + this).
_ZIPF_OFFSET = 3
#: Words per sentence.
_SENTENCE = 12
#: 64-bit numbers taken from the bit generator at a time.
_BLOCK = 1 << 16


class Kind(StrEnum):
    """How a generated document was made."""

    ORIGINAL = "original"
    EXACT = "exact"
    NEAR = "near"


class Truth(msgspec.Struct, frozen=True):
    """What is known about a generated document.

    Attributes:
        group: id of the original that the document was made from (its own id for an original).
        kind: original, exact (the same normalised text) or near (some words replaced).
    """

    group: str
    kind: Kind


class GeneratedDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document of a generated stream.

    Attributes:
        id: unique within the stream.
        text: pseudo-text in sentences.
        time: event time, RFC 3339 in UTC; strictly increasing along the stream.
        truth: what the document is; None where it was taken off.
    """

    id: str
    text: str
    time: str
    truth: Truth | None = None


class StreamShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a generated stream looks like.

    Attributes:
        documents: documents in the stream, 0 or more.
        duplicate_share: probability that a document is a copy, 0 to below 1. Viral posts and their
            copies come on top. A document that finds no original within ``distance`` becomes one.
        exact_share: probability that a copy is exact, 0 to 1; the others are near copies. An exact
            copy may differ from its original in letter case and white space.
        edits: words replaced in a near copy, 1 to 1,000. A document too short to bear that many
            gets fewer, so that ``resemblance`` always holds.
        resemblance: bound below which no near copy's resemblance to its original falls, 0.5 to
            0.99, on shingles of three tokens: words, or characters in Chinese and Japanese.
        words: mean words of a document, 5 to 10,000; lengths spread evenly from 2/3 to 4/3 of it. A
            Chinese or Japanese word has one to three characters.
        language: en, ko, zh, ja, or mixed.
        viral: viral posts, spread evenly over the stream, 0 or more.
        viral_copies: copies of each viral post, at random places before the next viral post.
        distance: documents after its original within which a copy arrives, 1 to 1,000,000. Kept
            originals take about two bytes of memory per word.
        rate: mean documents per second of event time, above 0 and up to 100,000.
        seed: 0 or more; the same shape and seed give the same stream.

    Raises:
        SettingsError: a value is out of range, or contradicts another.
    """

    documents: int = 10_000
    duplicate_share: float = 0.3
    exact_share: float = 0.5
    edits: int = 2
    resemblance: float = 0.85
    words: int = 150
    language: Language = "en"
    viral: int = 0
    viral_copies: int = 100
    distance: int = 1_000
    rate: float = 1_000.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every range."""
        for name, holds, expected in (
            ("documents", self.documents >= 0, "0 or more"),
            ("duplicate_share", 0 <= self.duplicate_share < 1, "from 0 to below 1"),
            ("exact_share", 0 <= self.exact_share <= 1, "from 0 to 1"),
            ("edits", 1 <= self.edits <= 1_000, "from 1 to 1000"),
            ("resemblance", 0.5 <= self.resemblance <= 0.99, "from 0.5 to 0.99"),
            ("words", 5 <= self.words <= 10_000, "from 5 to 10000"),
            ("language", self.language in (*LANGUAGES, "mixed"), "en, ko, zh, ja or mixed"),
            ("viral", self.viral >= 0, "0 or more"),
            ("viral_copies", self.viral_copies >= 1, "1 or more"),
            ("distance", 1 <= self.distance <= 1_000_000, "from 1 to 1000000"),
            ("rate", 0 < self.rate <= 100_000, "above 0 and up to 100000"),
            ("seed", self.seed >= 0, "0 or more"),
        ):
            if not holds:
                msg = f"{name} must be {expected}. Correct it and start again."
                raise SettingsError(msg)
        self._check_room()

    def _check_room(self) -> None:
        """Refuse shapes that cannot be kept: too many viral copies, too short for one edit."""
        if self.viral * (self.viral_copies + 1) > self.documents:
            msg = (
                f"{self.viral} viral posts with {self.viral_copies} copies each do not fit into "
                f"{self.documents} documents. Raise documents, or lower viral or viral_copies."
            )
            raise SettingsError(msg)
        has_near = self.exact_share < 1 and (self.duplicate_share > 0 or self.viral > 0)
        if has_near and _bearable(0.9 * (self.words * 2 // 3 - 2), 3, self.resemblance) < 1:
            msg = (
                f"Documents of {self.words} words are too short for near copies of resemblance "
                f"{self.resemblance}. Raise words, lower resemblance, or set exact_share to 1."
            )
            raise SettingsError(msg)


def generate(shape: StreamShape) -> Iterator[GeneratedDocument]:
    """Yield the documents of a stream in the order of their event times.

    Takes constant memory apart from the originals within ``shape.distance``.
    """
    picks, words = _Picks(shape.seed), _WordDraws(shape.seed)
    recent: deque[_Original] = deque()
    viral, viral_left = None, 0
    span = shape.documents // shape.viral if shape.viral else 0
    step = round(2_000_000 / shape.rate)
    microseconds = 0
    for position in range(shape.documents):
        microseconds += 1 + picks.below(step)
        name, time = f"doc-{position:08d}", _rfc3339(microseconds)
        place = position % span if position < span * shape.viral else None
        original = None
        if place == 0:
            viral_left = shape.viral_copies
        elif place is not None and picks.below(span - place) < viral_left:
            original, viral_left = viral, viral_left - 1
        elif picks.chance(shape.duplicate_share):
            original = _choose(recent, position - shape.distance, picks)
        if original is not None:
            kind, text = _copy(original, shape, picks)
            yield GeneratedDocument(name, text, time, Truth(original.id, kind))
            continue
        new = _original(name, position, shape, picks, words)
        if place == 0:
            viral = new
        else:
            recent.append(new)
        yield GeneratedDocument(
            name, _render(new.language, new.ranks), time, Truth(name, Kind.ORIGINAL)
        )


class _Original(NamedTuple):
    id: str
    position: int
    language: str
    words: NDArray[np.uint16]

    @property
    def ranks(self) -> list[int]:
        ranks: list[int] = self.words.tolist()
        return ranks


class _Picks:
    """Single random numbers."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64([seed, 0])
        self._ready: list[int] = []

    def below(self, bound: int) -> int:
        """Return an integer from 0 to ``bound - 1``."""
        if not self._ready:
            self._ready = self._bits.random_raw(_BLOCK).tolist()
        return (self._ready.pop() * bound) >> 64

    def chance(self, share: float) -> bool:
        """Return True with probability ``share``."""
        return self.below(1 << 32) < share * (1 << 32)


class _WordDraws:
    """Random words by rank, the frequent ones first."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64([seed, 1])
        self._ready = np.empty(0, np.uint16)

    def take(self, count: int) -> NDArray[np.uint16]:
        """Return ``count`` ranks."""
        if len(self._ready) < count:
            raw = self._bits.random_raw(_BLOCK)
            self._ready = _rank_table()[raw >> np.uint64(44)]
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken


@cache
def _rank_table() -> NDArray[np.uint16]:
    """Word ranks at 2^20 equal steps of the cumulated Zipf distribution (integers throughout)."""
    cumulated = np.cumsum(10**9 // (np.arange(VOCABULARY) + 1 + _ZIPF_OFFSET))
    steps = (np.arange(1 << 20) * cumulated[-1]) >> 20
    ranks: NDArray[np.uint16] = np.searchsorted(cumulated, steps, side="right").astype(np.uint16)
    return ranks


@cache
def _vocabulary(language: str) -> tuple[str, ...]:
    """Build the pseudo-words of a language by rank, the frequent ones shorter; all distinct."""
    han = [chr(0x4E00 + 5 * n) for n in range(3_000)]
    hiragana = [chr(code) for code in range(0x304B, 0x3090)]
    katakana = [chr(code) for code in range(0x30AB, 0x30F0)]
    hangul = [chr(0xAC00 + 28 * n + tail) for n in range(0, 399, 2) for tail in (0, 4, 8, 21)]
    latin = [c + v for c in "bcdfghjklmnprstvwz" for v in ("a", "e", "i", "o", "u")]
    patterns: dict[str, list[tuple[int, list[list[str]]]]] = {
        "en": [(80, [latin]), (6_000, [latin] * 2), (VOCABULARY, [latin] * 3)],
        "ko": [(200, [hangul]), (16_000, [hangul] * 2), (VOCABULARY, [hangul] * 3)],
        "zh": [(400, [han]), (VOCABULARY, [han] * 2)],
        "ja": [
            (60, [hiragana]),
            (8_000, [han] * 2),
            (16_000, [han, hiragana]),
            (VOCABULARY, [katakana] * 3),
        ],
    }
    words: list[str] = []
    for until, alphabets in patterns[language]:
        words += (_pseudo_word(number, alphabets) for number in range(until - len(words)))
    return tuple(words)


def _pseudo_word(number: int, alphabets: list[list[str]]) -> str:
    """Spell a number in mixed radix; a prime factor scatters neighbours, all distinct."""
    rest = number * 2_654_435_761 % prod(map(len, alphabets))
    parts = []
    for alphabet in alphabets:
        rest, digit = divmod(rest, len(alphabet))
        parts.append(alphabet[digit])
    return "".join(parts)


def _original(
    name: str, position: int, shape: StreamShape, picks: _Picks, words: _WordDraws
) -> _Original:
    low, high = shape.words * 2 // 3, shape.words * 4 // 3
    count = low + picks.below(high - low + 1)
    language: str = shape.language
    if language == "mixed":
        language = LANGUAGES[picks.below(len(LANGUAGES))]
    return _Original(name, position, language, words.take(count))


def _choose(recent: deque[_Original], oldest: int, picks: _Picks) -> _Original | None:
    """Choose one of the originals that are not too far back, and forget those that are."""
    while recent and recent[0].position < oldest:
        recent.popleft()
    return recent[picks.below(len(recent))] if recent else None


def _copy(original: _Original, shape: StreamShape, picks: _Picks) -> tuple[Kind, str]:
    ranks = original.ranks
    if not picks.chance(shape.exact_share):
        words = [_vocabulary(original.language)[rank] for rank in ranks]
        edits = min(shape.edits, _most_edits(original.language, words, shape.resemblance))
        if edits:
            return Kind.NEAR, _render(original.language, _edit(ranks, edits, picks))
    return Kind.EXACT, _disguise(_render(original.language, ranks), picks.below(6))


def _edit(ranks: list[int], edits: int, picks: _Picks) -> list[int]:
    """Replace one word by another in each of ``edits`` equal parts."""
    edited = ranks.copy()
    for number in range(edits):
        low, high = len(ranks) * number // edits, len(ranks) * (number + 1) // edits
        place = low + picks.below(high - low)
        edited[place] = (edited[place] + 1 + picks.below(VOCABULARY - 1)) % VOCABULARY
    return edited


def _most_edits(language: str, words: Sequence[str], resemblance: float) -> int:
    """Return how many words may be replaced before resemblance could fall below the bound.

    Replacing a word of t tokens removes at most t + 2 of the distinct shingles and adds at most as
    many as its substitute's tokens + 2.
    """
    spaced = language in {"en", "ko"}
    tokens = words if spaced else "".join(words)
    distinct = len(set(zip(tokens, tokens[1:], tokens[2:], strict=False)))
    return _bearable(distinct, {"zh": 4, "ja": 5}.get(language, 3), resemblance)


def _bearable(distinct: float, per_edit: int, resemblance: float) -> int:
    """Solve (distinct - x) / (distinct + x) >= resemblance for x = edits * per_edit."""
    return int(distinct * (1 - resemblance) / (1 + resemblance) / per_edit)


def _render(language: str, ranks: list[int]) -> str:
    """Write words as sentences; Chinese and Japanese without spaces."""
    words = [_vocabulary(language)[rank] for rank in ranks]
    space, stop = (" ", ". ") if language in {"en", "ko"} else ("", "。")
    sentences = [space.join(words[at : at + _SENTENCE]) for at in range(0, len(words), _SENTENCE)]
    return stop.join(text[0].upper() + text[1:] for text in sentences) + stop.rstrip()


def _disguise(text: str, choice: int) -> str:
    """Change what normalisation takes back: letter case and white space; often nothing."""
    match choice:
        case 0:
            return text.upper()
        case 1:
            return text.replace(" ", "\n ")
        case 2:
            return f"  {text}\n"
        case _:
            return text


def _rfc3339(microseconds: int) -> str:
    moment = START + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
