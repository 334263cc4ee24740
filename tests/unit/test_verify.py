"""Evidence and measures: golden values, and each against its definition in plain Python."""

from __future__ import annotations

import hashlib
import math
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as checking
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from stream_dedup import (
    Choice,
    Deduplicator,
    Document,
    InputError,
    Measure,
    Method,
    Settings,
    Side,
    Status,
    VerifyBy,
)
from stream_dedup.errors import SettingsError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import index_batch
from stream_dedup.index.records import RecordFormat
from stream_dedup.matching_settings import MEASURES
from stream_dedup.settings_sources import load_settings
from stream_dedup.stream.decoding import Decoder
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.verify.bloom import BITS, LIMIT, standard_error
from stream_dedup.verify.evidence import HEAD, Evidence, counts
from stream_dedup.verify.measures import Sizes, score
from stream_dedup.verify.samples import ALL, SAMPLE
from stream_dedup.verify.texts import CHARACTERS, TextComparison
from stream_dedup.verify.verifier import SAMPLES

OF_SETS = MEASURES[VerifyBy.SHINGLES]
PAIRS = [(kind, measure) for kind, measures in MEASURES.items() for measure in measures]
STORY = " ".join(f"word{number}" for number in range(200))
EDITED = STORY.replace("word50 ", "changed ").replace("word51 ", "")
#: Measures of STORY and EDITED.
GOLDEN_SCORES = {
    (VerifyBy.SKETCH, Measure.RESEMBLANCE): 0.9648,
    (VerifyBy.BOTTOM, Measure.RESEMBLANCE): 0.9652,
    (VerifyBy.BOTTOM, Measure.CONTAINMENT): 0.9848,
    (VerifyBy.BOTTOM, Measure.COSINE): 0.9823,
    (VerifyBy.BOTTOM, Measure.DICE): 0.9823,
    (VerifyBy.BOTTOM, Measure.OVERLAP): 0.9848,
    (VerifyBy.MOD, Measure.RESEMBLANCE): 0.9652,
    (VerifyBy.MOD, Measure.CONTAINMENT): 0.9848,
    (VerifyBy.MOD, Measure.COSINE): 0.9823,
    (VerifyBy.MOD, Measure.DICE): 0.9823,
    (VerifyBy.MOD, Measure.OVERLAP): 0.9848,
    (VerifyBy.BLOOM, Measure.RESEMBLANCE): 0.9695,
    (VerifyBy.BLOOM, Measure.CONTAINMENT): 0.9845,
    (VerifyBy.BLOOM, Measure.COSINE): 0.9845,
    (VerifyBy.BLOOM, Measure.DICE): 0.9845,
    (VerifyBy.BLOOM, Measure.OVERLAP): 0.9845,
    (VerifyBy.SHINGLES, Measure.RESEMBLANCE): 0.9652,
    (VerifyBy.SHINGLES, Measure.CONTAINMENT): 0.9848,
    (VerifyBy.SHINGLES, Measure.COSINE): 0.9823,
    (VerifyBy.SHINGLES, Measure.DICE): 0.9823,
    (VerifyBy.SHINGLES, Measure.OVERLAP): 0.9848,
    (VerifyBy.TEXT, Measure.LCS): 0.9919,
    (VerifyBy.TEXT, Measure.EDIT): 0.9919,
}
#: Checksums of what is kept of a text of 3,000 words.
GOLDEN_PAYLOADS = {
    VerifyBy.BOTTOM: (2056, "88b3668be4dc22b4"),
    VerifyBy.MOD: (1640, "33717d3c2ec3ac87"),
    VerifyBy.BLOOM: (1032, "4192b8996f91c781"),
    VerifyBy.SHINGLES: (23992, "5e8fad92680b1e08"),
}
HASHES = st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=60)


