"""Bounded candidates beside claim ids that are taken, and beside writes that Redis has lost."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import adversarial
from stream_dedup import Deduplicator, Document, Settings, Status
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import index_batch
from stream_dedup.index.connection import LostWritesError
from stream_dedup.index.keys import ClaimIds
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round


def templates(count: int) -> list[Document]:
    """Make documents of one template, none of which are near each other."""
    words = adversarial.template(np.random.default_rng(1), count)
    return [Document(n, text) for n, text in enumerate(adversarial.spell(words))]


def hot(redis_url: str, partitions: int) -> Settings:
    """Return settings under which most keys of a template are soon full."""
    return Settings(redis_url=redis_url, partitions=partitions, max_candidates=16)


@pytest.mark.parametrize("partitions", [1, 4])
def test_taken_ids_of_documents_with_full_keys_make_no_second_claim(
    redis_url: str, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has written every other id: which documents see, note or force in with it."""
    settings, documents = hot(redis_url, partitions), templates(120)
    with Deduplicator(settings, index=(index := RedisIndex.connect(settings))) as worker:
        assert {one.status for one in worker.decide(documents[:60])} == {Status.ORIGINAL}
        mint, taken = ClaimIds.mint, list[int]()

        def minted(ids: ClaimIds, moment: float, count: int = 1) -> object:
            fresh = mint(ids, moment, count)
            if not taken and count > 1:
                taken.extend(fresh[::2].tolist())
                put(index, taken)
            return fresh

        monkeypatch.setattr(ClaimIds, "mint", minted)
        decided = worker.decide(documents[60:])
        again = worker.decide(documents)

        assert taken
        assert {one.status for one in decided} == {Status.ORIGINAL}
        assert {one.status for one in again} == {Status.ORIGINAL}
        assert [len(one) for one in index.named(range(120))] == [1] * 120
        round_ = Round(index.store)
        values = round_.read(np.array(taken, np.uint64))
        round_.run()
        # What stands there is the other document's, and was neither committed nor forgotten.
        assert {value[:1] for value in values} <= {b"P", b"V"}


def put(index: RedisIndex, claims: list[int]) -> None:
    """Write the record of another document under these ids."""
    document = Document("another", " ".join(f"other{n}" for n in range(50)))
    batch = index_batch([document], Fingerprinter(Settings()).fingerprint([document.text]))
    round_ = Round(index.store)
    round_.put(np.array(claims, np.uint64), index.records.encode(batch) * len(claims))
    round_.run()


def test_a_claim_that_is_only_entered_notices_lost_writes(redis_url: str) -> None:
    settings, documents = hot(redis_url, 4), templates(60)
    index = RedisIndex.connect(settings)
    places = index.store.layout.place_ids([1, 2, 3])
    with Deduplicator(settings, index=index) as worker:
        worker.decide(documents)
        index.store.client.flushdb()
        round_ = Round(index.store)
        round_.note(places, np.array([1, 2, 3], np.uint64))
        with pytest.raises(LostWritesError):
            round_.run()
