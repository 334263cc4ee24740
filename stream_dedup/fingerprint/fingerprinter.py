"""Fingerprint a batch of texts: clean, normalise, shingle, then MinHash, SimHash or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from stream_dedup.fingerprint.classic import ClassicMinHash
from stream_dedup.fingerprint.fused import Fused
from stream_dedup.fingerprint.hashing import (
    configuration_version,
    describe_configuration,
    digest_seed,
    id_seeds,
    shingle_keys,
)
from stream_dedup.fingerprint.minhash import MinHash
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.settings import Settings
from stream_dedup.text.clean import Cleaner
from stream_dedup.text.normalize import NormalizedBatch, drop_punctuation, normalize
from stream_dedup.text.shingles import Hashes, Shingles, char_shingles, word_shingles
from stream_dedup.types import Method, Score, VerifyBy
from stream_dedup.verify.evidence import Evidence
from stream_dedup.verify.verifier import PayloadVerifier, SketchVerifier, Verifier

#: Characters that the kernels take at a time. Smaller chunks stay nearer to the core, but each
#: takes sixty calls of numpy; larger ones gain little more (measured).
CHUNK_CHARACTERS = 1 << 17


class FingerprintMethod(Protocol):
    """What the fingerprint methods have in common."""

    prefix_bits: list[int]
    sketch_bytes: int

    def fingerprint(self, shingles: Shingles) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        """Return table keys, (texts, tables) uint64, and sketches, (texts, width) uint8."""

    def compare(
        self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return one score of each pair of sketches, and whether the pair is near."""

    def scores(self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> list[Score]:
        """Return what is published about each pair of sketches."""


def method_of(settings: Settings) -> FingerprintMethod:
    """Return the method that the settings ask for.

    Raises:
        SettingsError: it cannot be had with the other settings.
    """
    if settings.method is Method.SIMHASH:
        return SimHash(settings)
    minhash = (
        MinHash(settings) if settings.minhash == "one-permutation" else ClassicMinHash(settings)
    )
    return Fused(settings, minhash) if settings.method is Method.FUSED else minhash


class Fingerprints(NamedTuple):
    """Everything the index needs to know about the texts of a batch.

    A text without a token (only punctuation or emoji) can equal another but not resemble one: its
    keys and sketch are made from its digest. A text with nothing left after normalisation is
    *empty*, and is never compared with anything.

    Attributes:
        empty: (texts,) bool.
        digests: xxh3-128 of each normalised text, 16 bytes each.
        keys: (texts, tables) uint64 table keys.
        sketches: (texts, width) uint8, what verification compares; of width 0 where that is
            payloads.
        payloads: what verification compares, one for each text; none at all where that is sketches.
    """

    empty: npt.NDArray[np.bool_]
    digests: list[bytes]
    keys: Hashes
    sketches: npt.NDArray[np.uint8]
    payloads: Sequence[bytes] = ()

    @property
    def evidence(self) -> Evidence:
        """What verification compares."""
        return Evidence(self.sketches, self.payloads)


class Fingerprinter:
    """Turns texts into fingerprints, the same on every machine and release.

    Attributes:
        settings: the settings in force.
        configuration: version of the fingerprint configuration, 16 hexadecimal digits.
        described: what makes up that, and how an index of it hashes document ids.
        index_version: version of the same, which an index keeps and is refused by.
        method: MinHash, SimHash or both.
        verifier: compares what is kept with each original.
        id_seeds: seeds of the hashes of document ids.
    """

    def __init__(self, settings: Settings) -> None:
        """Make everything ready.

        Raises:
            SettingsError: a file that the settings name cannot be used.
        """
        self.settings = settings
        self.cleaner = Cleaner(settings)
        self.described = describe_configuration(settings, self.cleaner.learned)
        self.configuration = self.index_version = configuration_version(
            settings, self.cleaner.learned
        )
        self.method = method_of(settings)
        self.verifier = self.make_verifier(settings.near_from)
        seed = settings.seed.get_secret_value()
        self._keys = shingle_keys(seed)
        self._digest_seed = digest_seed(seed)
        self.id_seeds = id_seeds(seed)
        if seed:
            # An index that was built before has other identities; fingerprints are the same.
            self.described["ids"] = "keyed"
            self.index_version += "+keyed-ids"

    def make_verifier(self, near_from: float) -> Verifier:
        """Return what compares evidence; a measure is near from this value on."""
        if self.settings.verify_by is not VerifyBy.SKETCH:
            return PayloadVerifier(self.settings, near_from)
        return SketchVerifier(self.method, by_hamming=self.settings.by_hamming)

    def fingerprint(
        self, texts: Sequence[str], origins: Sequence[str] | None = None
    ) -> Fingerprints:
        """Fingerprint texts, in any mix of lengths and scripts.

        Args:
            texts: the texts as they came.
            origins: what each comes from, of which only cleaning takes notice.
        """
        texts = self.cleaner.clean(texts, origins)
        count = len(texts)
        payloads = [] if self.verifier.sketch_bytes else [b""] * count
        result = Fingerprints(
            empty=np.zeros(count, np.bool_),
            digests=[b""] * count,
            keys=np.zeros((count, len(self.method.prefix_bits)), np.uint64),
            sketches=np.zeros((count, self.verifier.sketch_bytes), np.uint8),
            payloads=payloads,
        )
        for rows in _chunks(texts):
            chunk = [texts[row] for row in rows.tolist()]
            for row, payload in self._fill(result, rows, chunk):
                payloads[row] = payload
        return result

    def shingles(self, texts: Sequence[str], origins: Sequence[str] | None = None) -> Shingles:
        """Shingle texts, cleaned and then cut to ``max_characters`` each (see ``fingerprint``)."""
        return self._shingle(normalize(self.cleaner.clean(texts, origins)))

    def keys_of(self, sketches: npt.NDArray[np.uint8], digests: Sequence[bytes]) -> Hashes | None:
        """Return the table keys of texts of which only the sketch and the digest are known.

        None where they do not follow from these: a sketch holds but a part of a MinHash.

        Args:
            sketches: (texts, width) uint8.
            digests: 16 bytes each.
        """
        if not isinstance(self.method, SimHash) or not self.verifier.sketch_bytes:
            return None
        keys = self.method.keys(sketches)
        for row, digest in enumerate(digests):
            own_keys, own_sketch = self._from_digest(digest)
            if (sketches[row] == own_sketch).all():  # a text without a token
                keys[row] = own_keys
        return keys

    def _fill(
        self, result: Fingerprints, rows: npt.NDArray[np.int64], texts: list[str]
    ) -> Iterator[tuple[int, bytes]]:
        """Fill in rows; yield their payloads."""
        batch = normalize(texts)
        encoded = batch.encoded()
        digests = [xxhash.xxh3_128_digest(text, self._digest_seed) for text in encoded]
        for row, digest in zip(rows.tolist(), digests, strict=True):
            result.digests[row] = digest
        shingles = self._shingle(batch)
        result.keys[rows], sketches = self.method.fingerprint(shingles)
        if self.verifier.sketch_bytes:
            result.sketches[rows] = sketches
        result.empty[rows] = batch.ends == batch.starts
        for text in np.flatnonzero(np.diff(shingles.starts) == 0).tolist():
            self._fill_from_digest(result, int(rows[text]))
        payloads = self.verifier.payloads(shingles, encoded, digests)
        yield from zip(rows.tolist(), payloads, strict=bool(payloads))

    def _fill_from_digest(self, result: Fingerprints, row: int) -> None:
        result.keys[row], result.sketches[row] = self._from_digest(result.digests[row])

    def _from_digest(self, text_digest: bytes) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        digest = np.frombuffer(text_digest, np.uint8)
        unused_bits = 64 - np.array(self.method.prefix_bits, np.uint64)
        keys = digest[:8].view("<u8").astype(np.uint64) >> unused_bits
        # Never 0, which MinHash takes for an empty bin.
        return keys, np.resize(digest, self.verifier.sketch_bytes) | np.uint8(1)

    def _shingle(self, batch: NormalizedBatch) -> Shingles:
        limited = batch._replace(
            ends=np.minimum(batch.ends, batch.starts + self.settings.max_characters)
        )
        if limited.ends.sum() < batch.ends.sum():
            limited = _cut(limited)
        size, inverted = self.settings.shingle_size, self.settings.is_punctuation_inverted
        if self.settings.shingle_unit == "word":
            return word_shingles(limited, size, self._keys, punctuation=inverted)
        return char_shingles(drop_punctuation(limited) if inverted else limited, size, self._keys)


def _cut(batch: NormalizedBatch) -> NormalizedBatch:
    """Drop the characters behind each text's end, so that no token is found among them."""
    space = np.array([32], batch.codes.dtype)
    parts = []
    for start, end in zip(batch.starts, batch.ends, strict=True):
        parts += [batch.codes[start:end], space]
    ends = np.cumsum(batch.ends - batch.starts + 1) - 1
    return NormalizedBatch(np.concatenate(parts), ends - (batch.ends - batch.starts), ends)


def _chunks(texts: Sequence[str]) -> Iterator[npt.NDArray[np.int64]]:
    """Split the batch: ASCII texts apart from others, and at most CHUNK_CHARACTERS at a time."""
    is_ascii = np.array([text.isascii() for text in texts], np.bool_)
    sizes = np.array([len(text) + 1 for text in texts], np.int64)
    for rows in (np.flatnonzero(is_ascii), np.flatnonzero(~is_ascii)):
        ends = np.cumsum(sizes[rows])
        start, before = 0, 0
        while start < len(rows):
            fitting = int(np.searchsorted(ends, before + CHUNK_CHARACTERS, side="right"))
            end = max(fitting, start + 1)
            yield rows[start:end]
            start, before = end, int(ends[end - 1])