def by_definition(measure: Measure, left: set[int], right: set[int]) -> float:
    common = len(left & right)
    match measure:
        case Measure.RESEMBLANCE:
            return common / len(left | right)
        case Measure.CONTAINMENT:
            return max(common / len(left), common / len(right))
        case Measure.COSINE:
            return common / math.sqrt(len(left) * len(right))
        case Measure.DICE:
            return 2 * common / (len(left) + len(right))
        case _:
            return common / min(len(left), len(right))


def pack(kind: VerifyBy, hashes: set[int]) -> bytes:
    payload = SAMPLES[kind]().pack(np.array(sorted(hashes), np.uint64))
    assert payload is not None
    return payload


def estimate(kind: VerifyBy, measure: Measure, left: set[int], right: set[int]) -> float:
    return float(score(measure, SAMPLES[kind]().sizes([pack(kind, left)], [pack(kind, right)]))[0])


def draw(rng: random.Random, common: int, left: int, right: int) -> tuple[set[int], set[int]]:
    """Draw two sets with so many elements in common, and so many of their own."""
    # Not a set's order, which goes by the low bits.
    drawn = [rng.getrandbits(64) for _ in range(common + left + right)]
    return set(drawn[: common + left]), set(drawn[:common] + drawn[common + left :])


def spread_of(kind: VerifyBy, measure: Measure, *sizes: int, seeds: int) -> tuple[float, float]:
    """Return the mean and the standard deviation of an estimate over many seeds."""
    rng = random.Random(f"{kind} {measure} {sizes}")
    found = [estimate(kind, measure, *draw(rng, *sizes)) for _ in range(seeds)]
    return float(np.mean(found)), float(np.std(found, ddof=1))


def decide(documents: list[Document], **values: Any) -> list[Any]:
    with Deduplicator(Settings(**values)) as deduplicator:
        return deduplicator.decide(documents)


class TestSets:
    @pytest.mark.parametrize("kind", [VerifyBy.SHINGLES, VerifyBy.BOTTOM, VerifyBy.MOD])
    @given(left=HASHES, right=HASHES, shared=HASHES)
    @checking(deadline=None, max_examples=60)
    def test_small_sets_are_measured_exactly(
        self, kind: VerifyBy, left: set[int], right: set[int], shared: set[int]
    ) -> None:
        left, right = left | shared, right | shared

        for measure in OF_SETS:
            expected = by_definition(measure, left, right)
            assert estimate(kind, measure, left, right) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("measure", OF_SETS)
    @pytest.mark.parametrize("kind", SAMPLES)
    def test_no_measure_depends_on_the_order(self, kind: VerifyBy, measure: Measure) -> None:
        rng = random.Random(5)
        for sizes in ((300, 100, 100), (40, 10, 900), (2_000, 500, 500)):
            left, right = draw(rng, *sizes)

            assert estimate(kind, measure, left, right) == estimate(kind, measure, right, left)

    def test_all_shingles_are_kept_up_to_a_bound(self) -> None:
        left, right = draw(random.Random(1), 9_000, ALL - 9_000, 500)

        assert len(pack(VerifyBy.SHINGLES, left)) == HEAD.size + 8 * ALL
        expected = by_definition(Measure.RESEMBLANCE, left, right)
        assert estimate(VerifyBy.SHINGLES, Measure.RESEMBLANCE, left, right) == expected


