"""Fingerprints: fixed for ever, and as good as the theory says.

``python tests/unit/test_fingerprints.py`` writes the golden values anew, after FORMAT was raised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import SettingsError
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.classic import ClassicMinHash
from stream_dedup.fingerprint.fingerprinter import CHUNK_CHARACTERS, Fingerprinter
from stream_dedup.fingerprint.frequencies import Frequencies
from stream_dedup.fingerprint.hashing import (
    FORMAT,
    configuration_version,
    digest_seed,
    frequencies_origin,
)
from stream_dedup.fingerprint.minhash import MinHash
from stream_dedup.fingerprint.simhash import simhash
from stream_dedup.fingerprint.weights import distinct
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Shingles
from stream_dedup.types import Document, Method

GOLDEN = Path(__file__).with_name("golden") / "fingerprints.json"
CHANGED = "fingerprints must never change within a FORMAT: raise FORMAT"
TEXTS = {
    "English": "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "German": "Die Straße nach Süden ist gesperrt; Fußgänger dürfen über die Brücke. GROẞ!",
    "Korean": "서울시는 올봄 한강 다리 보수 공사를 위해 주말마다 차량 통행을 막는다고 밝혔다.",
    "Japanese": "東京の桜は平年より早く咲き、週末にはﾊﾟｰﾃｨｰで公園がにぎわう見込みです。",
    "Chinese": "市政府周二宣布，跨河大桥今年春天将有九个周末禁止汽车通行，行人不受影响。",
    "Thai": "น้ำในแม่น้ำเจ้าพระยาสูงขึ้นมากในสัปดาห์นี้ ชาวบ้านเตรียมกระสอบทราย",
    "Arabic": "أعلنت المدينة يوم الثلاثاء إغلاق الجسر القديم تسع عطلات نهاية أسبوع هذا الربيع.",
    "Hindi": "शहर का सबसे पुराना पुल इस वसंत में नौ सप्ताहांत कारों के लिए बंद रहेगा।",
    "decomposed": "Le cafe\u0301 est ferme\u0301 jusqu'a\u0300 nouvel ordre, dit le ge\u0301rant.",
    "emoji in words": "Good 👩\u200d👩\u200d👧 morning ❤\ufe0f to all of you 😀",
    "emoji": "😀 👍🏽",
    "two words": "two words",
    "one word": "word",
    "one character": "字",
    "nothing": " \u200d ",
    "long": "All work and no play makes Jack a dull boy. " * 2_000,
}
CONFIGURATIONS = list(product(("minhash", "simhash"), ("word:3", "char:5"), ("", "secret")))
#: What else can be chosen, each with its own seed.
VARIANTS: dict[str, dict[str, Any]] = {
    "classic": {"method": "minhash", "minhash": "classic"},
    "rows": {"method": "minhash", "rows": 4, "threshold": 0.7},
    "128 bits": {"method": "simhash", "simhash_bits": 128, "hamming": 6},
    "two levels": {"method": "simhash", "blocks": 4, "inner_blocks": 4},
    "weights one": {"method": "simhash", "weights": "one"},
    "weights tfidf": {"method": "simhash", "weights": "tfidf"},
    "tfidf, 128 bits": {"method": "simhash", "weights": "tfidf", "simhash_bits": 128},
    "punctuation kept": {"punctuation": "keep"},
    "punctuation dropped": {"shingle": "char:5", "punctuation": "drop"},
    "fused": {"method": "fused"},
    "fused, all else": {
        "method": "fused",
        "minhash": "classic",
        "simhash_bits": 128,
        "weights": "one",
        "shingle": "char:5",
        "fused_resemblance": 0.5,
    },
}


def fingerprinter(**values: Any) -> Fingerprinter:
    return Fingerprinter(Settings(**values))


def checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def learned(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Give settings a file of the frequencies of all texts, if they need one."""
    if values.get("weights") != "tfidf":
        return values
    plain = {name: value for name, value in values.items() if name != "weights"}
    chosen = Settings(**plain)
    frequencies = Frequencies(frequencies_origin(chosen), 1 << 12)
    shingles = distinct(Fingerprinter(chosen).shingles(list(TEXTS.values())))
    frequencies.add(shingles.hashes, len(TEXTS))
    frequencies.write(folder / "texts.freq")
    return {**values, "frequencies_file": folder / "texts.freq"}


