"""The page Label as labellers meet it, from the window to what evaluate and tune read."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from stream_dedup.cli.main import cli
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import InputError, StateError
from stream_dedup.evaluate.join import resembling_pairs
from stream_dedup.evaluate.sets import shingle_sets
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.review.estimates import AtThreshold
from stream_dedup.review.guard import Guard
from stream_dedup.review.label_summary import summarize
from stream_dedup.review.label_types import Label, Pair
from stream_dedup.review.labelling import Labelling
from stream_dedup.review.labels import Labels
from stream_dedup.review.pairs import draw
from stream_dedup.review.seen import Seen
from stream_dedup.review.site import Site, make_site
from stream_dedup.review.strata import Scale
from stream_dedup.review.turns import LONGEST_NAME, SHARED_EVERY, checked_name
from stream_dedup.review.window import Window
from stream_dedup.settings import Settings
from stream_dedup.types import Document, Method

#: Words of a base text; copies have up to so many of them replaced, of which few are duplicates.
WORDS, MOST_EDITS, DUPLICATE_EDITS = 60, 8, 5


class Made(NamedTuple):
    """A document, the text that it is a copy of and how many words were replaced."""

    document: Document
    base: int
    edits: int


def stream(documents: int, seed: int = 0) -> list[Made]:
    """Make base texts and copies of them, some too much changed to be duplicates."""
    generator = np.random.default_rng(seed)
    vocabulary = [
        "".join(chr(97 + code) for code in generator.integers(0, 26, 5)) for _ in range(5000)
    ]
    bases: list[list[str]] = []
    made = []
    for number in range(documents):
        if bases and generator.random() < 0.5:
            base, edits = (
                int(generator.integers(len(bases))),
                int(generator.integers(MOST_EDITS + 1)),
            )
            words = list(bases[base])
            for place in generator.choice(WORDS, edits, replace=False):
                words[place] = vocabulary[int(generator.integers(5000))]
        else:
            words = [vocabulary[int(word)] for word in generator.integers(0, 5000, WORDS)]
            base, edits = len(bases), 0
            bases.append(words)
        made.append(Made(Document(number, " ".join(words)), base, edits))
    return made


def fill(window: Window, settings: Settings, documents: list[Document]) -> None:
    """Decide documents and put them into a window."""
    with Deduplicator(settings) as deduplicator:
        decisions = deduplicator.decide(documents)
    window.add(
        [
            Seen(
                document.id,
                decision.duplicate_id,
                decision.original_id,
                decision.status,
                decision.method,
                decision.configuration,
                1000 * place,
                document.text,
                decision.similarity,
                decision.hamming_distance,
                source="wire" if place % 2 else "",
            )
            for place, (document, decision) in enumerate(zip(documents, decisions, strict=True))
        ]
    )


class Desk(NamedTuple):
    """A window, what is said of its pairs, and the truth."""

    labelling: Labelling
    window: Window
    settings: Settings
    truth: dict[str, tuple[int, int]]

    @property
    def labels(self) -> Labels:
        return self.labelling.labels

    def is_duplicate(self, pair: Pair) -> bool:
        (base, edits), (other, more) = self.truth[pair.left.id], self.truth[pair.right.id]
        return base == other and edits + more <= DUPLICATE_EDITS

    def label_all(self, labeller: str, most: int) -> int:
        """Label as the truth says; return how many."""
        draw = self.labelling.want()
        assert draw is not None
        for count in range(most):
            pair = self.labels.next_pair(labeller, draw, self.labelling.scale)
            if pair is None:
                return count
            self.labels.label(pair.id, labeller, Label(int(self.is_duplicate(pair))))
        return most


@pytest.fixture(scope="module")
def made() -> list[Made]:
    """Return a stream that all tests draw from."""
    return stream(700)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, made: list[Made]) -> Path:
    """Return a folder with a window and labels that pairs have been drawn for."""
    folder = tmp_path_factory.mktemp("drawn")
    settings = Settings(review_labels=folder / "labels.db")
    with closing(Window.open(folder / "window.db", 10_000)) as window:
        fill(window, settings, [one.document for one in made])
        with closing(Labelling(settings, window)) as labelling:
            assert labelling.draw_once()
    return folder


@contextmanager
def at_work(folder: Path, drawn: Path, made: list[Made]) -> Iterator[Desk]:
    """Open a copy of that folder in another."""
    for name in ("window.db", "labels.db"):
        shutil.copy(drawn / name, folder)
    settings = Settings(review_labels=folder / "labels.db")
    truth = {json.dumps(one.document.id): (one.base, one.edits) for one in made}
    with (
        closing(Window.open(folder / "window.db", 10_000)) as window,
        closing(Labelling(settings, window)) as labelling,
    ):
        yield Desk(labelling, window, settings, truth)


@pytest.fixture
def desk(tmp_path: Path, drawn: Path, made: list[Made]) -> Iterator[Desk]:
    """Return a copy of that folder, at work."""
    with at_work(tmp_path, drawn, made) as desk:
        yield desk


class TestDrawing:
    """Pairs drawn from the window."""

    def test_has_pairs_on_both_sides_of_the_threshold_with_their_own_scores(
        self, desk: Desk
    ) -> None:
        found = draw(desk.window, desk.settings, 1)

        assert found is not None
        scale = desk.labelling.scale
        strata = {stratum.name: stratum for stratum in scale.strata}
        assert {strata[pair.stratum].taken for pair in found.pairs} == {True, False}
        for pair in found.pairs:
            stratum = strata[pair.stratum]
            assert stratum.low <= pair.score <= stratum.high
            assert stratum.taken == (pair.score >= scale.near_from)
            assert pair.left.row < pair.right.row
            assert pair.left.text != pair.right.text

    def test_finds_what_an_exact_join_finds(self, desk: Desk, made: list[Made]) -> None:
        found = draw(desk.window, desk.settings, 1)
        assert found is not None
        with desk.window.reader() as reader:
            rows = reader.execute(
                "SELECT id FROM documents WHERE status = 0 ORDER BY row"
            ).fetchall()
        texts = [made[json.loads(name)].document.text for (name,) in rows]
        sets = shingle_sets(Fingerprinter(desk.settings), texts)
        expected = len(np.unique(resembling_pairs(sets, desk.labelling.scale.floor).later))

        # Scores are estimates, so some pairs are on the other side of the floor.
        left = sum(count for name, count in found.found.items() if name.startswith("left"))
        assert found.asked.originals == len(texts)
        assert found.held == found.of
        assert expected > 100
        assert abs(left - expected) <= 0.1 * expected

    def test_is_the_same_for_the_same_seed(self, desk: Desk) -> None:
        first, again, other = (draw(desk.window, desk.settings, seed) for seed in (7, 7, 8))

        assert first == again
        assert first != other

    def test_ends_when_the_time_is_up_and_says_so(self, desk: Desk) -> None:
        found = draw(desk.window, desk.settings, 1, most_seconds=-1.0)

        assert found is not None
        assert found.held == 0 < found.of
        assert all(name.startswith("taken") for name in found.found)

    def test_of_an_empty_window_is_none(self, tmp_path: Path) -> None:
        with closing(Window.open(tmp_path / "empty.db", 10)) as window:
            assert draw(window, Settings(), 0) is None

    @pytest.mark.parametrize(
        "changed",
        [
            {"method": "simhash", "weights": "one", "hamming": 6, "shingle": "word:1"},
            {"method": "fused"},
            {"verify_by": "bottom", "measure": "containment", "verify_threshold": 0.9},
        ],
    )
    def test_works_for_every_way_to_decide(
        self, tmp_path: Path, made: list[Made], changed: dict[str, object]
    ) -> None:
        settings = Settings.model_validate(changed)
        with closing(Window.open(tmp_path / "window.db", 10_000)) as window:
            fill(window, settings, [one.document for one in made])
            found = draw(window, settings, 0)

        assert found is not None
        kinds = {name.split()[0] for name in found.found}
        assert kinds == {"taken", "left"}

    def test_leaves_pairs_beyond_the_window_of_time_out(
        self, tmp_path: Path, made: list[Made]
    ) -> None:
        settings = Settings(window=5.0, time_field="time")
        documents = [
            msgspec.structs.replace(one.document, time=float(place))
            for place, one in enumerate(made)
        ]
        with closing(Window.open(tmp_path / "window.db", 10_000)) as window:
            fill(window, settings, documents)
            found = draw(window, settings, 0)

        assert found is not None
        left = [pair for pair in found.pairs if pair.stratum.startswith("left")]
        assert all(pair.right.at - pair.left.at <= 5000 for pair in left)


class TestLabels:
    """What is kept."""

    def test_two_labellers_never_see_one_pair_at_a_time(self, desk: Desk) -> None:
        draw = desk.labelling.want()
        assert draw is not None
        scale = desk.labelling.scale

        first, second = (desk.labels.next_pair(name, draw, scale) for name in ("Ana", "Bo"))

        assert first is not None
        assert second is not None
        assert first.id != second.id
        assert desk.labels.next_pair("Ana", draw, scale) == first

    def test_a_share_of_pairs_goes_to_two_labellers(self, desk: Desk) -> None:
        draw = desk.labelling.want()
        assert draw is not None
        desk.label_all("Ana", 60)
        desk.label_all("Bo", 60)

        (table,) = desk.labels.tables(draw.configuration).values()
        assert 60 / SHARED_EVERY / 2 <= table.sum() <= 60 / SHARED_EVERY
        # Both say the truth.
        (between,) = summarize(desk.labels, draw, desk.labelling.scale).agreements
        assert (between.first, between.second) == ("Ana", "Bo")
        assert between.agreement.same == 1.0

    def test_undo_takes_back_the_labellers_latest_and_shows_its_pair(self, desk: Desk) -> None:
        draw = desk.labelling.want()
        assert draw is not None
        scale = desk.labelling.scale
        first = desk.labels.next_pair("Ana", draw, scale)
        assert first is not None
        desk.labels.label(first.id, "Ana", Label.DUPLICATE)
        desk.label_all("Bo", 3)
        desk.labels.next_pair("Ana", draw, scale)

        assert desk.labels.undo("Ana") == first.id
        assert desk.labels.next_pair("Ana", draw, scale) == first
        assert desk.labels.given(draw.configuration).keys() == {"Bo"}
        assert desk.labels.undo("Ana") is None

    def test_what_most_say_counts_and_unsure_does_not(self, desk: Desk) -> None:
        draw = desk.labelling.want()
        assert draw is not None
        pair = desk.labels.next_pair("Ana", draw, desk.labelling.scale)
        assert pair is not None

        def counted() -> tuple[int, int]:
            counts = [count for _, count in desk.labels.counts(draw, desk.labelling.scale)]
            return sum(one.labelled for one in counts), sum(one.duplicates for one in counts)

        desk.labels.label(pair.id, "Ana", Label.UNSURE)
        assert counted() == (0, 0)
        desk.labels.label(pair.id, "Bo", Label.DUPLICATE)
        assert counted() == (1, 1)
        desk.labels.label(pair.id, "Cy", Label.NOT)
        assert counted() == (0, 0)
        desk.labels.label(pair.id, "Ana", Label.NOT)
        assert counted() == (1, 0)

    def test_labels_outlive_the_window(self, desk: Desk, tmp_path: Path) -> None:
        desk.label_all("Ana", 30)
        draw = desk.labelling.want()
        assert draw is not None
        before = desk.labels.labelled(draw.configuration)
        desk.labels.close()
        others = [one.document for one in stream(200, seed=9)]
        with closing(Window.open(tmp_path / "other.db", 10_000)) as window:
            fill(window, desk.settings, others)
            with closing(Labelling(desk.settings, window)) as labelling:
                assert labelling.draw_once()
                again = labelling.want()
                assert again is not None
                after = labelling.labels.labelled(draw.configuration)
                counts = [count for _, count in labelling.labels.counts(again, labelling.scale)]

        assert after == before
        assert len(after) == 30
        assert sum(count.labelled for count in counts) > 0
        # They tell of a share only: none of the pairs of this window is known by them.
        assert sum(count.known for count in counts) == 0

    def test_a_draw_forgets_pairs_that_nobody_has_labelled(
        self, desk: Desk, tmp_path: Path
    ) -> None:
        desk.label_all("Ana", 10)
        size = (tmp_path / "labels.db").stat().st_size
        for _ in range(3):
            desk.labelling.draw_once()

        draw = desk.labelling.want()
        assert draw is not None
        assert len(desk.labels.labelled(draw.configuration)) == 10
        assert (tmp_path / "labels.db").stat().st_size < 2 * size

    def test_estimates_come_near_the_truth(self, desk: Desk) -> None:
        draw = desk.labelling.want()
        assert draw is not None
        desk.label_all("Ana", 100)
        now = summarize(desk.labels, draw, desk.labelling.scale).now
        desk.label_all("Ana", 10_000)
        last = summarize(desk.labels, draw, desk.labelling.scale).now

        assert now is not None
        assert last is not None
        for early, late in ((now.precision, last.precision), (now.recall, last.recall)):
            assert early.value is not None
            assert late.value is not None
            assert early.low <= late.value <= early.high

    def test_another_database_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "window.db"
        Window.open(path, 10).close()

        with pytest.raises(StateError, match="another database"):
            Labels(path)
        (tmp_path / "text.db").write_text("no database, and long enough to be none of any kind")
        with pytest.raises(StateError, match="cannot be used for labels"):
            Labels(tmp_path / "text.db")


@pytest.mark.parametrize(
    "name", ["", "  ", "a" * (LONGEST_NAME + 1), "a\0b", "\u202ea", "a\u2028b\u200b"]
)
def test_names_that_cannot_be_seen_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        checked_name(name)


def test_a_name_has_one_spelling() -> None:
    assert checked_name("  Ana \t Mu\u0308ller ") == "Ana M\u00fcller"


def test_strata_of_hamming_distances_are_single_distances() -> None:
    scale = Scale(Settings(method=Method.SIMHASH, hamming=3))

    assert [stratum.name for stratum in scale.strata if stratum.taken][-2:] == [
        "taken distance 1",
        "taken distance 0",
    ]
    assert scale.score(None, 4) == -4
    assert scale.strata[int(scale.place([-4.0], taken=False)[0])].name == "left distance 4"
    assert scale.floor == -7


class TestPage:
    """The page."""

    @pytest.fixture
    def client(self, desk: Desk) -> Iterator[TestClient]:
        site = Site(desk.settings, desk.window, Guard("", ""), labels=desk.labelling)
        with TestClient(make_site(site), "http://127.0.0.1:9466") as client:
            yield client

    @staticmethod
    def csrf(client: TestClient) -> str:
        found = re.search('<meta name="csrf" content="([0-9a-f]{64})">', client.get("/label").text)
        assert found is not None
        return found[1]

    def begin(self, client: TestClient, name: str) -> str:
        """Choose a name; return the token for writes."""
        csrf = self.csrf(client)
        response = client.post("/label/name", data={"csrf": csrf, "name": name})
        assert response.status_code == 200
        return csrf

    @staticmethod
    def shown(page: str) -> str:
        found = re.search('data-pair="([0-9]+)"', page)
        assert found is not None
        return found[1]

    def test_asks_for_a_name_and_keeps_it(self, client: TestClient) -> None:
        assert "Who is labelling?" in client.get("/label").text
        self.begin(client, "  Ana Müller <b>")

        page = client.get("/label").text
        assert "Ana Müller &lt;b&gt;" in page
        assert "Are these two duplicates?" in page

    def test_refuses_a_name_that_is_none(self, client: TestClient) -> None:
        response = client.post("/label/name", data={"csrf": self.csrf(client), "name": "\0"})

        assert response.status_code == 400
        assert "Choose another name." in response.text

    def test_labels_by_a_form_without_any_script(self, client: TestClient, desk: Desk) -> None:
        csrf = self.begin(client, "Ana")
        pair = self.shown(client.get("/label").text)

        form = {"csrf": csrf, "pair": pair, "label": "duplicate"}
        response = client.post("/label", data=form, follow_redirects=False)

        assert response.status_code == 303
        assert response.headers["location"] == "/label"
        assert self.shown(client.get("/label").text) != pair
        draw = desk.labelling.want()
        assert draw is not None
        assert desk.labels.given(draw.configuration)["Ana"][Label.DUPLICATE] == 1

    def test_labels_in_place_and_undoes(self, client: TestClient) -> None:
        csrf = self.begin(client, "Ana")
        pair = self.shown(client.get("/label").text)
        headers = {"hx-request": "true", "X-CSRF-Token": csrf}

        answer = client.post("/label", data={"pair": pair, "label": "not"}, headers=headers)
        assert "Labelled: not a duplicate." in answer.text
        assert "<html" not in answer.text
        assert self.shown(answer.text) != pair

        answer = client.post("/label/undo", headers=headers)
        assert "Undone." in answer.text
        assert self.shown(answer.text) == pair
        answer = client.post("/label/undo", headers=headers)
        assert "There is no label of yours to undo." in answer.text

    def test_refuses_writes_without_a_token_without_a_name_and_of_nonsense(
        self, client: TestClient
    ) -> None:
        form = {"pair": "1", "label": "duplicate"}
        assert client.post("/label", data=form).status_code == 403
        assert client.post("/label/undo").status_code == 403
        assert client.post("/label/name", data={"name": "Ana"}).status_code == 403
        csrf = self.csrf(client)
        assert client.post("/label", data=form | {"csrf": csrf}).status_code == 400
        self.begin(client, "Ana")
        for wrong in ({"label": "maybe"}, {"pair": "x"}, {"pair": "9" * 30}):
            assert client.post("/label", data=form | wrong | {"csrf": csrf}).status_code in {
                400,
                422,
            }

    def test_says_when_a_pair_has_gone(self, client: TestClient) -> None:
        csrf = self.begin(client, "Ana")
        headers = {"hx-request": "true", "X-CSRF-Token": csrf}

        answer = client.post("/label", data={"pair": "999999", "label": "not"}, headers=headers)

        assert "That pair is no longer there." in answer.text

    def test_shows_precision_recall_and_agreement(self, client: TestClient, desk: Desk) -> None:
        desk.label_all("Ana", 60)
        desk.label_all("Bo", 40)
        self.begin(client, "Ana")

        page = client.get("/label").text

        for words in ("Precision", "Recall", "in force", "Cohen's kappa", "Labels by stratum"):
            assert words in page
        assert "style=" not in page

    def test_shows_hostile_text_harmlessly(self, tmp_path: Path) -> None:
        hostile = "<script>alert(1)</script> \u202e " + " ".join(f"w{n}" for n in range(60))
        documents = [
            Document('"><img src=x>', hostile),
            Document("b", hostile + " more words here"),
        ]
        settings = Settings(review_labels=tmp_path / "labels.db")
        with closing(Window.open(tmp_path / "window.db", 100)) as window:
            fill(window, settings, documents)
            with closing(Labelling(settings, window)) as labelling:
                labelling.draw_once()
                site = Site(settings, window, Guard("", ""), labels=labelling)
                with TestClient(make_site(site), "http://127.0.0.1:9466") as client:
                    self.begin(client, "Ana")
                    page = client.get("/label").text

        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page
        assert "\u202e" not in page

    def test_folds_long_stretches_that_both_texts_have(self, tmp_path: Path) -> None:
        text = " ".join(f"word{n}" for n in range(1_000))
        settings = Settings(review_labels=tmp_path / "labels.db")
        with closing(Window.open(tmp_path / "window.db", 100)) as window:
            fill(window, settings, [Document("a", text), Document("b", text + " and more")])
            with closing(Labelling(settings, window)) as labelling:
                labelling.draw_once()
                site = Site(settings, window, Guard("", ""), labels=labelling)
                with TestClient(make_site(site), "http://127.0.0.1:9466") as client:
                    self.begin(client, "Ana")
                    page = client.get("/label").text

        assert "characters that both have" in page
        assert "and more</ins>" in page
        assert "word500" not in page

    def test_says_that_pairs_are_being_looked_for(self, tmp_path: Path) -> None:
        settings = Settings(review_labels=tmp_path / "labels.db")
        with (
            closing(Window.open(tmp_path / "window.db", 100)) as window,
            closing(Labelling(settings, window)) as labelling,
        ):
            site = Site(settings, window, Guard("", ""), labels=labelling)
            with TestClient(make_site(site), "http://127.0.0.1:9466") as client:
                self.begin(client, "Ana")
                page = client.get("/label").text
                missing = client.get("/labels.jsonl").status_code

        assert "Pairs are being looked for" in page
        assert missing == 404

    def test_draws_by_itself_when_somebody_wants_pairs(
        self, tmp_path: Path, made: list[Made]
    ) -> None:
        settings = Settings(review_labels=tmp_path / "labels.db")
        with closing(Window.open(tmp_path / "window.db", 10_000)) as window:
            fill(window, settings, [one.document for one in made[:100]])
            with closing(Labelling(settings, window)) as labelling:
                labelling.start()
                for _ in range(300):
                    if labelling.want() is not None:
                        break
                    time.sleep(0.1)

                assert labelling.want() is not None


class Exported(NamedTuple):
    """A folder with exported files, and what the page estimates from the same labels."""

    folder: Path
    now: AtThreshold

    def invoke(self, command: str, *arguments: str) -> Any:
        """Run a command on the files; return what it prints as JSON."""
        documents, pairs = self.folder / "documents.jsonl", self.folder / "labels.jsonl"
        files = [str(documents), "--pairs", str(pairs), "--json"]
        result = CliRunner().invoke(cli, [command, *files, *arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, drawn: Path, made: list[Made]) -> Exported:
    """Label, and write the exports into a folder."""
    folder = tmp_path_factory.mktemp("exported")
    with at_work(folder, drawn, made) as desk:
        desk.label_all("Ana", 150)
        desk.label_all("Bo", 20)
        site = Site(desk.settings, desk.window, Guard("", ""), labels=desk.labelling)
        with TestClient(make_site(site), "http://127.0.0.1:9466") as client:
            for path in ("/labels.jsonl", "/labels/documents.jsonl", "/labels.csv"):
                response = client.get(path)
                name = path.rpartition("/")[2]
                told = response.headers["content-disposition"]
                assert told == f'attachment; filename="{name}"'
                (folder / name).write_bytes(response.content)
        draw = desk.labelling.want()
        assert draw is not None
        now = summarize(desk.labels, draw, desk.labelling.scale).now
    assert now is not None
    return Exported(folder, now)


class TestExport:
    """Files for evaluate and tune."""

    def test_is_read_by_evaluate_which_finds_the_same(self, exported: Exported) -> None:
        found = exported.invoke("evaluate")["pairs"]

        assert found["precision"] == pytest.approx(exported.now.precision.value, abs=0.02)
        assert found["recall"] == pytest.approx(exported.now.recall.value, abs=0.05)

    def test_is_read_by_tune(self, exported: Exported) -> None:
        found = exported.invoke("tune", "--grid", "threshold=0.6:0.8:0.1", "--resamples", "50")

        # The truth calls pairs duplicates that are less near than the threshold in force.
        assert found["settings"]["threshold"] < 0.8

    def test_tells_who_said_what(self, exported: Exported) -> None:
        text = (exported.folder / "labels.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]

        assert {name for line in lines for name in line["labels"]} == {"Ana", "Bo"}
        assert {line["label"] for line in lines} == {0, 1}

    def test_tells_documents_of_one_id_apart(self, tmp_path: Path) -> None:
        text = " ".join(f"w{n}" for n in range(60))
        settings = Settings(review_labels=tmp_path / "labels.db")
        with closing(Window.open(tmp_path / "window.db", 100)) as window:
            fill(window, settings, [Document("a", text), Document("a", text + " =more words")])
            with closing(Labelling(settings, window)) as labelling:
                labelling.draw_once()
                Desk(labelling, window, settings, {'"a"': (0, 0)}).label_all("=Ana", 1)
                site = Site(settings, window, Guard("", ""), labels=labelling)
                with TestClient(make_site(site), "http://127.0.0.1:9466") as client:
                    (line,) = client.get("/labels.jsonl").text.splitlines()
                    documents = client.get("/labels/documents.jsonl").text.splitlines()
                    table = client.get("/labels.csv").text

        assert [json.loads(line)[name] for name in ("id", "other_id")] == ["a", "a#2"]
        assert [json.loads(document)["id"] for document in documents] == ["a", "a"]
        # A spreadsheet must not take what somebody else has written for a formula.
        assert ",'=Ana: duplicate" in table