class TestSamples:
    def test_the_smallest_hashes_are_the_sample(self) -> None:
        left, _ = draw(random.Random(2), 0, 1_000, 0)

        payload = pack(VerifyBy.BOTTOM, left)

        kept = np.frombuffer(payload, "<u8", offset=HEAD.size).tolist()
        assert kept == sorted(left)[:SAMPLE]
        assert counts([payload]).tolist() == [1_000]

    @pytest.mark.parametrize(("size", "modulus"), [(256, 1), (257, 2), (512, 2), (5_000, 32)])
    def test_hashes_that_are_0_modulo_a_power_of_two_are_the_sample(
        self, size: int, modulus: int
    ) -> None:
        left, _ = draw(random.Random(3), 0, size, 0)

        kept = np.frombuffer(pack(VerifyBy.MOD, left), "<u8", offset=HEAD.size).tolist()

        assert kept == sorted(one for one in left if one % modulus == 0)

    @pytest.mark.parametrize(
        ("kind", "measure"),
        [(VerifyBy.MOD, Measure.CONTAINMENT), (VerifyBy.BOTTOM, Measure.RESEMBLANCE)],
    )
    @pytest.mark.parametrize("sizes", [(600, 200, 700), (1_500, 500, 100), (100, 900, 3_000)])
    def test_the_estimate_is_unbiased(
        self, kind: VerifyBy, measure: Measure, sizes: tuple[int, int, int]
    ) -> None:
        common, left, right = sizes
        truth = common / (common + min(left, right))
        if measure is Measure.RESEMBLANCE:
            truth = common / (common + left + right)
        seeds = 300

        mean, deviation = spread_of(kind, measure, *sizes, seeds=seeds)

        assert abs(mean - truth) < 4 * deviation / math.sqrt(seeds)

    def test_the_error_of_a_bottom_sample_is_as_stated(self) -> None:
        _, deviation = spread_of(VerifyBy.BOTTOM, Measure.RESEMBLANCE, 1_600, 200, 200, seeds=300)

        assert deviation == pytest.approx(math.sqrt(0.8 * 0.2 / SAMPLE), rel=0.2)

    def test_a_sample_stays_small_when_hashes_are_chosen(self) -> None:
        chosen = {number << 20 for number in range(1, 20_000)}

        assert len(pack(VerifyBy.MOD, chosen)) <= HEAD.size + 8 * 2 * SAMPLE


class TestBloomFilters:
    @pytest.mark.parametrize("measure", OF_SETS)
    @pytest.mark.parametrize(
        "sizes", [(130, 15, 15), (1_000, 100, 300), (5_000, 500, 500), (500, 3_000, 5_000)]
    )
    def test_estimates_keep_within_the_stated_error(
        self, measure: Measure, sizes: tuple[int, int, int]
    ) -> None:
        common, left, right = (np.array([float(size)]) for size in sizes)
        whole = common + left, common + right
        exact = Sizes.of(common, *whole, whole)
        truth, stated = (float(of(measure, exact)[0]) for of in (score, standard_error))

        mean, deviation = spread_of(VerifyBy.BLOOM, measure, *sizes, seeds=200)

        assert deviation == pytest.approx(stated, rel=0.25)
        assert abs(mean - truth) < stated

    def test_a_filter_has_the_bits_of_its_shingles(self) -> None:
        payload = pack(VerifyBy.BLOOM, {5, BITS + 5, 9})

        bits = np.unpackbits(np.frombuffer(payload, np.uint8, offset=HEAD.size), bitorder="little")
        assert np.flatnonzero(bits).tolist() == [5, 9]

    def test_a_text_of_too_many_shingles_only_equals(self) -> None:
        many = np.arange(LIMIT + 1, dtype=np.uint64)

        assert SAMPLES[VerifyBy.BLOOM]().pack(many) is None


class TestTexts:
    @staticmethod
    def plain_lcs(left: str, right: str) -> float:
        row = [0] * (len(right) + 1)
        for one in left:
            before, row = row, [0]
            for at, other in enumerate(right):
                row.append(before[at] + 1 if one == other else max(before[at + 1], row[at]))
        return row[-1] / max(len(left), len(right))

    @staticmethod
    def plain_edit(left: str, right: str) -> float:
        row = list(range(len(right) + 1))
        for number, one in enumerate(left, start=1):
            before, row = row, [number]
            for at, other in enumerate(right):
                row.append(min(before[at] + (one != other), before[at + 1] + 1, row[at] + 1))
        return 1 - row[-1] / max(len(left), len(right))

    @given(left=st.text("ab字é", min_size=1), right=st.text("ab字é", min_size=1))
    @checking(deadline=None, max_examples=100)
    def test_texts_are_measured_by_definition(self, left: str, right: str) -> None:
        plain: dict[Measure, Callable[[str, str], float]] = {
            Measure.LCS: self.plain_lcs,
            Measure.EDIT: self.plain_edit,
        }
        for measure, definition in plain.items():
            comparison = TextComparison(measure, 0.0)
            sides = [comparison.pack(np.zeros(1, np.uint64), one.encode()) for one in (left, right)]

            found = comparison.scores(sides[:1], sides[1:])[0]

            assert found == pytest.approx(definition(left, right), abs=1e-12)

    def test_a_long_text_is_cut(self) -> None:
        comparison = TextComparison(Measure.EDIT, 0.8)
        ends = ["字" * CHARACTERS + end for end in ("", "abc" * 50_000)]

        left, right = (comparison.pack(np.zeros(1, np.uint64), end.encode()) for end in ends)

        assert comparison.scores([left], [right])[0] == 1.0