def golden(**values: Any) -> dict[str, Any]:
    """Return what is kept of the fingerprints of all texts."""
    printer = fingerprinter(**values)
    prints = printer.fingerprint(list(TEXTS.values()))
    texts = {}
    for row, name in enumerate(TEXTS):
        sketch = prints.sketches[row].tobytes()
        texts[name] = {
            "digest": prints.digests[row].hex(),
            "keys": checksum(prints.keys[row].astype("<u8").tobytes()),
            "sketch": sketch[::-1].hex() if len(sketch) <= 16 else checksum(sketch),
        }
    return {"configuration": printer.configuration, "texts": texts}


def all_golden(folder: Path) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **{
            "/".join(names): golden(method=names[0], shingle=names[1], seed=names[2])
            for names in CONFIGURATIONS
        },
        **{
            name: golden(**learned({**values, "seed": name}, folder))
            for name, values in VARIANTS.items()
        },
    }


class TestGolden:
    def test_the_golden_values_are_of_this_format(self) -> None:
        assert json.loads(GOLDEN.read_text())["format"] == FORMAT, CHANGED

    @pytest.mark.parametrize("names", CONFIGURATIONS, ids="/".join)
    def test_fingerprints_are_the_same_for_ever(self, names: tuple[str, str, str]) -> None:
        expected = json.loads(GOLDEN.read_text())["/".join(names)]

        assert golden(method=names[0], shingle=names[1], seed=names[2]) == expected, CHANGED

    @pytest.mark.parametrize("name", VARIANTS)
    def test_so_are_those_of_every_other_method(self, name: str, tmp_path: Path) -> None:
        expected = json.loads(GOLDEN.read_text())[name]

        assert golden(**learned({**VARIANTS[name], "seed": name}, tmp_path)) == expected, CHANGED

    def test_a_digest_is_the_xxh3_of_the_normal_form(self) -> None:
        digest = fingerprinter(seed="s").fingerprint(["  Zwei\nWÖRTER "]).digests[0]

        assert digest == xxhash.xxh3_128_digest("zwei wörter".encode(), digest_seed("s"))


