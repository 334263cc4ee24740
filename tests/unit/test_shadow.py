"""Two configurations held against each other: counts, samples, and what a run tells of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.cli.main import cli
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import SettingsError
from stream_dedup.evaluate.measures import wilson
from stream_dedup.generate import StreamShape, generate
from stream_dedup.settings import Settings
from stream_dedup.settings_sources import load_shadow
from stream_dedup.shadow import KINDS, Comparison, Kind, Sample, same_names
from stream_dedup.types import Decision, Document, Method, Status

SHAPE = StreamShape(documents=3000, duplicate_share=0.5, words=50, edits=8, resemblance=0.5, seed=3)

pytestmark = pytest.mark.usefixtures("alone")


def original(document_id: str, group: str = "") -> Decision:
    return Decision(Status.ORIGINAL, group or document_id, document_id, Method.MINHASH, "f")


def near(original_id: str, similarity: float | None = 0.9, group: str = "") -> Decision:
    return Decision(
        Status.NEAR_DUPLICATE, group or original_id, original_id, Method.MINHASH, "f", similarity
    )


def exact(original_id: str) -> Decision:
    return Decision(Status.EXACT_DUPLICATE, original_id, original_id, Method.MINHASH, "f", 1.0)


def compare(
    *pairs: tuple[Decision, Decision], same_names: bool = True, characters: int = 9
) -> Comparison:
    comparison = Comparison(50, characters, same_names=same_names)
    documents = [Document(f"d{n}", "some text here", source=str(n)) for n in range(len(pairs))]
    comparison.add(documents, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return comparison


class TestCounts:
    @pytest.mark.parametrize(
        ("live", "shadow", "kind"),
        [
            (original("d0"), original("d0"), Kind(Status.ORIGINAL, Status.ORIGINAL, True)),
            (original("d0"), near("a"), Kind(Status.ORIGINAL, Status.NEAR_DUPLICATE, False)),
            (exact("a"), exact("a"), Kind(Status.EXACT_DUPLICATE, Status.EXACT_DUPLICATE, True)),
            (exact("a"), near("a"), Kind(Status.EXACT_DUPLICATE, Status.NEAR_DUPLICATE, True)),
            (near("a"), near("b"), Kind(Status.NEAR_DUPLICATE, Status.NEAR_DUPLICATE, False)),
            (near("a"), original("d0"), Kind(Status.NEAR_DUPLICATE, Status.ORIGINAL, False)),
        ],
    )
    def test_a_kind_is_both_statuses_and_whether_the_original_is_the_same(
        self, live: Decision, shadow: Decision, kind: Kind
    ) -> None:
        assert compare((live, shadow)).counts == {kind: 1}
        assert kind in KINDS

    def test_originals_are_told_apart_by_the_names_of_their_groups(self) -> None:
        pair = near("a", group="one"), near("a", group="other")

        (kind,) = compare(pair).counts

        assert not kind.same

    def test_where_groups_are_named_otherwise_their_ids_tell(self) -> None:
        pairs = (near("a", group="one"), near("a", group="x")), (near("a"), near("b"))

        comparison = compare(*pairs, same_names=False)

        assert sorted(kind.same for kind in comparison.counts) == [False, True]

    @pytest.mark.parametrize(
        ("other", "expected"),
        [({"threshold": 0.5}, True), ({"clean": "urls"}, False), ({"seed": "x"}, False)],
    )
    def test_cleaning_and_the_seed_name_groups_otherwise(
        self, other: dict[str, Any], expected: bool
    ) -> None:
        """The claim is held against the program itself."""
        live, shadow = Settings(), Settings.model_validate(other)
        documents = [Document(1, "See https://a.example for more of the same")]
        with Deduplicator(live) as one, Deduplicator(shadow) as two:
            names = {deduplicator.decide(documents)[0].duplicate_id for deduplicator in (one, two)}

        assert same_names(live, shadow) is expected
        assert len(names) == (1 if expected else 2)

    def test_similarities_to_the_same_original_are_held_against_each_other(self) -> None:
        found = compare(
            (near("a", 0.9), near("a", 0.8)),
            (exact("a"), near("a", 0.7)),
            (near("a", 0.9), near("b", 0.1)),
            (near("a", None), near("a", 0.1)),
        ).similarities

        assert tuple(found) == pytest.approx((2, -0.4, 0.3))


def samples(comparison: Comparison) -> list[Sample]:
    return list(comparison.samples())


class TestSamples:
    def test_a_difference_is_a_pair_of_the_document_and_the_original(self) -> None:
        (sample,) = samples(compare((original("d0"), near("a", 0.7))))

        assert (sample.id, sample.other_id, sample.similarity) == ("a", "d0", 0.7)
        assert (sample.stratum, sample.stratum_pairs) == ("original-near_duplicate-shadow", 1)
        assert (sample.label, sample.text, sample.other_text) == (None, None, "some text")

    def test_two_originals_make_two_pairs(self) -> None:
        found = samples(compare((near("a"), near("b"))))

        assert [(sample.id, sample.by) for sample in found] == [("a", "live"), ("b", "shadow")]
        assert len({sample.stratum for sample in found}) == 2

    def test_another_status_with_the_same_original_is_one_pair(self) -> None:
        assert [sample.by for sample in samples(compare((exact("a"), near("a"))))] == ["both"]

    def test_agreement_and_pairs_of_one_id_are_no_samples(self) -> None:
        assert samples(compare((near("a"), near("a")), (original("d1"), exact("d1")))) == []

    def test_texts_can_be_left_out(self) -> None:
        (sample,) = samples(compare((original("d0"), near("a")), characters=0))

        assert sample.other_text is None

    @given(st.lists(st.integers(1, 90), max_size=8), st.integers(0, 20))
    def test_the_sample_is_the_same_however_documents_are_cut_into_batches(
        self, sizes: list[int], size: int
    ) -> None:
        documents = [Document(n, "t", source=str(n)) for n in range(sum(sizes))]
        live = [original(str(n)) for n in range(len(documents))]
        shadow = [near("a") if n % 3 else original(str(n)) for n in range(len(documents))]
        together, merged = (Comparison(size, 9, same_names=True) for _ in range(2))
        together.add(documents, live, shadow)
        at = 0
        for count in sizes:
            part = Comparison(size, 9, same_names=True)
            some = slice(at, at + count)
            part.add(documents[some], live[some], shadow[some])
            merged.merge(part)
            at += count

        assert merged.counts == together.counts
        assert samples(merged) == samples(together)
        assert len(samples(merged)) == min(size, sum(n % 3 > 0 for n in range(len(documents))))

    def test_every_difference_is_as_likely_to_be_drawn(self) -> None:
        """Over 400 samples of 10 out of 40, each is drawn 100 times, give or take 5 sigma."""
        drawn: Counter[int] = Counter()
        for turn in range(400):
            comparison = Comparison(10, 0, same_names=True)
            documents = [Document(n, "t", source=f"{turn}/{n}") for n in range(40)]
            comparison.add(documents, [original("x")] * 40, [near("a")] * 40)
            drawn.update(int(sample.other_id) for sample in comparison.samples())

        assert set(drawn) == set(range(40))
        assert max(abs(count - 100) for count in drawn.values()) < 5 * (400 * 0.25 * 0.75) ** 0.5


class TestSettings:
    def load(
        self, content: str, live: Settings | None = None, *, in_redis: bool = True
    ) -> Settings:
        Path("shadow.toml").write_text(content)
        return load_shadow(live or Settings(), Path("shadow.toml"), in_redis=in_redis)

    def refused(self, content: str, live: Settings | None = None) -> str:
        with pytest.raises(SettingsError) as caught:
            self.load(content, live)
        return str(caught.value)

    def test_what_the_file_does_not_give_is_as_in_the_live_settings(self) -> None:
        live = Settings.model_validate(
            {"threshold": 0.9, "hamming": 2, "seed": "x", "shadow": "shadow.toml"}
        )

        shadow = self.load("threshold = 0.6\nredis_namespace = 'other'", live)

        changed = {"threshold": 0.6, "redis_namespace": "other", "shadow": None}
        assert shadow == live.model_copy(update=changed)

    def test_one_namespace_for_both_is_refused(self) -> None:
        assert "Give it another one" in self.refused("threshold = 0.6")
        assert "Give it another one" in self.refused("redis_namespace = 'sd'")

    def test_in_memory_there_is_no_namespace_to_share(self) -> None:
        assert self.load("threshold = 0.6", in_redis=False).threshold == 0.6

    def test_what_it_shares_with_the_live_one_cannot_be_another(self) -> None:
        content = "redis_namespace = 'other'\ninput_topic = 'others'\ngroup = 'stream-dedup'"

        said = self.refused(content)

        assert "input_topic" in said
        assert "group" not in said

    def test_a_shadow_has_no_shadow(self) -> None:
        assert "gives shadow," in self.refused("redis_namespace = 'other'\nshadow = 'third.toml'")

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("threshold = 7", "threshold: "),
            ("treshold = 0.7", "no such setting"),
            ("threshold", "cannot be read"),
        ],
    )
    def test_a_mistake_is_told_with_the_file(self, content: str, said: str) -> None:
        assert said in self.refused(content)
        assert "shadow.toml" in self.refused(content)

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(SettingsError, match="cannot be read"):
            load_shadow(Settings(), Path("absent.toml"), in_redis=True)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["run", "in", "-o", "out", *map(str, arguments)])


def offline(settings: Settings, documents: Sequence[Document]) -> list[Decision]:
    """Decide with one configuration alone."""
    with Deduplicator(settings) as deduplicator:
        return deduplicator.decide(documents)


@pytest.fixture
def documents() -> list[Document]:
    """Documents in the file ``in``, and a shadow in ``shadow.toml``."""
    generated = list(generate(SHAPE))
    lines = [json.dumps({"id": found.id, "text": found.text}) for found in generated]
    Path("in").write_text("\n".join(lines))
    Path("shadow.toml").write_text("threshold = 0.6\n")
    return [
        Document(found.id, found.text, source=f"{Path('in').resolve()}:{number}")
        for number, found in enumerate(generated, 1)
    ]


class TestRun:
    def test_it_counts_what_each_configuration_decides_alone(
        self, documents: list[Document]
    ) -> None:
        live, shadow = Settings(), Settings(threshold=0.6)
        expected = Comparison.of(live, shadow)
        expected.add(documents, offline(live, documents), offline(shadow, documents))

        result = run("--shadow", "shadow.toml", "--json")

        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)["shadow"]
        cells = {
            (cell["live"], cell["shadow"], cell["same_original"]): cell["documents"]
            for cell in found["cells"]
        }
        assert cells == expected.counts
        agreed = sum(count for kind, count in expected.counts.items() if kind.agrees)
        assert 0 < agreed < found["documents"] == len(documents)
        assert found["agreement"] == agreed / len(documents)
        assert found["agreement_interval"] == list(wilson(agreed, len(documents), 0.95) or ())

    def test_the_live_output_is_as_without_a_shadow_and_jobs_change_nothing(
        self, documents: list[Document]
    ) -> None:
        results = []
        for jobs in (1, 2):
            result = run(
                "--shadow", "shadow.toml", "--shadow-samples", "samples", "--jobs", jobs, "--json"
            )
            told = json.loads(result.stdout)
            results.append((told["shadow"], Path("out").read_bytes(), Path("samples").read_bytes()))
        run("-q")

        assert results[0] == results[1]
        assert Path("out").read_bytes() == results[0][1]

    @pytest.mark.parametrize("revisions", ["off", "replace"])
    def test_the_live_settings_once_more_forget_the_same(
        self, documents: list[Document], revisions: str
    ) -> None:
        lines = []
        for number, document in enumerate(documents):
            lines.append({"id": number % 150, "text": document.text})
            if number % 40 == 0:
                lines.append({"id": number // 3, "text": None})
        Path("in").write_text("\n".join(map(json.dumps, lines)))
        Path("shadow.toml").write_text("threshold = 0.8\n")

        result = run("--shadow", "shadow.toml", "--revisions", revisions, "--json")

        told = json.loads(result.stdout)
        assert told["tombstones"] > 0
        assert (b'"revises"' in Path("out").read_bytes()) == (revisions == "replace")
        assert told["shadow"]["agreement"] == 1

    def test_the_samples_can_be_labelled_and_evaluated(self, documents: list[Document]) -> None:
        run("-q", "--shadow", "shadow.toml", "--shadow-samples", "samples", "--shadow-sample", 7)
        texts = {document.id: document.text for document in documents}
        lines = [json.loads(line) for line in Path("samples").read_text().splitlines()]
        assert 0 < len(lines) == sum(7 for _ in {line["stratum"] for line in lines})
        for line in lines:
            assert (line["text"], line["other_text"]) == (
                texts[line["id"]],
                texts[line["other_id"]],
            )
            line["label"] = 1
        Path("labelled").write_text("\n".join(map(json.dumps, lines)))

        result = CliRunner().invoke(cli, ["evaluate", "in", "--pairs", "labelled", "--json"])

        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["counts"]["labelled_pairs"] == len(lines)

    def test_each_has_a_state_of_its_own(self, documents: list[Document]) -> None:
        flags = ("--shadow", "shadow.toml", "--state", "live.db", "--shadow-state", "shadow.db")

        first, again = (json.loads(run(*flags, "--json").stdout)["shadow"] for _ in range(2))

        assert first == again

    def test_people_get_a_table(self, documents: list[Document]) -> None:
        said = run("--shadow", "shadow.toml").stderr

        assert "live \\ shadow" in said
        assert "same status and original: " in said
        assert "shadow near duplicate of doc-" in said

    @pytest.mark.parametrize("flag", ["--shadow-state", "--shadow-samples"])
    def test_flags_of_a_shadow_need_one(self, documents: list[Document], flag: str) -> None:
        result = run(flag, "file")

        assert result.exit_code == 2
        assert "need a shadow" in result.output

    def test_no_document_is_no_agreement(self) -> None:
        Path("in").write_text("")
        Path("shadow.toml").write_text("threshold = 0.6")

        found = json.loads(run("--shadow", "shadow.toml", "--json").stdout)["shadow"]

        assert (found["documents"], found["agreement"]) == (0, None)

    def test_a_choice_that_needs_a_rank_is_refused(self, documents: list[Document]) -> None:
        Path("shadow.toml").write_text("choice = 'preferred'")

        result = run("--shadow", "shadow.toml")

        assert result.exit_code == 2
        assert "rank_field" in result.output