@pytest.mark.parametrize(("kind", "measure"), PAIRS)
class TestVerifiers:
    def test_scores_never_change(self, kind: VerifyBy, measure: Measure) -> None:
        printer = Fingerprinter(Settings(verify_by=kind, measure=measure, seed=SecretStr("golden")))
        prints = printer.fingerprint([STORY, EDITED])
        rows = (prints.evidence.rows(np.array([row])) for row in (0, 1))

        found = printer.verifier.compare(*rows)[0][0]

        assert round(float(found), 4) == GOLDEN_SCORES[kind, measure]

    def test_equal_texts_are_near_and_others_without_tokens_are_not(
        self, kind: VerifyBy, measure: Measure
    ) -> None:
        printer = Fingerprinter(Settings(verify_by=kind, measure=measure))
        huge = " ".join(map(str, range(40_000)))
        texts = [STORY, "!!!", "one", huge, STORY, "!!!", "one", huge, "???", "two"]
        prints = printer.fingerprint(texts)
        left, right = prints.evidence.rows(np.arange(4)), prints.evidence.rows(np.arange(4, 8))

        scores, near = printer.verifier.compare(left, right)

        assert scores.tolist() == [1.0] * 4
        assert near.all()
        others = prints.evidence.rows(np.array([8, 9, 8, 0]))
        assert not printer.verifier.compare(left, others)[1].any()

    def test_a_copy_is_found_and_the_measure_named(self, kind: VerifyBy, measure: Measure) -> None:
        documents = [Document(1, STORY, source="1"), Document(2, EDITED, source="2")]

        original, near = decide(documents, verify_by=kind, measure=measure)

        assert original.status is Status.ORIGINAL
        assert (near.status, near.original_id) == (Status.NEAR_DUPLICATE, 1)
        assert near.measure is (None if measure is Measure.RESEMBLANCE else measure)
        assert near.contained is (Side.DOCUMENT if measure is Measure.CONTAINMENT else None)
        assert 0.8 <= near.similarity <= 1.0

    def test_what_is_kept_in_a_record_comes_back(self, kind: VerifyBy, measure: Measure) -> None:
        settings = Settings(verify_by=kind, measure=measure, choice=Choice.PREFERRED)
        printer = Fingerprinter(settings)
        form = RecordFormat.of(printer)
        documents = [Document("a", STORY, 1.0, rank=2.5), Document(2, "!!!")]
        batch = index_batch(documents, printer.fingerprint([STORY, "!!!"]))

        records = [form.decode(data) for data in form.encode(batch)]

        assert [record.rank for record in records] == [2.5, math.inf]
        assert [record.document_id for record in records] == ["a", 2]
        kept, given_ = form.evidence(records), batch.prints.evidence
        assert (kept.sketches == given_.sketches).all()
        assert list(kept.payloads) == list(given_.payloads)


@pytest.mark.parametrize("kind", SAMPLES)
def test_what_is_kept_never_changes(kind: VerifyBy) -> None:
    printer = Fingerprinter(Settings(verify_by=kind, seed=SecretStr("golden")))
    prints = printer.fingerprint([" ".join(f"word{number}" for number in range(3_000))])

    found = hashlib.blake2b(prints.payloads[0], digest_size=8).hexdigest()

    assert (len(prints.payloads[0]), found) == GOLDEN_PAYLOADS[kind]