class TestFingerprinter:
    @pytest.mark.parametrize("method", list(Method))
    def test_another_seed_changes_every_hash(self, method: str) -> None:
        texts = list(TEXTS.values())

        one, other = (
            fingerprinter(method=method, seed=seed).fingerprint(texts) for seed in ("", "secret")
        )

        assert not set(one.digests) & set(other.digests)
        assert (one.sketches != other.sketches).any(axis=1).all()
        assert (one.keys != other.keys).all()

    @pytest.mark.parametrize("shingle", ["word:3", "char:5"])
    def test_another_seed_changes_every_shingle(self, shingle: str) -> None:
        one, other = (
            fingerprinter(shingle=shingle, seed=seed).shingles(list(TEXTS.values()))
            for seed in ("", "secret")
        )

        assert one.starts.tolist() == other.starts.tolist()
        assert not np.isin(one.hashes, other.hashes).any()

    @pytest.mark.parametrize("method", list(Method))
    def test_a_text_has_the_same_fingerprint_in_any_batch(self, method: str) -> None:
        printer = fingerprinter(method=method)
        texts = list(TEXTS.values()) * 3

        together = printer.fingerprint(texts)

        assert sum(map(len, texts)) > 2 * CHUNK_CHARACTERS
        for row, text in enumerate(texts[: len(TEXTS)]):
            alone = printer.fingerprint([text])
            for name in ("empty", "keys", "sketches"):
                assert np.array_equal(getattr(alone, name)[0], getattr(together, name)[row])
            assert alone.digests[0] == together.digests[row]

    def test_no_texts_have_no_fingerprints(self) -> None:
        prints = fingerprinter().fingerprint([])

        assert prints.keys.shape == (0, 16)
        assert prints.digests == []

    @pytest.mark.parametrize("method", list(Method))
    def test_a_text_without_a_token_matches_only_its_equal(self, method: str) -> None:
        printer = fingerprinter(method=method)

        prints = printer.fingerprint(["😀 👍", "😀  👍", "😀 👎"])

        assert not prints.empty.any()
        _, near = printer.method.compare(prints.sketches[:1].repeat(2, 0), prints.sketches[1:])
        assert near.tolist() == [True, False]
        assert (prints.keys[0] == prints.keys[1]).all()
        assert (prints.keys[0] != prints.keys[2]).all()

    @pytest.mark.parametrize("shingle", ["word:3", "char:5"])
    def test_only_the_digest_sees_what_lies_behind_max_characters(self, shingle: str) -> None:
        printer = fingerprinter(shingle=shingle, max_characters=1000)
        start = "ten words " * 100
        texts = [start, f"{start}and another end", f"{start}ünd änother ënd", f"x{start}"]

        prints = printer.fingerprint(texts)

        assert len(set(prints.digests)) == 4
        # "ten words " is cut within its last blank, and so the texts differ by no shingle.
        assert (prints.sketches[1] == prints.sketches[2]).all()
        assert (prints.keys[1] == prints.keys[2]).all()
        assert (prints.sketches[0] != prints.sketches[3]).any()

    def test_a_text_is_cut_where_it_stands_alone(self) -> None:
        printer = fingerprinter(max_characters=1000)
        long = "some words and more " * 80

        cut = printer.shingles(["first", long, "last one here now"])
        alone = [
            printer.shingles([text]).hashes for text in ("first", long[:1000], "last one here now")
        ]

        assert np.array_equal(cut.hashes, np.concatenate(alone))


class TestPunctuation:
    @pytest.mark.parametrize(
        ("shingle", "punctuation", "alike"),
        [
            ("word:3", "default", True),
            ("word:3", "drop", True),
            ("word:3", "keep", False),
            ("char:5", "default", False),
            ("char:5", "keep", False),
            ("char:5", "drop", True),
        ],
    )
    def test_counts_in_shingles_as_set(self, shingle: str, punctuation: str, alike: bool) -> None:
        printer = fingerprinter(shingle=shingle, punctuation=punctuation)

        prints = printer.fingerprint(["(Oh) no: not, again -- 你好。", "oh no not again 你好"])

        assert (prints.sketches[0] == prints.sketches[1]).all() == alike
        assert prints.digests[0] != prints.digests[1]

    def test_kept_it_makes_tokens_of_a_text_without_a_letter(self) -> None:
        printer = fingerprinter(shingle="word:2", punctuation="keep")

        counts = np.diff(printer.shingles(["😀 👍 !", "::", "", " "]).starts)

        assert counts.tolist() == [2, 1, 0, 0]

    def test_dropped_it_leaves_no_room_behind_max_characters(self) -> None:
        printer = fingerprinter(shingle="char:2", punctuation="drop", max_characters=1000)
        start = "—" * 997 + "abc"

        shingles = printer.shingles([start + "def", "abc", "x"])

        assert np.diff(shingles.starts).tolist() == [2, 2, 1]
        assert shingles.hashes[:2].tolist() == shingles.hashes[2:4].tolist()


