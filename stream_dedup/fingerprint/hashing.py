"""The keys that a secret seed stands for, and the version of a fingerprint configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_dedup.errors import SettingsError
from stream_dedup.fingerprint.frequencies import Frequencies, Origin, read_frequencies
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import HashKeys
from stream_dedup.types import VerifyBy

#: Raised whenever the same settings and text would give another fingerprint.
FORMAT = 1

_CONFIGURATION = ("method", "shingle", "max_characters", "window")
_OF_METHOD = {
    "minhash": ("threshold", "recall"),
    "simhash": ("hamming",),
    "fused": ("threshold", "recall", "hamming", "fused_resemblance"),
}
#: Described only where they are set, so that indexes from before they existed keep their version.
_OF_MINHASH = ("rows", "minhash")
_OF_SIMHASH = ("blocks", "inner_blocks", "simhash_bits", "weights")
_OPTIONAL = {
    "minhash": _OF_MINHASH,
    "simhash": _OF_SIMHASH,
    "fused": _OF_MINHASH + _OF_SIMHASH,
}
_VERIFYING = ("verify_by", "measure", "verify_threshold", "choice", "renew")


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


class IdSeeds(NamedTuple):
    """Seeds of the xxh3-64 hashes of document ids; 0, which is no key, without a secret seed.

    Attributes:
        identity: of source and id, by which a document that comes again is known.
        place: of the id, under which originals are found by it.
        sample: of source and id, by which documents are drawn for people to look at.
    """

    identity: int = 0
    place: int = 0
    sample: int = 0


def id_seeds(seed: str) -> IdSeeds:
    """Return the seeds of the hashes of ids.

    The empty seed is known to everybody, so a key derived from it would protect nothing; it would
    only make indexes useless that were built before these hashes had keys.
    """
    return IdSeeds(*(derive(seed, f"{name} of ids")[0] for name in IdSeeds._fields if seed))


def configuration_version(settings: Settings, learned: Mapping[str, str] | None = None) -> str:
    """Return 16 hexadecimal digits that change when any fingerprint, table or match rule does.

    The seed goes in as a keyed digest, so the version does not give it away; of a file of document
    frequencies the digest of its content does, not its name.

    Args:
        settings: all settings.
        learned: digest of each file that texts are cleaned with, by the setting that names it.

    Raises:
        SettingsError: the file of document frequencies cannot be used.
    """
    described = describe_configuration(settings, learned)
    return hashlib.blake2b(
        msgspec.json.encode(described, order="deterministic"), digest_size=8
    ).hexdigest()


def describe_configuration(
    settings: Settings, learned: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what makes up a configuration, as ``configuration_version`` digests it.

    Args:
        settings: all settings.
        learned: see there.

    Raises:
        SettingsError: the file of document frequencies cannot be used.
    """
    names = _CONFIGURATION + _OF_METHOD[settings.method]
    optional = _OPTIONAL[settings.method] + _VERIFYING
    names += tuple(name for name in optional if _is_set(settings, name))
    if settings.verify_by is not VerifyBy.SKETCH:
        names += ("near_from",)
    described = {name: getattr(settings, name) for name in names}
    if settings.is_punctuation_inverted:
        described["punctuation"] = settings.punctuation
    if settings.clean:
        described["clean"] = settings.clean
    described |= learned or {}
    described |= {"format": FORMAT, "seed": derive(settings.seed.get_secret_value(), "version")[0]}
    if described.get("weights") == "tfidf":
        described["frequencies"] = required_frequencies(settings).digest()
    return described


def required_frequencies(settings: Settings) -> Frequencies:
    """Read the document frequencies that the settings name, for the shingles that they make.

    Raises:
        SettingsError: they are not set, cannot be read, or are of other shingles.
    """
    if settings.frequencies_file is None:
        msg = "No frequencies_file is set. Make one with stream-dedup learn frequencies."
        raise SettingsError(msg)
    frequencies = read_frequencies(settings.frequencies_file)
    if frequencies.origin != frequencies_origin(settings):
        msg = (
            f"{settings.frequencies_file} was learned with other settings: another shingle (it "
            f"has {frequencies.origin.shingle}) or seed. Learn it with those that it is used with."
        )
        raise SettingsError(msg)
    return frequencies


def frequencies_origin(settings: Settings) -> Origin:
    """Return what document frequencies must have been learned from to be of use here."""
    shingle = settings.shingle
    if settings.is_punctuation_inverted:
        shingle += f", punctuation {settings.punctuation}"
    return Origin(shingle, derive(settings.seed.get_secret_value(), "frequencies")[0])


def _is_set(settings: Settings, name: str) -> bool:
    return bool(getattr(settings, name) != Settings.model_fields[name].default)
