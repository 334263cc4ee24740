"""What an index in Redis counts of its claims, against what is known of the documents."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

import pytest
import redis
import xxhash
from pydantic import SecretStr

from stream_dedup import ConfigurationMismatch, Deduplicator, Document, Method, Settings
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.counts import ClaimCounts
from stream_dedup.index.redis import RedisIndex

TEXT = "the ferry to the island leaves at nine in the morning and again at noon if it is full"
OTHER = "boil the potatoes for twenty minutes drain them and let them steam until they are dry"
#: Shares some MinHash bands of two rows with TEXT, and is not near.
CHANGED = TEXT.replace("nine in the morning", "ten").replace("noon", "four")
#: Shares one of three SimHash blocks with TEXT, and differs in four bits.
CLOSE = TEXT.replace("ferry", "potato", 1)
BY_HAMMING = {"method": Method.SIMHASH, "hamming": 2, "blocks": 3}


def counts(settings: Settings, *batches: list[str]) -> ClaimCounts:
    """Decide batches of texts; return what the claims of the last went through."""
    with closing(RedisIndex.connect(settings)) as index, Deduplicator(settings, index=index) as it:
        for number, texts in enumerate(batches):
            it.decide([Document(f"{number}.{at}", text) for at, text in enumerate(texts)])
        return index.counts


def test_documents_that_come_too_late_are_counted_over_all_batches(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url, window=1000.0, lateness=100.0)
    with closing(RedisIndex.connect(settings)) as index, Deduplicator(settings, index=index) as it:
        late = []
        for number, time in enumerate([1000.0, 899.0, 900.0, 898.0]):
            it.decide([Document(number, f"{TEXT} {number}", time)])
            late.append((index.late, index.counts.late))

    assert late == [(0, 0), (1, 1), (1, 0), (2, 1)]


@pytest.mark.parametrize("partitions", [1, 4])
class TestCounts:
    def settings(self, redis_url: str, partitions: int, **values: object) -> Settings:
        given = {"redis_url": redis_url, "partitions": partitions, "expected_originals": 1000}
        return Settings.model_validate(given | values)

    def test_originals_come_upon_nobody(self, redis_url: str, partitions: int) -> None:
        found = counts(self.settings(redis_url, partitions), [TEXT, OTHER])

        assert found.probes == 2 * 16
        assert (found.candidates, found.accepted, found.rejected) == (0, 0, 0)

    def test_a_copy_comes_upon_its_original_once(self, redis_url: str, partitions: int) -> None:
        found = counts(self.settings(redis_url, partitions), [TEXT, OTHER], [TEXT])

        assert found.probes == 16
        assert (found.candidates, found.accepted, found.rejected) == (1, 1, 0)

    def test_who_is_not_near_is_rejected(self, redis_url: str, partitions: int) -> None:
        settings = self.settings(redis_url, partitions, threshold=0.9, rows=2)

        found = counts(settings, [TEXT], [CHANGED])

        assert (found.candidates, found.accepted, found.rejected) == (1, 0, 1)

    def test_those_that_redis_rules_out_are_counted(self, redis_url: str, partitions: int) -> None:
        settings = self.settings(redis_url, partitions, **BY_HAMMING)

        found = counts(settings, [TEXT], [CLOSE, OTHER])

        assert (found.candidates, found.accepted, found.rejected) == (1, 0, 1)

    def test_batches_larger_than_a_step_are_counted_whole(
        self, redis_url: str, partitions: int
    ) -> None:
        texts = [f"{number} {OTHER} {number * number}" for number in range(600)]

        found = counts(self.settings(redis_url, partitions), [TEXT], [TEXT] * 600)
        many = counts(self.settings(redis_url, partitions), texts)

        # Each step claims for one of its copies; the others have that one's original.
        assert (found.probes, found.accepted) == (2 * 16, 2)
        assert many.probes >= 600 * 16


@pytest.mark.parametrize("seed", ["", "a secret"])
def test_ids_aimed_at_one_sorted_set_are_spread_by_a_secret_seed(redis_url: str, seed: str) -> None:
    # 4,096 sets of ids; the attacker looks for ids whose hashes begin with 12 zeros.
    settings = Settings(redis_url=redis_url, seed=SecretStr(seed), expected_originals=1 << 16)
    numbers = (b"%d" % number for number in range(10**7))
    hits = (one.decode() for one in numbers if not xxhash.xxh3_64_intdigest(one) >> 52)
    aimed = list(islice(hits, 60))
    with closing(RedisIndex.connect(settings)) as index, Deduplicator(settings, index=index) as it:
        it.decide([Document(number, f"{number} " * 40) for number in aimed])
        lengths = [len(members) for _, members in index.reader().id_sets()]
        found = index.named(aimed)

    assert sum(lengths) == len(aimed)
    assert [len(one) for one in found] == [1] * len(aimed)
    assert max(lengths) == len(aimed) if not seed else max(lengths) <= 3


def test_an_index_with_a_seed_whose_ids_have_no_key_is_refused(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url, seed=SecretStr("a secret"))
    RedisIndex.connect(settings).close()
    with redis.Redis.from_url(redis_url) as client:
        client.hset("sd:{index}", "configuration", Fingerprinter(settings).configuration)

    with pytest.raises(ConfigurationMismatch, match=r"now configuration \w{16}\+keyed-ids"):
        RedisIndex.connect(settings)
