"""The keys that a secret seed stands for, and the version of a fingerprint configuration."""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np

from stream_dedup.settings import Settings
from stream_dedup.text.shingles import HashKeys

#: Raised whenever the same settings and text would give another fingerprint.
FORMAT = 1

_CONFIGURATION = ("method", "shingle", "max_characters", "window")
_OF_METHOD = {"minhash": ("threshold", "recall"), "simhash": ("hamming",)}
#: Described only where they are set, so that indexes from before they existed keep their version.
_OPTIONAL = {"minhash": ("rows",), "simhash": ("blocks", "inner_blocks")}


def derive(seed: str, purpose: str, count: int = 1) -> list[int]:
    """Derive ``count`` 64-bit numbers from the seed with BLAKE2b, different for each purpose."""
    numbers = []
    for index in range(count):
        digest = hashlib.blake2b(
            f"{purpose}/{index}".encode(), key=hashlib.sha512(seed.encode()).digest(), digest_size=8
        )
        numbers.append(int.from_bytes(digest.digest(), "little"))
    return numbers


def shingle_keys(seed: str) -> HashKeys:
    """Return the keys of the shingle hashes."""
    return HashKeys(
        base=derive(seed, "base")[0] | 1,
        finish=np.uint64(derive(seed, "finish")[0]),
        places=np.array(derive(seed, "places", 8), np.uint64) | np.uint64(1),
    )


def digest_seed(seed: str) -> int:
    """Return the seed of the xxh3-128 text digests."""
    return derive(seed, "digest")[0]


def configuration_version(settings: Settings) -> str:
    """Return 16 hexadecimal digits that change when any fingerprint, table or match rule does.

    The seed goes in as a keyed digest, so the version does not give it away.
    """
    names = _CONFIGURATION + _OF_METHOD[settings.method]
    names += tuple(name for name in _OPTIONAL[settings.method] if getattr(settings, name))
    described = {name: getattr(settings, name) for name in names}
    described |= {"format": FORMAT, "seed": derive(settings.seed.get_secret_value(), "version")[0]}
    return hashlib.blake2b(
        msgspec.json.encode(described, order="deterministic"), digest_size=8
    ).hexdigest()
