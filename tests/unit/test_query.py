"""``stream-dedup query``, and what is asked of an index without changing it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_dedup import Deduplicator, Document, Settings, StateError
from stream_dedup.cli.main import cli
from stream_dedup.query import Query, Question, Standing, open_state
from stream_dedup.settings import ENV_PREFIX

STORY = " ".join(f"word{number}" for number in range(100))
NEAR = STORY.replace("word50", "changed")
DOCUMENTS = [
    {"id": "a", "text": STORY},
    {"id": "b", "text": "something else altogether"},
    {"id": "c", "text": NEAR},
]
STATE = Path("s.db")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of its own, with a state that has one original."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        monkeypatch.delenv(name)
    lines = [json.dumps(document) for document in DOCUMENTS]
    Path("one.jsonl").write_text(lines[0] + "\n")
    Path("all.jsonl").write_text("\n".join(lines))
    CliRunner().invoke(cli, ["run", "one.jsonl", "--state", "s.db", "-o", "out"])


def query(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, ["query", *arguments, "--state", "s.db"], input=stdin)


class TestCommand:
    def test_a_text_that_is_known(self) -> None:
        found = query(NEAR)

        assert found.exit_code == 0
        assert found.stdout.startswith("known: near duplicate of a, similarity 0.9")

    def test_a_text_that_is_not(self) -> None:
        found = query("never seen")

        assert (found.exit_code, found.stdout) == (1, "new\n")

    def test_standard_input_is_one_text(self) -> None:
        lines = STORY.replace(" ", "\n").encode()

        assert query("-", stdin=lines).stdout.startswith("known: exact duplicate of a, similarity")
        assert query("-", stdin=b"caf\xe9").exit_code == 65

    def test_the_documents_of_a_file(self) -> None:
        found = query("--file", "all.jsonl", "--json")

        answers = [json.loads(line) for line in found.stdout.splitlines()]
        assert found.exit_code == 0
        assert [(answer["id"], answer["status"]) for answer in answers] == [
            ("a", "exact_duplicate"),
            ("b", "new"),
            ("c", "near_duplicate"),
        ]
        assert "original_id" not in answers[1]

    def test_the_lines_of_a_text_file(self) -> None:
        found = query("--file", "-", "--format", "text", stdin=f"new\n{STORY}\n".encode())

        assert found.stdout.splitlines()[0] == "stdin:1  new"
        assert found.stdout.splitlines()[1].startswith("stdin:2  known: exact duplicate of a")

    def test_why(self) -> None:
        lines = query(NEAR, "--explain").stdout.splitlines()

        assert lines[1].startswith("  They share ")
        assert lines[2].startswith("  a: score 0.9")

    def test_simhash_tells_the_distance(self) -> None:
        flags = ("--method", "simhash", "--hamming", "8")
        CliRunner().invoke(cli, ["run", "one.jsonl", "--state", "t.db", "-o", "out", *flags])

        found = CliRunner().invoke(cli, ["query", STORY, "--state", "t.db", *flags])

        assert found.stdout.startswith("known: exact duplicate of a, Hamming distance 0, dup")

    @pytest.mark.parametrize(
        ("arguments", "code", "reason"),
        [
            ((), 2, "Give a text, - for standard input, or documents with --file."),
            (("text", "--file", "all.jsonl"), 2, "Give a text, - for standard input"),
            (("--file", "bad.jsonl"), 65, "bad.jsonl:1 is not a document"),
            (("text", "--seed-file", "seed"), 78, "made with other fingerprint settings"),
        ],
    )
    def test_what_cannot_be_asked_is_told(
        self, arguments: tuple[str, ...], code: int, reason: str
    ) -> None:
        Path("bad.jsonl").write_text("no JSON\n")
        Path("seed").write_text("x")

        result = query(*arguments)

        assert result.exit_code == code
        assert reason in result.stderr

    def test_a_state_that_is_not_there_is_not_made(self) -> None:
        result = CliRunner().invoke(cli, ["query", "text", "--state", "absent.db"])

        assert result.exit_code == 73
        assert "absent.db does not exist." in result.stderr
        assert not Path("absent.db").exists()


class TestState:
    def test_its_bytes_and_its_folder_stay_as_they_are(self) -> None:
        before, files = STATE.read_bytes(), sorted(Path().iterdir())

        query(STORY)
        query("--file", "all.jsonl", "--explain")

        assert STATE.read_bytes() == before
        assert sorted(Path().iterdir()) == files

    def test_a_run_in_progress_is_told(self) -> None:
        with Deduplicator(state=STATE):
            code = "from stream_dedup.cli.main import main; main()"
            command = [sys.executable, "-c", code, "query", "text", "--state", "s.db"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)

        assert done.returncode == 73
        assert "s.db is in use by another process. Wait for it" in done.stderr

    def test_what_a_killed_run_had_decided_is_known(self) -> None:
        code = (
            "import os, signal; from pathlib import Path\n"
            "from stream_dedup import Deduplicator, Document\n"
            "d = Deduplicator(state=Path('s.db'))\n"
            "d.decide([Document('late', 'a text of the run that was killed')])\n"
            f"os.kill(os.getpid(), {signal.SIGKILL:d})"
        )
        subprocess.run([sys.executable, "-c", code], check=False)
        before = STATE.read_bytes()

        found = query("a text of the run that was killed")

        assert found.stdout.startswith("known: exact duplicate of late")
        assert STATE.read_bytes() == before

    def test_a_run_that_begins_meanwhile_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from stream_dedup.index import memory  # noqa: PLC0415

        register = memory.MemoryIndex._register

        def begin(index: memory.MemoryIndex, batch: object) -> None:
            Path("s.db-wal").touch()
            register(index, batch)  # type: ignore[arg-type]

        monkeypatch.setattr(memory.MemoryIndex, "_register", begin)

        with pytest.raises(StateError, match="is in use by another process"):
            open_state(Settings(), STATE)

    def test_an_index_that_was_only_read_takes_no_claims(self) -> None:
        index = open_state(Settings(), STATE)
        with Deduplicator(index=index) as deduplicator, pytest.raises(StateError):
            deduplicator.decide([Document("new", "a text that is not there yet")])


def test_a_document_of_the_index_is_known_whatever_its_source() -> None:
    for source in ("", "\0query", "elsewhere"):
        with Deduplicator() as deduplicator:
            document = Document("a", STORY, source=source)
            deduplicator.decide([document])
            (answer,) = Query(Settings(), deduplicator.index).ask([Question(document)])

        known = source != "\0query"  # the one source that no stream has
        assert (answer.status is Standing.EXACT_DUPLICATE) == known


def test_a_batch_is_not_compared_with_itself() -> None:
    with Deduplicator() as deduplicator:
        query = Query(Settings(), deduplicator.index)
        answers = query.ask([Question(Document("a", STORY))] * 600)

    assert {answer.status for answer in answers} == {Standing.NEW}
    assert len(answers) == 600
