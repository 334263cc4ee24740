"""The planner's arithmetic: known figures, and which way each prediction goes."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest

from stream_dedup.errors import SettingsError
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Fingerprints
from stream_dedup.fingerprint.hashing import configuration_version
from stream_dedup.fingerprint.minhash import MinHash
from stream_dedup.fingerprint.planned import evidence_bytes
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.keys import Layout
from stream_dedup.index.records import RecordFormat
from stream_dedup.settings import Settings
from stream_dedup.tables.footprint import allocated, hash_bytes, score_bytes, set_bytes
from stream_dedup.tables.plan import (
    Design,
    Load,
    Plan,
    choose_partitions,
    design_rows,
    fullest_shard,
    fused_designs,
    layout_bits,
    minhash_designs,
    predict,
    recommend,
    record_value_bytes,
    server_microseconds,
    simhash_designs,
)
from stream_dedup.types import Choice, Method, VerifyBy

#: Configuration versions from before blocks and rows could be set.
DEFAULT_MINHASH, DEFAULT_SIMHASH = "79f7c85549efdeff", "00259b0e378d5978"

SIMHASH = Load(1_000_000, SimHash(Settings()).sketch_bytes)
MINHASH = Load(1_000_000, MinHash.sketch_bytes)


def design(name: str, hamming: int = 3) -> Design:
    return next(design for design in simhash_designs(hamming) if design.name == name)


def plans(hamming: int, originals: int) -> list[Plan]:
    load = SIMHASH._replace(originals=originals)
    return [predict(design, load) for design in simhash_designs(hamming)]


class TestDesigns:
    @pytest.mark.parametrize(
        ("name", "tables", "bits", "matches"),
        [
            ("6 blocks", 20, {31, 32, 33}, 2**3),
            ("4 x 4 blocks", 16, {28}, 2**6),
            ("5 blocks", 10, {25, 26}, 2**9),
            ("4 blocks", 4, {16}, 2**18),
        ],
    )
    def test_they_are_those_of_manku_jain_and_das_sarma(
        self, name: str, tables: int, bits: set[int], matches: int
    ) -> None:
        """Section 3 of the paper: 2^34 fingerprints, k = 3, the shortest prefix of each design."""
        found = design(name)

        assert found.tables == tables
        assert set(found.prefix_bits) == bits
        assert 2**34 / 2 ** min(bits) == matches

    @pytest.mark.parametrize("hamming", range(9))
    def test_they_make_the_tables_that_their_settings_make(self, hamming: int) -> None:
        for found in simhash_designs(hamming):
            chosen: dict[str, Any] = dict(found.settings)
            settings = Settings(method=Method.SIMHASH, hamming=hamming, **chosen)

            assert tuple(SimHash(settings).prefix_bits) == found.prefix_bits
            assert found.tables <= 256

    @pytest.mark.parametrize("hamming", [0, 3, 8, 12, 16])
    def test_so_do_those_of_128_bits(self, hamming: int) -> None:
        designs = simhash_designs(hamming, 128)

        for found in designs:
            settings = Settings.model_validate(
                {"method": "simhash", "simhash_bits": 128, "hamming": hamming, **found.settings}
            )
            assert tuple(SimHash(settings).prefix_bits) == found.prefix_bits
            assert found.tables <= 256
            assert max(found.prefix_bits) <= 53
        assert [found for found in designs if not any(found.settings.values())]

    def test_fused_designs_are_the_longest_bands_beside_blocks(self) -> None:
        blocks = simhash_designs(3)
        found = fused_designs(minhash_designs(0.8, 0.99, SIGNATURE_VALUES), blocks)

        assert [design.tables for design in found] == [16 + design.tables for design in blocks]
        for design_ in found:
            settings = Settings.model_validate({"method": "fused", **design_.settings})
            assert tuple(Fingerprinter(settings).method.prefix_bits) == design_.prefix_bits
            assert design_.has_blocks
            assert design_.recall_at(0.8) == design_.recall
        at, reason = recommend([predict(design_, MINHASH) for design_ in found], 10, 4096)
        assert found[at].name == "16 bands of 6, 5 blocks"
        assert "least memory" in reason

    def test_rates_are_those_of_the_bands(self) -> None:
        (rates,) = {found.rates(0.8) for found in minhash_designs(0.8, 0.99, 128)[:1]}

        assert rates is not None
        assert rates.missed_at == pytest.approx(1 - 0.9923, abs=1e-4)
        assert rates.missed_share == pytest.approx(0.00076, abs=1e-5)
        assert rates.false_area == pytest.approx(0.2192, abs=1e-4)
        assert design("5 blocks").rates(0.8) is None

    def test_the_one_without_settings_is_the_default(self) -> None:
        (default,) = [found for found in simhash_designs(3) if not any(found.settings.values())]

        assert default.name == "5 blocks"
        assert default.tables == comb(5, 2)

    def test_bands_reach_the_recall_at_the_threshold(self) -> None:
        found = minhash_designs(0.8, 0.99, SIGNATURE_VALUES)

        assert [design.bands for design in found] == [(16, 6), (12, 5), (9, 4), (7, 3), (5, 2)]
        assert min(design.recall for design in found) >= 0.99
        for design_ in found:
            settings = Settings(rows=design_.settings["rows"])
            assert MinHash(settings).design == design_.bands
            assert MinHash(settings).prefix_bits == list(design_.prefix_bits)

    def test_longer_bands_find_fewer_pairs_below_the_threshold(self) -> None:
        found = [design.recall_at(0.4) for design in minhash_designs(0.8, 0.99, SIGNATURE_VALUES)]

        assert found == sorted(found, key=lambda share: share or 0.0)
        assert design("5 blocks").recall_at(0.4) is None

    def test_rows_that_need_too_many_values_are_refused_with_a_way_out(self) -> None:
        with pytest.raises(SettingsError, match=r"7 rows over 128.*99\.00%.*Lower rows or recall"):
            design_rows(7, 0.8, 0.99, SIGNATURE_VALUES)
        with pytest.raises(SettingsError, match="Lower rows or recall"):
            MinHash(Settings(rows=128))


class TestSettings:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"blocks": 3}, "blocks must be 0 or more than hamming, which is 3"),
            ({"blocks": 4, "inner_blocks": 2}, "inner_blocks must be 0 or more than hamming"),
            ({"blocks": 14}, "364 tables, more than 256"),
            ({"blocks": 6, "inner_blocks": 6}, "400 tables"),
            ({"hamming": 8, "inner_blocks": 9}, "405 tables"),
        ],
    )
    def test_blocks_that_cannot_be_are_refused(self, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Settings(method=Method.SIMHASH, **changed)

    def test_only_what_is_set_makes_another_configuration(self) -> None:
        simhash = Settings(method=Method.SIMHASH)
        others = [
            simhash,
            simhash.model_copy(update={"blocks": 4}),
            simhash.model_copy(update={"blocks": 4, "inner_blocks": 4}),
            Settings(),
            Settings(rows=4),
        ]

        assert len({configuration_version(settings) for settings in others}) == len(others)
        assert configuration_version(Settings(rows=4)) == configuration_version(
            Settings(rows=4, blocks=5)
        )

    def test_the_defaults_keep_their_configuration(self) -> None:
        """Indexes from before these settings existed must go on."""
        assert configuration_version(Settings()) == DEFAULT_MINHASH
        assert configuration_version(Settings(method=Method.SIMHASH)) == DEFAULT_SIMHASH


class TestFootprint:
    @pytest.mark.parametrize(
        ("size", "given"), [(1, 8), (9, 16), (24, 32), (129, 160), (161, 192), (4097, 5120)]
    )
    def test_memory_is_given_in_classes(self, size: int, given: int) -> None:
        assert allocated(size) == given

    @pytest.mark.parametrize(
        ("bits", "size"), [(0, 2), (7, 2), (8, 2.5), (31, 6), (32, 8), (53, 10)]
    )
    def test_a_score_takes_what_its_size_needs(self, bits: int, size: float) -> None:
        assert score_bytes(bits) == pytest.approx(size, abs=0.6)

    @pytest.mark.parametrize(
        ("members", "low", "high"),
        [(1, 80, 150), (4, 38, 55), (8, 28, 40), (16, 24, 35), (32, 20, 30), (200, 100, 140)],
    )
    def test_an_entry_takes_what_was_measured_before(
        self, members: int, low: float, high: float
    ) -> None:
        """Fewer members share the key; more than 128 leave the listpack."""
        expected = set_bytes("sd:{0}:t03:0d15", members, 37) / members

        assert low <= expected <= high

    def test_a_value_beyond_64_bytes_leaves_the_listpack(self) -> None:
        short, long = (hash_bytes("sd:{0}:c1000", 64, size) / 64 for size in (64, 65))

        assert 75 < short < 100
        assert long > short + 50


class TestPredictions:
    @pytest.mark.parametrize("originals", [1_000, 99_999, 10**6, 10**8, 10**10])
    def test_sets_are_those_of_the_layout(self, originals: int) -> None:
        layout = Layout.design("sd", 1, [53], originals)

        assert layout.set_bits == layout_bits(originals)
        assert layout.buckets == max(1, originals // 64)

    @pytest.mark.parametrize("id_", ["a", "x" * 31, "x" * 32, "x" * 255])
    def test_a_record_is_as_long_as_the_index_writes_it(self, id_: str) -> None:
        for settings in (Settings(), Settings(method=Method.SIMHASH)):
            fingerprinter = Fingerprinter(settings)
            batch = _one(id_, fingerprinter.fingerprint(["some text"]))
            load = Load(1_000, fingerprinter.method.sketch_bytes, len(id_))

            assert record_value_bytes(load) == 1 + len(
                RecordFormat.of(fingerprinter).encode(batch)[0]
            )

    @pytest.mark.parametrize("choice", [Choice.FIRST, Choice.PREFERRED])
    @pytest.mark.parametrize("verify_by", [VerifyBy.SKETCH, VerifyBy.BLOOM])
    def test_a_plan_counts_evidence_and_ranks(self, verify_by: VerifyBy, choice: Choice) -> None:
        settings = Settings(verify_by=verify_by, choice=choice)
        fingerprinter = Fingerprinter(settings)
        batch = _one("x" * 20, fingerprinter.fingerprint(["some text"]))
        (record,) = RecordFormat.of(fingerprinter).encode(batch)

        load = Load(1_000, evidence_bytes(settings, None), 20)

        assert record_value_bytes(load) == 1 + len(record)

    def test_candidates_are_originals_over_prefixes(self) -> None:
        plan = predict(design("4 blocks"), SIMHASH._replace(originals=2**20))

        assert plan.candidates_per_probe == 2**4
        assert plan.candidates_per_document == 4 * 2**4

    @pytest.mark.parametrize("hamming", range(9))
    def test_more_originals_take_more_of_everything(self, hamming: int) -> None:
        few, many = plans(hamming, 10**6), plans(hamming, 10**9)

        for less, more in zip(few, many, strict=True):
            assert less.candidates_per_probe < more.candidates_per_probe
            assert less.memory < more.memory
            assert less.shards < more.shards
            assert less.documents_per_second >= more.documents_per_second

    def test_more_tables_take_more_memory(self) -> None:
        """But for the prefixes of 16 bits, whose 1,526 members a set are no listpack any more."""
        shortest, *others = plans(3, 10**8)

        sizes = [plan.table_bytes for plan in others]
        assert sizes == sorted(sizes)
        assert sizes[0] < shortest.table_bytes

    def test_longer_ids_take_more_memory(self) -> None:
        sizes = [
            predict(design("5 blocks"), SIMHASH._replace(id_bytes=size)).bytes_per_original
            for size in (1, 10, 22, 23, 100, 255)
        ]

        assert sizes == sorted(sizes)

    def test_shards_hold_the_memory_at_most_four_fifths_full(self) -> None:
        plan = predict(minhash_designs(0.8, 0.99, 128)[0], MINHASH._replace(memory=100_000_000))

        assert plan.memory / plan.shards <= 80_000_000 < plan.memory / (plan.shards - 1)
        assert predict(plan.design, MINHASH).shards == 1

    def test_a_candidate_or_a_table_costs_time(self) -> None:
        assert server_microseconds(10, 0) < server_microseconds(11, 0)
        assert server_microseconds(10, 0) < server_microseconds(10, 1)


class TestPartitions:
    def test_one_shard_needs_one(self) -> None:
        assert choose_partitions(1) == 1
        assert fullest_shard(1, 1) == 1.0

    @pytest.mark.parametrize("shards", [2, 3, 5, 10, 16, 41, 60, 100])
    def test_there_are_many_more_than_shards_and_they_spread(self, shards: int) -> None:
        partitions = choose_partitions(shards)

        assert partitions >= 64
        assert partitions >= 16 * shards
        assert partitions.bit_count() == 1
        assert partitions == 4096 or fullest_shard(partitions, shards) <= 1.25

    def test_there_are_never_more_than_the_setting_allows(self) -> None:
        assert choose_partitions(5000) == 4096

    def test_the_fullest_shard_is_that_of_redis(self) -> None:
        """CLUSTER KEYSLOT "sd:{0}:" and "sd:{1}:" are 13907 and 9842: both in the upper half."""
        assert fullest_shard(2, 2) == 2.0


class TestRecommendation:
    @pytest.mark.parametrize(
        ("originals", "name"),
        [
            (10**5, "4 blocks"),
            (10**6, "5 blocks"),
            (10**8, "4 x 4 blocks"),
            (10**9, "6 blocks"),
            (10**10, "7 blocks"),
        ],
    )
    def test_it_is_the_smallest_that_keeps_the_candidates_few(
        self, originals: int, name: str
    ) -> None:
        found = plans(3, originals)

        at, reason = recommend(found, 10, 4096)

        assert found[at].design.name == name
        assert "least memory" in reason
        assert "at most 10 candidates" in reason

    def test_it_says_when_no_design_will_do(self) -> None:
        found = plans(8, 10**9)

        at, reason = recommend(found, 10, 4096)

        fewest = min(plan.candidates_per_document for plan in found)
        assert found[at].candidates_per_document == fewest
        assert reason.startswith("No design returns at most 10 candidates")
        assert "miss copies" in reason

    def test_longest_bands_are_recommended(self) -> None:
        found = [predict(design, MINHASH) for design in minhash_designs(0.8, 0.99, 128)]

        at, reason = recommend(found, 10, 4096)

        assert found[at].design.bands == (16, 6)
        assert "longest that reach the recall" in reason


def _one(id_: str, prints: Fingerprints) -> IndexBatch:
    return IndexBatch([id_], np.zeros(1, np.uint64), np.zeros(1), prints, np.full(1, np.inf))
