"""What the review page reads: annotated files and state files, whatever stands in them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_dedup.cli.main import cli
from stream_dedup.errors import InputError, ServiceError, StateError
from stream_dedup.query import Question
from stream_dedup.review.ingestion import Ingestion, Phase
from stream_dedup.review.reading.annotated import AnnotatedDecoder, PassedOver, Place, safe_link
from stream_dedup.review.reading.file import Files
from stream_dedup.review.reading.source import Part
from stream_dedup.review.reading.state import AskedState, State
from stream_dedup.review.seen import Seen
from stream_dedup.review.window import Window
from stream_dedup.settings import Settings
from stream_dedup.types import Document, Status

FERRY = "the ferry leaves at nine in the morning and at noon if it is full of people and of goods"
COMET = "a comet with three tails was seen above the harbour by all of the town in that night"
DOCUMENTS: list[dict[str, Any]] = [
    {"id": "a", "text": FERRY, "source": "feed", "url": "https://example.org/a"},
    {"id": 5, "text": FERRY.upper(), "source": "feed", "url": "javascript:alert(1)"},
    {"id": "5", "text": FERRY.replace("goods", "cattle"), "source": ["no"], "url": 7},
    {"text": COMET},
    {"id": "b", "text": "<script>alert(1)</script>\0\u202e \U0001f600"},
]
PLACE = Place("here:1", "here:1")


def write(path: Path, documents: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in documents))
    return path


def call(*arguments: object) -> None:
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output


@pytest.fixture(params=["jsonl", "jsonl.gz", "jsonl.zst"])
def annotated(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"annotated.{request.param}"
    call("run", write(tmp_path / "documents.jsonl", DOCUMENTS), "-o", path)
    return path


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    window = Window.open(tmp_path / "window.db", 1000)
    yield window
    window.close()


def ingest(window: Window, source: Any) -> Ingestion:
    ingestion = Ingestion(window, source)
    ingestion.start()
    ingestion._thread.join(20)
    return ingestion


def shown(window: Window) -> list[tuple[object, ...]]:
    with window.reader() as database:
        query = "SELECT id, original_id, status, source, link, place FROM documents ORDER BY row"
        return [tuple(row) for row in database.execute(query)]


class TestFiles:
    def test_everything_is_read(self, annotated: Path, window: Window) -> None:
        done = ingest(window, Files(Settings(), [annotated])).progress()

        assert (done.phase, done.documents, done.passed_over) == (Phase.DONE, 5, {})
        name = annotated.name
        assert shown(window) == [
            ('"a"', '"a"', 0, "feed", "https://example.org/a", f"{name}:1"),
            ("5", '"a"', 1, "feed", "", f"{name}:2"),
            ('"5"', '"a"', 2, "", "", f"{name}:3"),
            ('"documents.jsonl:4"', '"documents.jsonl:4"', 0, "", "", f"{name}:4"),
            ('"b"', '"b"', 0, "", "", f"{name}:5"),
        ]
        assert window.text(5) == DOCUMENTS[4]["text"]

    def test_what_is_no_annotated_document_is_passed_over_and_told(
        self, tmp_path: Path, window: Window
    ) -> None:
        call("run", write(tmp_path / "d.jsonl", DOCUMENTS[:1]), "-o", tmp_path / "a.jsonl")
        good = (tmp_path / "a.jsonl").read_bytes()
        decision = json.loads(good)["dedup"]
        bad = [
            {"id": "x", "text": "not annotated"},
            {"id": "x", "text": "t", "dedup": {"status": "original"}},
            {"id": "x", "text": "t", "dedup": decision | {"duplicate_id": "../../etc/passwd"}},
            {"id": "x", "text": "t", "dedup": decision | {"similarity": 1e300}},
            {"id": "x", "text": 7, "dedup": decision},
            {"id": {}, "text": "t", "dedup": decision},
        ]
        lines = [json.dumps(one).encode() + b"\n" for one in bad]
        deep = b'{"id":"x","text":"t","source":' + b"[" * 4000 + b"]" * 4000 + b"}\n"
        path = tmp_path / "mixed.jsonl"
        path.write_bytes(b"".join([good, b"\xff\n", b"{\n", b"\n", b"[]\n", deep, *lines, good]))

        done = ingest(window, Files(Settings(), [path])).progress()

        assert (done.phase, done.documents) == (Phase.DONE, 2)
        assert done.passed_over == {
            "not_utf8": 1,
            "not_json": 1,
            "not_an_object": 1,
            "too_deep": 1,
            "not_annotated": 4,
            "wrong_type": 1,
            "bad_id": 1,
        }
        assert window.facts()["passed_over"] == done.passed_over

    def test_a_tombstone_takes_the_documents_before_it_away(
        self, tmp_path: Path, window: Window
    ) -> None:
        lines = [*DOCUMENTS[:2], {"id": "a", "text": None}, DOCUMENTS[0]]
        path = tmp_path / "a.jsonl"
        call("run", write(tmp_path / "d.jsonl", lines), "-o", path)

        ingest(window, Files(Settings(), [path]))

        assert [row[0] for row in shown(window)] == ["5", '"a"']

    def test_a_damaged_file_is_told_and_what_came_before_is_shown(
        self, tmp_path: Path, window: Window
    ) -> None:
        documents = [{"id": n, "text": f"{n} {COMET}" * 8} for n in range(3000)]
        path = tmp_path / "a.jsonl.gz"
        call("run", write(tmp_path / "d.jsonl", documents), "-o", path)
        path.write_bytes(path.read_bytes()[:-200])

        done = ingest(window, Files(Settings(), [path])).progress()

        assert done.phase is Phase.FAILED
        assert path.name in done.trouble
        assert done.documents > 0

    def test_a_window_that_is_full_is_not_filled_again(
        self, annotated: Path, window: Window
    ) -> None:
        ingest(window, Files(Settings(), [annotated]))
        again = ingest(window, Files(Settings(), [annotated])).progress()

        assert (again.phase, again.documents) == (Phase.DONE, 5)
        assert len(shown(window)) == 5
        annotated.touch()
        with pytest.raises(StateError, match=r"annotated\.jsonl"):
            Ingestion(window, Files(Settings(), [annotated]))

    def test_a_window_that_was_filled_in_part_is_filled_anew(
        self, annotated: Path, window: Window
    ) -> None:
        files = Files(Settings(), [annotated])
        window.add([seen()], {"identity": files.identity, "from": "x", "read": 7})

        done = ingest(window, files).progress()

        assert (done.documents, len(shown(window))) == (5, 5)


def seen() -> Seen:
    return Seen("x", "0" * 24, "x", Status.ORIGINAL, "minhash", "0" * 16, 0)


class TestState:
    @pytest.fixture
    def asked(self, tmp_path: Path) -> AskedState:
        documents = write(tmp_path / "documents.jsonl", DOCUMENTS)
        call("run", documents, "-o", tmp_path / "a.jsonl", "--state", tmp_path / "state.db")
        return AskedState(Settings(), tmp_path / "state.db")

    def test_documents_are_what_the_state_says(
        self, asked: AskedState, tmp_path: Path, window: Window
    ) -> None:
        more = [*DOCUMENTS, DOCUMENTS[0], {"id": "new", "text": "an entirely different text"}]
        path = write(tmp_path / "documents.jsonl", more)

        done = ingest(window, State(asked, [path])).progress()

        assert done.phase is Phase.DONE
        found = [(row[0], row[1], row[2]) for row in shown(window)]
        assert found == [
            ('"a"', '"a"', 0),
            ("5", '"a"', 1),
            ('"5"', '"a"', 2),
            ('"documents.jsonl:4"', '"documents.jsonl:4"', 0),
            ('"b"', '"b"', 0),
            ('"a"', '"a"', 1),
            ('"new"', '"new"', 0),
        ]

    def test_without_documents_its_originals_are_shown_without_texts(
        self, asked: AskedState, window: Window
    ) -> None:
        ingest(window, State(asked, []))

        assert [row[0] for row in shown(window)] == ['"a"', '"documents.jsonl:4"', '"b"']
        assert window.text(1) == ""
        (answer,) = asked.ask([Question(Document("", FERRY))])
        assert (answer.known, answer.original_id) == (True, "a")


class TestDecoder:
    def test_a_time_to_come_is_not_believed(self) -> None:
        decoder = AnnotatedDecoder(Settings(time_field="t"))
        dedup = {
            "status": "original",
            "duplicate_id": "0" * 24,
            "original_id": 1,
            "method": "minhash",
            "configuration": "0" * 16,
        }

        def at(**more: Any) -> int:
            line = {"id": 1, "text": "", "t": 1e9, "dedup": dedup | more}
            return decoder.decode(json.dumps(line).encode(), PLACE).at

        now = 1000 * time.time()
        assert at() == 1_000_000_000_000
        assert at(decided_at="2020-01-01T00:00:00Z") == 1_577_836_800_000
        assert now - 60_000 < at(decided_at="4000-01-01T00:00:00Z") < now + 60_000
        assert at(decided_at="no time") < now + 60_000

    @pytest.mark.parametrize(
        "value",
        ["http://a.example/b?c", "https://[::1]/", "https://müller.example/"],
    )
    def test_an_address_is_linked(self, value: str) -> None:
        assert safe_link(value) == value

    @pytest.mark.parametrize(
        "value",
        [
            "javascript:alert(1)",
            "JAVASCRIPT:alert(1)",
            "data:text/html,x",
            " https://a.example",
            "https:///nohost",
            "//a.example",
            "https://a.example/\n",
            "https://a.example/\u202e",
            "https://[bad",
            "https://a.example/" + "x" * 3000,
            None,
            7,
            ["https://a.example"],
        ],
    )
    def test_anything_else_is_not(self, value: object) -> None:
        assert safe_link(value) == ""

    def test_fields_may_share_a_name(self) -> None:
        settings = Settings(review_source_field="id", review_link_field="id")
        with pytest.raises(PassedOver, match="not_annotated"):
            AnnotatedDecoder(settings).decode(b'{"id": "x", "text": "t"}', PLACE)


class TestOutage:
    class Flaky:
        """Goes away once, in the middle."""

        name = identity = "flaky"

        def __init__(self) -> None:
            self.calls = 0

        def begin(self, facts: object) -> bool:
            return True

        def read(self) -> Iterator[Part]:
            self.calls += 1
            yield Part([seen()], Counter(), [])
            if self.calls == 1:
                msg = "It is away. Start it."
                raise ServiceError(msg)
            if self.calls == 2:
                msg = "It is broken. Mend it."
                raise InputError(msg)

    def test_it_is_read_on_and_an_error_of_the_input_ends_it(self, window: Window) -> None:
        source = self.Flaky()
        phases = []
        original = Ingestion._take

        def watched(self: Ingestion, part: Part) -> None:
            phases.append(self.progress().phase)
            original(self, part)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ingestion, "_take", watched)
            done = ingest(window, source).progress()

        assert phases == [Phase.READING, Phase.AWAY]
        assert (done.phase, done.documents) == (Phase.FAILED, 2)
        assert done.trouble == "It is broken. Mend it."
