"""Boilerplate: the lines that many documents of one origin have in common, and a file of them.

Menus, notices and share buttons stand on page after page of a site while its articles differ, so a
line is taken for boilerplate by how many documents of its origin have it: the template detection of
Bar-Yossef and Rajagopalan 2002, for lines instead of blocks of links. Lines are compared after
normalisation (case, width, white space), each as one 64-bit hash of origin and line, without a
secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from stream_dedup.text.normalize import normalize
from stream_dedup.text.sealed import seal, unseal

Keys = npt.NDArray[np.uint64]

#: Key of a line with nothing in it, which is never boilerplate.
NO_LINE = np.uint64(0)

_FORMAT = "stream-dedup boilerplate"
_VERSION = 1


class _Head(msgspec.Struct, frozen=True):
    """What every version of the file begins with."""

    format: str
    version: int


class Learned(msgspec.Struct, frozen=True):
    """What was learned of one origin: documents read, and lines found to be boilerplate."""

    documents: int
    lines: int


class Boilerplate(msgspec.Struct, frozen=True):
    """Boilerplate lines as they are kept in a file (MessagePack, a map).

    Attributes:
        steps: the steps of ``clean`` that came before, with commas between.
        min_documents: least documents of its origin that have a line.
        min_share: least share of them.
        origins: what was learned of each origin that has boilerplate.
        keys: hash of origin and line, uint64, little-endian, ascending.
        format: says what this file is.
        version: of the format.
    """

    steps: str
    min_documents: int
    min_share: float
    origins: dict[str, Learned]
    keys: bytes
    format: str = _FORMAT
    version: int = _VERSION

    def encode(self) -> bytes:
        """Return the content of the file; the same lines give the same bytes."""
        return seal(self._packed())

    def _packed(self) -> bytes:
        return msgspec.msgpack.encode(self, order="deterministic")

    @staticmethod
    def decode(content: bytes) -> Boilerplate:
        """Read the content of a file.

        Raises:
            ValueError: it is no such file, not whole, or of another version.
        """
        content = unseal(content)
        try:
            head = msgspec.msgpack.decode(content, type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            msg = "it is no boilerplate file, or not all of one"
            raise ValueError(msg) from error
        if (head.format, head.version) != (_FORMAT, _VERSION):
            msg = f"it is {head.format!r} {head.version}, not {_FORMAT!r} {_VERSION}"
            raise ValueError(msg)
        try:
            learned = msgspec.msgpack.decode(content, type=Boilerplate)
            keys = learned.sorted_keys
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            msg = "it is damaged"
            raise ValueError(msg) from error
        if (keys[1:] <= keys[:-1]).any():
            msg = "its lines are not in order"
            raise ValueError(msg)
        return learned

    @property
    def sorted_keys(self) -> Keys:
        """The keys as an array."""
        return np.frombuffer(self.keys, "<u8").astype(np.uint64, copy=False)

    @property
    def lines(self) -> int:
        """Lines of all origins."""
        return len(self.keys) // 8

    @property
    def digest(self) -> str:
        """What tells this content from any other, 16 hexadecimal digits."""
        return hashlib.blake2b(self._packed(), digest_size=8).hexdigest()

    def drop(self, texts: Sequence[str], origins: Sequence[str]) -> list[str]:
        """Drop from each text the lines that are boilerplate of its origin."""
        lines = [text.splitlines() for text in texts]
        known = iter(self._is_known(line_keys(lines, origins)).tolist())
        cleaned = []
        for text, own in zip(texts, lines, strict=True):
            kept = [line for line in own if not next(known)]
            cleaned.append(text if len(kept) == len(own) else "\n".join(kept))
        return cleaned

    def _is_known(self, keys: Keys) -> npt.NDArray[np.bool_]:
        known = self.sorted_keys
        if not len(known):
            return np.zeros(len(keys), np.bool_)
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found: npt.NDArray[np.bool_] = (known[places] == keys) & (keys != NO_LINE)
        return found


def line_keys(lines: Sequence[Sequence[str]], origins: Sequence[str]) -> Keys:
    """Return the key of each line of each text, in order.

    Args:
        lines: for each text its lines.
        origins: for each text its origin.
    """
    encoded = normalize(list(chain.from_iterable(lines))).encoded()
    hash_line = xxhash.xxh3_64_intdigest
    keys = (
        (hash_line(line, seed) or 1) if line else 0
        for line, seed in zip(encoded, _seeds(lines, origins), strict=True)
    )
    return np.fromiter(keys, np.uint64, len(encoded))


def _seeds(lines: Sequence[Sequence[str]], origins: Sequence[str]) -> Iterator[int]:
    """Yield, for each line, the hash of its origin."""
    for own, origin in zip(lines, origins, strict=True):
        seed = xxhash.xxh3_64_intdigest(origin.encode("utf-8", "surrogatepass"))
        for _ in own:
            yield seed