def test_the_larger_of_two_holds_the_smaller() -> None:
    part = " ".join(STORY.split()[:100])
    rules: dict[str, Any] = {"verify_by": "shingles", "measure": "containment", "threshold": 0.3}
    settings = rules | {"verify_threshold": 0.9}

    _, shorter = decide([Document(1, STORY), Document(2, part)], **settings)
    _, longer = decide([Document(1, part), Document(2, STORY)], **settings)

    assert (shorter.similarity, shorter.contained) == (1.0, Side.DOCUMENT)
    assert (longer.similarity, longer.contained) == (1.0, Side.ORIGINAL)


class TestSettings:
    @pytest.mark.parametrize("kind", VerifyBy)
    @pytest.mark.parametrize("measure", Measure)
    def test_a_measure_that_cannot_be_had_is_refused_with_those_that_can(
        self, kind: VerifyBy, measure: Measure
    ) -> None:
        if measure in MEASURES[kind]:
            assert Settings(verify_by=kind, measure=measure).measure is measure
            return

        with pytest.raises(SettingsError, match=f"take one of its measures .{MEASURES[kind][0]}"):
            load_settings({"verify_by": kind, "measure": measure})

    def test_a_threshold_that_does_not_apply_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="near within hamming bits"):
            Settings(method=Method.SIMHASH, verify_threshold=0.9)

    def test_each_rule_has_a_configuration_of_its_own(self) -> None:
        rules: list[dict[str, Any]] = [{"verify_by": kind, "measure": one} for kind, one in PAIRS]
        rules += [{"choice": choice} for choice in Choice]
        rules += [{"verify_threshold": 0.7}, {"verify_by": "mod", "verify_threshold": 0.7}]
        rules += [{"verify_by": "mod", "method": "simhash", "threshold": x} for x in (0.7, 0.8)]

        versions = {Fingerprinter(Settings(**rule)).configuration for rule in rules}

        # The default is there twice: verified by sketch, and with the choice first.
        assert len(versions) == len(rules) - 1

    def test_the_defaults_keep_the_version_that_they_had(self) -> None:
        assert Fingerprinter(Settings()).configuration == "79f7c85549efdeff"


class TestChoices:
    # Not near each other; the third is near both, and nearer to the second.
    FIRST = " ".join([f"a{number}" for number in range(40)] + STORY.split()[:100])
    SECOND = " ".join(STORY.split()[:100] + [f"b{number}" for number in range(40)])
    BETWEEN = " ".join(STORY.split()[:100] + [f"b{number}" for number in range(15)])

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [(Choice.FIRST, 1), (Choice.NEAREST, 2), (Choice.EARLIEST, 2), (Choice.PREFERRED, 1)],
    )
    @pytest.mark.parametrize("size", [1, 3])
    def test_one_of_two_near_originals_is_chosen(
        self, choice: Choice, expected: int, size: int
    ) -> None:
        documents = [
            Document(1, self.FIRST, time=9.0, rank=1.0),
            Document(2, self.SECOND, time=5.0),
            Document(3, self.BETWEEN, time=7.0, rank=0.0),
        ]
        settings = Settings(threshold=0.6, verify_by=VerifyBy.SHINGLES, choice=choice)

        with Deduplicator(settings) as deduplicator:
            decisions = [
                decision
                for start in range(0, 3, size)
                for decision in deduplicator.decide(documents[start : start + size])
            ]

        assert [decision.status for decision in decisions[:2]] == [Status.ORIGINAL] * 2
        assert decisions[2].original_id == expected

    def test_an_original_stays_one_when_a_preferred_one_arrives(self) -> None:
        documents = [Document(1, STORY, rank=5.0), Document(2, EDITED, rank=0.0)]

        first, second = decide(documents, choice="preferred")

        assert first.status is Status.ORIGINAL
        assert second.original_id == 1

    def test_the_earliest_takes_times(self) -> None:
        with pytest.raises(InputError, match="no event time, but the choice is earliest"):
            decide([Document(1, STORY)], choice="earliest")

    def test_ranks_are_read_from_their_field(self) -> None:
        decoder = Decoder(Settings(rank_field="rank"))

        found = [
            decoder.decode(value, fallback_id="x").rank
            for value in (b'{"text":"a","rank":3}', b'{"text":"a","rank":null}', b'{"text":"a"}')
        ]

        assert found == [3.0, None, None]

    @pytest.mark.parametrize("rank", [b'"first"', b"1e400", b"[]", b"true"])
    def test_what_is_no_rank_is_refused(self, rank: bytes) -> None:
        decoder = Decoder(Settings(rank_field="rank", time_field="time"))

        with pytest.raises(Poison) as caught:
            decoder.decode(b'{"text":"a","time":5,"rank":%s}' % rank, fallback_id="x")

        assert caught.value.reason is Reason.BAD_RANK

    def test_preferring_without_a_field_of_ranks_is_refused(self) -> None:
        with pytest.raises(SettingsError, match="rank_field"):
            Decoder(Settings(choice=Choice.PREFERRED))