class TestConfigurationVersion:
    @pytest.mark.parametrize(
        "changed",
        [
            {"method": "simhash"},
            {"shingle": "char:5"},
            {"shingle": "word:4"},
            {"threshold": 0.9},
            {"recall": 0.95},
            {"max_characters": 2_000},
            {"punctuation": "keep"},
            {"shingle": "char:5", "punctuation": "drop"},
            {"window": "1d"},
            {"seed": "secret"},
            {"minhash": "classic"},
            {"method": "simhash", "simhash_bits": 128},
            {"method": "simhash", "weights": "one"},
            {"method": "fused"},
        ],
        ids=str,
    )
    def test_changes_with_every_rule_of_matching(self, changed: dict[str, Any]) -> None:
        assert configuration_version(Settings(**changed)) != configuration_version(Settings())

    def test_changes_with_the_distance_of_simhash(self) -> None:
        three, four = (Settings(method=Method.SIMHASH, hamming=hamming) for hamming in (3, 4))

        assert configuration_version(three) != configuration_version(four)

    @pytest.mark.parametrize(
        "changed",
        [
            {"redis_url": "redis://elsewhere:6379/1"},
            {"redis_namespace": "other"},
            {"partitions": 16},
            {"group": "another"},
            {"input_topic": "posts"},
            {"text_field": "body"},
            {"batch_documents": 10},
            {"processes": 2},
            {"hamming": 4},  # of the other method
            {"weights": "one"},
            {"simhash_bits": 128},
            {"fused_resemblance": 0.5},
            {"punctuation": "drop"},  # which word shingles do by default
        ],
        ids=str,
    )
    def test_does_not_change_with_anything_else(self, changed: dict[str, Any]) -> None:
        assert configuration_version(Settings(**changed)) == configuration_version(Settings())

    def test_every_choice_of_a_method_counts(self) -> None:
        fused: dict[str, Any] = {"method": "fused"}
        choices: list[dict[str, Any]] = [
            {},
            {"hamming": 4},
            {"threshold": 0.7},
            {"fused_resemblance": 0.5},
            {"minhash": "classic"},
            {"simhash_bits": 128},
            {"weights": "one"},
            {"rows": 4},
            {"blocks": 4},
        ]

        versions = {configuration_version(Settings(**fused, **choice)) for choice in choices}

        assert len(versions) == len(choices)

    def test_changes_with_what_the_frequencies_are_and_not_with_their_name(
        self, tmp_path: Path
    ) -> None:
        frequencies = Frequencies(frequencies_origin(Settings()), 1 << 12)
        for name in ("one", "same", "more"):
            if name != "same":
                frequencies.add(np.array([7], np.uint64), 1)
            frequencies.write(tmp_path / name)

        one, same, more = (
            configuration_version(
                Settings(method=Method.SIMHASH, weights="tfidf", frequencies_file=tmp_path / name)
            )
            for name in ("one", "same", "more")
        )

        assert one == same != more

    def test_does_not_give_the_seed_away(self) -> None:
        version = configuration_version(Settings(seed=SecretStr("abc")))

        assert len(version) == 16
        assert "abc" not in version
        assert b"abc".hex() not in version


def synthetic(sets: Sequence[np.ndarray[Any, np.dtype[np.uint64]]]) -> Shingles:
    """Return texts whose shingle hashes are these."""
    starts = np.cumsum([0, *map(len, sets)])
    return Shingles(np.concatenate(sets), starts)


def pairs(resemblance: float, union: int, count: int, seed: int) -> tuple[Shingles, Shingles]:
    """Return ``count`` pairs of texts with ``union`` shingles between them."""
    random = np.random.Generator(np.random.PCG64(seed))
    common = round(resemblance * union)
    middle = common + (union - common) // 2
    drawn = random.integers(0, 2**64, (count, union), np.uint64)
    left = drawn[:, :middle]
    right = np.concatenate([drawn[:, :common], drawn[:, middle:]], axis=1)
    return synthetic(list(left)), synthetic(list(right))


