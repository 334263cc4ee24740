"""Generated streams are what their shape says, and their truth is true."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from stream_dedup.errors import SettingsError
from stream_dedup.generate import LANGUAGES, GeneratedDocument, Kind, StreamShape, Truth, generate


def stream(**fields: Any) -> list[GeneratedDocument]:
    return list(generate(StreamShape(**fields)))


def kind_of(document: GeneratedDocument) -> Kind:
    assert document.truth is not None
    return document.truth.kind


def group_of(document: GeneratedDocument) -> str:
    assert document.truth is not None
    return document.truth.group


def shingles(language: str, text: str) -> frozenset[tuple[str, ...]]:
    """Three words in English and Korean, three characters in Chinese and Japanese."""
    words = re.findall(r"\w+", text.lower())
    tokens = words if language in {"en", "ko"} else list("".join(words))
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def resemblance(one: frozenset[Any], other: frozenset[Any]) -> float:
    return len(one & other) / len(one | other)


def normal(text: str) -> str:
    return " ".join(text.casefold().split())


class TestDeterminism:
    def test_a_seed_gives_the_same_stream_for_ever(self) -> None:
        """A golden digest: it may change only together with a note in the changelog."""
        documents = stream(documents=400, language="mixed", viral=2, viral_copies=20, seed=42)

        digest = hashlib.sha256(b"\n".join(map(msgspec.json.encode, documents))).hexdigest()

        assert digest == "c06cea57cb255419081231942ef3b39f548e006484dd75cd20668b53bfb31dcd"

    def test_seeds_differ(self) -> None:
        assert stream(documents=3, seed=1)[0].text != stream(documents=3, seed=2)[0].text

    def test_a_longer_stream_begins_with_the_shorter_one(self) -> None:
        assert stream(documents=300)[:100] == stream(documents=100)


class TestShape:
    def test_counts_and_shares(self) -> None:
        documents = stream(documents=20_000, words=70, duplicate_share=0.4, exact_share=0.25)

        kinds = Counter(map(kind_of, documents))
        copies = kinds[Kind.EXACT] + kinds[Kind.NEAR]

        assert len(documents) == 20_000
        assert copies / 20_000 == pytest.approx(0.4, abs=0.02)
        assert kinds[Kind.EXACT] / copies == pytest.approx(0.25, abs=0.02)

    @pytest.mark.parametrize("language", LANGUAGES)
    def test_lengths_spread_around_the_mean(self, language: str) -> None:
        documents = stream(documents=500, words=90, duplicate_share=0, language=language)

        if language in {"en", "ko"}:
            lengths = [len(document.text.split()) for document in documents]
            assert min(lengths) >= 60
            assert max(lengths) <= 120
            assert sum(lengths) / 500 == pytest.approx(90, abs=4)
        else:
            assert not any(" " in document.text for document in documents)

    def test_mixed_streams_hold_every_language_in_equal_parts(self) -> None:
        documents = stream(documents=2_000, language="mixed", duplicate_share=0)

        def language(text: str) -> str:
            if re.search(r"[぀-ヿ]", text):
                return "ja"
            return "en" if text.isascii() else "ko" if re.search(r"[가-힣]", text) else "zh"

        counts = Counter(language(document.text) for document in documents)
        assert set(counts) == set(LANGUAGES)
        assert all(count == pytest.approx(500, abs=80) for count in counts.values())

    def test_ids_are_unique_and_times_increase_at_the_rate(self) -> None:
        documents = stream(documents=5_000, rate=10.0)

        times = [datetime.fromisoformat(document.time) for document in documents]

        assert len({document.id for document in documents}) == 5_000
        assert all(before < after for before, after in itertools.pairwise(times))
        assert (times[-1] - times[0]).total_seconds() == pytest.approx(500, rel=0.05)
        assert all(document.time.endswith("Z") for document in documents)

    @pytest.mark.parametrize("distance", [1, 7, 200])
    def test_copies_arrive_within_the_distance(self, distance: int) -> None:
        documents = stream(documents=2_000, distance=distance)

        places = {document.id: place for place, document in enumerate(documents)}
        distances = {place - places[group_of(d)] for place, d in enumerate(documents)} - {0}

        assert distances
        assert min(distances) == 1
        assert max(distances) <= distance

    def test_viral_posts_have_exactly_their_copies(self) -> None:
        documents = stream(
            documents=3_000, viral=3, viral_copies=500, duplicate_share=0, exact_share=1
        )

        groups = Counter(map(group_of, documents))

        assert sorted(groups.values())[-4:] == [1, 501, 501, 501]

    def test_a_stream_of_nothing_but_one_viral_post(self) -> None:
        documents = stream(documents=50, viral=1, viral_copies=49)

        assert {group_of(document) for document in documents} == {documents[0].id}

    def test_an_empty_stream(self) -> None:
        assert stream(documents=0) == []


class TestTruth:
    @pytest.mark.parametrize("language", LANGUAGES)
    @pytest.mark.parametrize("shape", [{}, {"words": 80, "edits": 40}, {"resemblance": 0.93}])
    def test_near_copies_keep_the_bound_and_originals_are_unrelated(
        self, language: str, shape: dict[str, Any]
    ) -> None:
        documents = stream(documents=500, language=language, viral=1, viral_copies=30, **shape)
        sets = {document.id: shingles(language, document.text) for document in documents}

        near = [
            resemblance(sets[document.id], sets[group_of(document)])
            for document in documents
            if kind_of(document) is Kind.NEAR
        ]
        originals = [sets[d.id] for d in documents if kind_of(d) is Kind.ORIGINAL]

        assert len(near) > 50
        assert min(near) >= shape.get("resemblance", 0.85)
        assert max(near) < 1
        assert max(itertools.starmap(resemblance, itertools.combinations(originals, 2))) < 0.1

    @pytest.mark.parametrize("language", LANGUAGES)
    def test_exact_copies_are_equal_after_normalisation_and_near_ones_are_not(
        self, language: str
    ) -> None:
        documents = stream(documents=600, language=language)
        texts = {document.id: document.text for document in documents}

        copies = [document for document in documents if kind_of(document) is not Kind.ORIGINAL]
        disguised = [d for d in copies if kind_of(d) is Kind.EXACT and d.text != texts[group_of(d)]]

        for document in copies:
            same = normal(document.text) == normal(texts[group_of(document)])
            assert same == (kind_of(document) is Kind.EXACT)
        assert disguised

    def test_groups_are_stars_around_an_earlier_original(self) -> None:
        originals = set()
        for document in stream(documents=2_000, viral=1, viral_copies=50):
            if kind_of(document) is Kind.ORIGINAL:
                assert group_of(document) == document.id
                originals.add(document.id)
            else:
                assert group_of(document) in originals

    def test_a_near_copy_has_as_many_edits_as_asked_for(self) -> None:
        documents = stream(documents=200, edits=1, exact_share=0)
        texts = {document.id: document.text for document in documents}

        for document in documents:
            words, before = document.text.split(), texts[group_of(document)].split()
            changed = sum(map(str.__ne__, words, before))
            assert changed == (kind_of(document) is Kind.NEAR)

    @pytest.mark.parametrize("language", LANGUAGES)
    def test_the_shortest_documents_allowed_still_bear_an_edit(self, language: str) -> None:
        documents = stream(documents=1_000, words=66, language=language, exact_share=0)

        assert Kind.EXACT not in set(map(kind_of, documents))


class TestBadShapes:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("documents", -1),
            ("duplicate_share", 1.0),
            ("duplicate_share", -0.1),
            ("duplicate_share", float("nan")),
            ("exact_share", 1.1),
            ("edits", 0),
            ("resemblance", 0.4),
            ("resemblance", 1.0),
            ("words", 4),
            ("language", "xx"),
            ("viral", -1),
            ("viral_copies", 0),
            ("distance", 0),
            ("rate", 0.0),
            ("seed", -1),
        ],
    )
    def test_a_value_out_of_range_is_named(self, field: str, value: object) -> None:
        with pytest.raises(SettingsError, match=rf"^{field} must be"):
            StreamShape(**{field: value})  # type: ignore[arg-type]

    def test_viral_copies_must_fit(self) -> None:
        with pytest.raises(SettingsError, match="do not fit into 10 documents"):
            StreamShape(documents=10, viral=1, viral_copies=10)

    def test_documents_must_be_long_enough_for_near_copies(self) -> None:
        with pytest.raises(SettingsError, match="too short for near copies"):
            StreamShape(words=20)

        assert stream(documents=5, words=20, exact_share=1)


class TestCommand:
    @staticmethod
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(cli, ["generate", *map(str, arguments)])

    def test_standard_output_holds_documents_only(self) -> None:
        result = self.run("-n", 20, "--seed", 3, "--language", "ja")

        lines = result.stdout.splitlines()
        documents = [msgspec.json.decode(line, type=GeneratedDocument) for line in lines]

        assert result.exit_code == 0
        assert documents == stream(documents=20, seed=3, language="ja")
        assert result.stderr.startswith("20 documents: ")

    def test_truth_can_be_left_out(self) -> None:
        result = self.run("-n", 2, "--no-truth", "--json")

        assert set(msgspec.json.decode(result.stdout.splitlines()[0])) == {"id", "text", "time"}
        summary = msgspec.json.decode(result.stderr)
        assert summary["documents"] == 2
        assert summary["original"] + summary["exact"] + summary["near"] == 2

    @pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"])
    def test_files_are_compressed_by_their_ending(self, name: str, tmp_path: Path) -> None:
        result = self.run("-n", 30, "-o", tmp_path / name, "--json")

        packed = (tmp_path / name).read_bytes()
        match name.rsplit(".", 1)[1]:
            case "gz":
                data = gzip.decompress(packed)
            case "zst":
                data = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
            case _:
                data = packed
        summary = msgspec.json.decode(result.stdout)
        assert summary["documents"] == len(data.splitlines()) == 30
        assert summary["bytes"] == len(data)
        assert set(summary) == {
            "documents", "original", "exact", "near", "bytes", "seconds", "seed",
        }  # fmt: skip
        assert result.stderr == ""

    def test_bad_shapes_are_usage_errors(self) -> None:
        result = self.run("--duplicate-share", 2)

        assert result.exit_code == 2
        assert "duplicate_share must be from 0 to below 1" in result.stderr

    def test_an_unwritable_file_is_named(self, tmp_path: Path) -> None:
        result = self.run("-n", 1, "-o", tmp_path / "missing" / "out.jsonl")

        assert result.exit_code == 65
        assert "missing" in result.stderr

    def test_help_has_examples(self) -> None:
        assert "Examples:" in self.run("--help").stdout

    def test_a_reader_that_leaves_early_is_no_error(self) -> None:
        """As in ``stream-dedup generate | head -1``."""
        script = "from stream_dedup.cli.main import cli; cli(['generate', '-n', '20000'])"
        with subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            complaint = process.stderr.read()

        assert complaint == b""
        assert process.returncode == 0


def test_the_truth_is_part_of_the_json() -> None:
    document = GeneratedDocument("a", "x", "2026-01-01T00:00:00Z", Truth("a", Kind.ORIGINAL))

    assert msgspec.json.decode(msgspec.json.encode(document))["truth"] == {
        "group": "a",
        "kind": "original",
    }