class TestStateFiles:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "originals.db"

    @staticmethod
    def rows(path: Path) -> list[list[Any]]:
        with sqlite3.connect(path) as database:
            found = database.execute("SELECT columns FROM originals").fetchall()
        database.close()
        return [msgspec.msgpack.decode(blob) for (blob,) in found]

    def test_the_defaults_write_what_they_always_wrote(self, path: Path) -> None:
        with Deduplicator(Settings(), state=path) as deduplicator:
            deduplicator.decide([Document(1, STORY, rank=1.0)])

        (row,) = self.rows(path)
        assert [len(part) for part in row] == [1, 8, 8, 16, 16 * 8, 256]

    def test_a_file_that_holds_an_empty_batch_is_read(self, path: Path) -> None:
        with Deduplicator(Settings(), state=path) as deduplicator:
            deduplicator.decide([Document(1, STORY)])
        with sqlite3.connect(path) as database:
            empty = msgspec.msgpack.encode([[], b"", b"", b"", b"", b""])
            database.execute("INSERT INTO originals (columns) VALUES (?)", (empty,))
            # Such a file is of format 1, which has no seal.
            database.execute("DELETE FROM meta WHERE name = 'seal'")
            database.execute("UPDATE meta SET value = '1' WHERE name = 'format'")
        database.close()

        with Deduplicator(Settings(), state=path) as deduplicator:
            (decision,) = deduplicator.decide([Document(2, STORY)])

        assert decision.original_id == 1

    def test_a_step_without_originals_leaves_nothing(self, path: Path) -> None:
        originals = [Document(n, f"text number {n} of many", source=str(n)) for n in range(256)]
        copies = [Document(one.id, one.text, source="copy") for one in originals]

        with Deduplicator(Settings(), state=path) as deduplicator:
            deduplicator.decide(originals + copies)

        assert [len(row[0]) for row in self.rows(path)] == [256]

    def test_only_what_is_preferred_keeps_ranks(self, path: Path) -> None:
        settings = Settings(choice=Choice.PREFERRED, verify_by=VerifyBy.BLOOM)
        with Deduplicator(settings, state=path) as deduplicator:
            deduplicator.decide([Document(1, STORY, rank=1.0)])

        (row,) = self.rows(path)
        assert len(row[6][0]) == HEAD.size + BITS // 8
        assert np.frombuffer(row[7], "<f8").tolist() == [1.0]


def test_evidence_without_payloads_has_none_in_part_either() -> None:
    part = Evidence(np.zeros((3, 2), np.uint8)).rows(np.array([2, 0]))

    assert (part.sketches.shape, len(part.payloads)) == ((2, 2), 0)