class TestClassicMinHash:
    method = ClassicMinHash(Settings(minhash="classic"))

    @pytest.mark.parametrize("resemblance", [0.2, 0.5, 0.8, 0.95])
    @pytest.mark.parametrize("union", [40, 200, 1_000])
    def test_the_estimate_is_unbiased_and_as_close_as_theory_says(
        self, resemblance: float, union: int
    ) -> None:
        """Li and Koenig 2010, equation 15, with b = 8, over 128 values."""
        left, right = pairs(resemblance, union, 400, seed=union)

        scores, _ = self.method.compare(
            self.method.fingerprint(left)[1], self.method.fingerprint(right)[1]
        )

        agreeing = resemblance + (1 - resemblance) / 256
        deviation = np.sqrt(agreeing * (1 - agreeing) / 128) / (1 - 1 / 256)
        errors = scores - resemblance
        assert abs(errors.mean()) < 4 * deviation / np.sqrt(len(errors))
        assert errors.std() < 1.2 * deviation

    def test_accidental_agreement_is_taken_off(self) -> None:
        """Of unrelated sketches 1 value in 256 agrees; equal ones are alike entirely."""
        random = np.random.Generator(np.random.PCG64(9))
        left, right = random.integers(0, 256, (2, 4_000, 128), np.uint8)

        scores, near = self.method.compare(left, right)

        # No estimate is below 0, so their mean is a little above.
        assert (left == right).mean() == pytest.approx(1 / 256, rel=0.1)
        assert scores.mean() < 0.004
        assert not near.any()
        assert (self.method.compare(left, left)[0] == 1.0).all()

    def test_the_tables_find_the_share_that_the_design_says(self) -> None:
        left, right = pairs(0.8, 200, 2_000, seed=1)

        found = (self.method.fingerprint(left)[0] == self.method.fingerprint(right)[0]).any(axis=1)

        assert found.mean() == pytest.approx(0.9923, abs=0.008)


class TestMinHash:
    method = MinHash(Settings())

    @pytest.mark.parametrize("resemblance", [0.2, 0.5, 0.8, 0.95])
    @pytest.mark.parametrize("union", [40, 200, 1_000])
    def test_the_estimate_is_unbiased_and_closer_than_128_permutations(
        self, resemblance: float, union: int
    ) -> None:
        left, right = pairs(resemblance, union, 400, seed=union)

        scores, _ = self.method.compare(
            self.method.fingerprint(left)[1], self.method.fingerprint(right)[1]
        )

        errors = scores - resemblance
        assert abs(errors.mean()) < 0.01
        assert errors.std() < np.sqrt(resemblance * (1 - resemblance) / 128)

    @pytest.mark.parametrize("resemblance", [0.2, 0.6, 0.8])
    @pytest.mark.parametrize("union", [5, 20, 100, 500])
    def test_a_signature_value_is_equal_as_often_as_the_shingles(
        self, resemblance: float, union: int
    ) -> None:
        """Also where most places had to borrow."""
        left, right = pairs(resemblance, union, 2_000, seed=union)

        equal = self.method.signatures(left) == self.method.signatures(right)

        # Values of a pair are dependent where sets are small, so the bound counts pairs only.
        deviation = np.sqrt(resemblance * (1 - resemblance) / len(equal))
        assert abs(equal.mean() - resemblance) < 3.5 * deviation

    def test_the_tables_find_the_share_that_the_design_says(self) -> None:
        left, right = pairs(0.8, 200, 2_000, seed=1)

        found = (self.method.fingerprint(left)[0] == self.method.fingerprint(right)[0]).any(axis=1)

        assert found.mean() > 0.985

    def test_repeated_shingles_count_once(self) -> None:
        hashes = np.random.Generator(np.random.PCG64(3)).integers(0, 2**64, 50, np.uint64)

        keys, sketches = self.method.fingerprint(synthetic([hashes, np.tile(hashes[::-1], 3)]))

        assert (sketches[0] == sketches[1]).all()
        assert (keys[0] == keys[1]).all()

    def test_a_signature_has_no_empty_place(self) -> None:
        signatures = self.method.signatures(synthetic([np.array([7], np.uint64)]))

        assert signatures.tolist() == [[7] * SIGNATURE_VALUES]


