"""Who does not know the seed cannot bring unrelated documents under one key."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from benchmarks.adversarial import Spread, aim, honest, keys_of, settings_of, spread, texts
from stream_dedup import ConfigurationMismatch, Deduplicator, Document
from stream_dedup.deduplicator import Stages
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import duplicate_id, id_hashes
from stream_dedup.index.description import describe
from stream_dedup.index.registry import Registry
from stream_dedup.index.state import StateFile
from stream_dedup.types import DocumentId, Status

DOCUMENTS = 2_000
#: Bits of an id's hash that the attacker brings together, and how many ids of it.
BUCKET_BITS, IDS = 10, 400
METHODS = ("minhash", "simhash")


@cache
def found(method: str, seed: str, *, aimed: bool) -> Spread:
    make = aim(Fingerprinter(settings_of(method))) if aimed else honest
    return spread(keys_of(Fingerprinter(settings_of(method, seed)), texts(make, DOCUMENTS)))


@pytest.mark.parametrize("method", METHODS)
def test_with_the_seed_most_documents_can_be_aimed(method: str) -> None:
    assert found(method, "", aimed=True).largest > DOCUMENTS / 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", ["a secret", "another one"])
def test_without_it_the_same_documents_lie_as_honest_ones_do(method: str, seed: str) -> None:
    aimed, ordinary = found(method, seed, aimed=True), found(method, seed, aimed=False)

    assert aimed.largest <= ordinary.largest + 2
    assert aimed.keys >= 0.99 * ordinary.keys
    # Chi-square by its degrees of freedom has a standard deviation of .044 here.
    assert aimed.deviation < ordinary.deviation + 0.4


def fullest(hashes: npt.NDArray[np.uint64]) -> int:
    """Return how many hashes the fullest bucket has."""
    return int(np.bincount((hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)).max())


def identities(seed: str, ids: list[str]) -> npt.NDArray[np.uint64]:
    """Return what indexes know documents by that come again."""
    return (
        Stages(settings_of("minhash", seed)).prepare([Document(one, "") for one in ids]).identities
    )


def places(seed: str, ids: list[str]) -> npt.NDArray[np.uint64]:
    """Return what the embedded index finds originals by."""
    return Registry(0, settings_of("minhash", seed), None, resumes=False)._id_keys(ids)


@pytest.mark.parametrize(("prefix", "hashes"), [(b"\0", identities), (b"", places)])
def test_ids_searched_for_one_bucket_are_spread_by_a_secret_seed(
    prefix: bytes, hashes: Callable[[str, list[str]], npt.NDArray[np.uint64]]
) -> None:
    top = 64 - BUCKET_BITS
    found = (
        one
        for one in map(str, range(10**7))
        if not xxhash.xxh3_64_intdigest(prefix + one.encode()) >> top
    )
    aimed = list(islice(found, IDS))
    honest_ids = [f"honest {number}" for number in range(IDS)]

    assert fullest(hashes("", aimed)) == IDS
    assert fullest(hashes("a secret", aimed)) <= fullest(hashes("a secret", honest_ids)) + 3


def test_identities_and_places_of_ids_have_keys_of_their_own() -> None:
    seeds = Fingerprinter(settings_of("minhash", "a secret")).id_seeds

    assert len({*seeds, 0}) == len(seeds) + 1


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, "1"), (1, "\x001"), (-5, "\0-5"), ("a", "\0a"), ("\0a", "\0\0a"), ("é", "e\u0301")],
)
def test_no_id_passes_for_another(one: DocumentId, other: DocumentId) -> None:
    with Deduplicator() as deduplicator:
        first, second = deduplicator.decide([Document(one, "a text"), Document(other, "a text")])

    assert (first.status, second.status) == (Status.ORIGINAL, Status.EXACT_DUPLICATE)
    assert len(set(id_hashes([one, other], 0).tolist())) == 2
    assert duplicate_id(one, b"digest") != duplicate_id(other, b"digest")


def test_without_a_seed_ids_are_hashed_as_ever() -> None:
    (identity,) = identities("", ["17"]).tolist()

    assert identity == xxhash.xxh3_64_intdigest(b"\x0017")
    assert id_hashes(["17"], 0).tolist() == [xxhash.xxh3_64_intdigest(b"17")]


@pytest.mark.parametrize("seed", ["", "a secret"])
def test_a_state_file_of_before_is_read_without_a_seed_and_refused_with_one(
    seed: str, tmp_path: Path
) -> None:
    settings, path = settings_of("minhash", seed), tmp_path / "state.db"
    stages = Stages(settings)
    described = describe({k: v for k, v in stages.fingerprinter.described.items() if k != "ids"})
    StateFile(path, stages.configuration, keeps_ranks=False, described=described).close()

    if seed:
        with pytest.raises(ConfigurationMismatch, match=r"What differs: ids was unset, is keyed\."):
            Deduplicator(settings, state=path)
    else:
        Deduplicator(settings, state=path).close()