def by_definition(hashes: Sequence[int]) -> int:
    """Return a SimHash bit by bit."""
    bits = 0
    for bit in range(64):
        ones = sum(value >> bit & 1 for value in hashes)
        bits |= (2 * ones > len(hashes)) << bit
    return bits


class TestSimHash:
    @settings(deadline=None)
    @given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=30), min_size=1, max_size=6))
    def test_is_what_the_definition_says(self, texts: list[list[int]]) -> None:
        arrays = [np.array(hashes, np.uint64) for hashes in texts]

        assert simhash(synthetic(arrays)).tolist() == [by_definition(hashes) for hashes in texts]

    @pytest.mark.parametrize("count", [254, 255, 256, 510, 511, 65_536, 70_001])
    def test_counts_beyond_a_byte_and_beyond_two(self, count: int) -> None:
        """Biased bits, so that some counts reach the number of shingles and others stay at 0."""
        random = np.random.Generator(np.random.PCG64(count))
        hashes = random.integers(0, 2**64, count, np.uint64) | np.uint64(0xFF << 40)
        hashes &= np.uint64(~(0xFF << 16) & (2**64 - 1))
        short = hashes[:3]

        values = simhash(synthetic([short, hashes, short]))

        expected = [by_definition(part.tolist()) for part in (short, hashes, short)]
        assert values.tolist() == expected

    def test_a_shingle_counts_as_often_as_it_occurs(self) -> None:
        hashes = np.array([0b01, 0b01, 0b10], np.uint64)

        assert simhash(synthetic([hashes])).tolist() == [0b01]

    def test_the_distance_decides(self) -> None:
        printer = fingerprinter(method="simhash", hamming=3)
        left = np.zeros((3, 8), np.uint8)
        right = np.zeros((3, 8), np.uint8)
        right[1, 0], right[2, 7] = 0b111, 0b1111

        distances, near = printer.method.compare(left, right)

        assert distances.tolist() == [0, 3, 4]
        assert near.tolist() == [True, True, False]


class TestFused:
    NEAR = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"

    def test_a_decision_tells_both(self) -> None:
        with Deduplicator(Settings(method=Method.FUSED, threshold=0.6)) as deduplicator:
            decisions = deduplicator.decide(
                [Document("a", self.NEAR), Document("b", f"{self.NEAR} more")]
            )

        assert decisions[1].status == "near_duplicate"
        assert decisions[1].method == "fused"
        assert decisions[1].similarity == pytest.approx(0.92, abs=0.02)
        assert decisions[1].hamming_distance is not None

    def test_what_only_a_repeat_makes_alike_is_no_duplicate(self) -> None:
        """Most shingles are the same one again and again: SimHash alone is taken in."""
        laughter = "ha " * 60
        texts = [
            f"who wrote this letter then {laughter}",
            f"nobody saw that coming at all {laughter}",
        ]
        documents = [Document(number, text) for number, text in enumerate(texts)]
        statuses = {}
        for method in (Method.SIMHASH, Method.FUSED):
            with Deduplicator(Settings(method=method)) as deduplicator:
                statuses[method] = deduplicator.decide(documents)[1].status

        assert statuses == {Method.SIMHASH: "near_duplicate", Method.FUSED: "original"}

    def test_more_tables_than_an_index_has_are_refused_with_a_way_out(self) -> None:
        with pytest.raises(SettingsError, match=r"together have 2\d\d tables.*Take fewer blocks"):
            fingerprinter(method="fused", hamming=5, blocks=10)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    with TemporaryDirectory() as written:
        values = all_golden(Path(written))
    GOLDEN.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")
