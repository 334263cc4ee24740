"""The command line, as a user meets it."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import zstandard
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.stream.files import CHUNK_LINES

PROGRAM = [sys.executable, "-W", "error", "-c", "from stream_dedup.cli.main import main; main()"]
EXAMPLES = Path(__file__).parents[2] / "examples" / "documents.jsonl"
ANNOTATION = re.compile(rb',"dedup":\{"status":[^{}]*\}')

STORY = " ".join(f"word{number}" for number in range(100))
NEAR = STORY.replace("word50", "changed")
OTHER = " ".join(f"another{number}" for number in range(100))
DOCUMENTS = [
    {"id": "a", "text": STORY},
    {"id": "b", "text": OTHER},
    {"id": "c", "text": STORY.upper()},
    {"id": "d", "text": NEAR},
]

pytestmark = pytest.mark.usefixtures("alone")


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return invoke("run", *arguments, stdin=stdin)


def run_lines(*lines: bytes, options: tuple[str, ...] = ()) -> list[bytes]:
    """Run over lines of standard input; return what was written."""
    result = run("-", "-q", *options, stdin=b"\n".join(lines))
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes.splitlines()


def write(name: str, documents: list[dict[str, Any]]) -> bytes:
    """Write a file of documents."""
    content = b"".join(
        json.dumps(document, ensure_ascii=False).encode() + b"\n" for document in documents
    )
    Path(name).write_bytes(content)
    return content


def read(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def files() -> list[str]:
    """Name the files that there are."""
    return sorted(path.name for path in Path().iterdir())


def unpack_zstd(packed: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)


UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".zst": unpack_zstd,
}


def statuses(content: bytes) -> list[tuple[str, object]]:
    return [(row["dedup"]["status"], row["dedup"]["original_id"]) for row in read(content)]


EXPECTED = [
    ("original", "a"),
    ("original", "b"),
    ("exact_duplicate", "a"),
    ("near_duplicate", "a"),
]


def commands() -> dict[str, click.Command]:
    """Return every command by its whole name, those of groups too."""
    found: dict[str, click.Command] = {}
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {under}": each for under, each in command.commands.items()}
    return found


class TestHelp:
    @pytest.mark.parametrize("name", sorted(commands()))
    def test_every_command_has_examples(self, name: str) -> None:
        shown = invoke(*name.split(), "--help")

        assert shown.exit_code == 0
        assert "\n  Examples:\n    " in shown.stdout
        assert f"stream-dedup {name}" in shown.stdout.partition("Examples:")[2]
        assert invoke(*name.split(), "-h").stdout == shown.stdout

    @pytest.mark.parametrize("name", ["run", "explain", "worker"])
    def test_exit_codes_are_documented(self, name: str) -> None:
        codes = re.findall(
            r"^    (\d+) ", invoke(name, "--help").stdout.partition("Exit codes:")[2], re.M
        )

        assert set(codes) >= {"0", "2", "78"}

    @pytest.mark.parametrize("name", sorted(commands()))
    def test_every_flag_says_what_it_does(self, name: str) -> None:
        options = [item for item in commands()[name].params if isinstance(item, click.Option)]

        assert [item.name for item in options if not item.help] == []

    def test_the_group_lists_every_command(self) -> None:
        listed = invoke("--help").stdout.partition("Commands:")[2]

        names = cli.list_commands(click.Context(cli))
        assert [name for name in names if f"\n  {name} " not in listed] == []

    def test_there_is_a_version(self) -> None:
        assert re.fullmatch(r"stream-dedup, version \d+\.\d+\.\d+\n", invoke("--version").stdout)

    def test_an_unknown_command_is_a_wrong_use(self) -> None:
        assert invoke("dedupe").exit_code == 2


class TestAnnotation:
    def test_documents_are_decided_in_order(self) -> None:
        write("in.jsonl", DOCUMENTS)

        result = run("in.jsonl", "-q")

        assert statuses(result.stdout_bytes) == EXPECTED
        rows = read(result.stdout_bytes)
        assert len({row["dedup"]["duplicate_id"] for row in rows}) == 2
        assert "similarity" not in rows[0]["dedup"]
        assert rows[2]["dedup"]["similarity"] == 1.0
        assert 0.8 <= rows[3]["dedup"]["similarity"] < 1

    def test_everything_but_the_annotation_is_kept_to_the_byte(self) -> None:
        lines = [
            b'{ "id" : "x1" ,\t"text" : "one two three" , "n" : [1.0, 1e2, {"a": null}] }',
            '{"text":"Ünïcödé 漢字 😀 \\ud83d\\ude00 \\u00e9","id":"ß","dup":{}}'.encode(),
            b'{"id": 7, "text": "a\\n\\"quoted\\" text", "same": 1, "same": 2}',
            b'{"text": ""}  ',
        ]

        written = run_lines(*lines)

        assert [ANNOTATION.sub(b"", line) for line in written] == lines
        assert all("dedup" in json.loads(line) for line in written)

    def test_the_examples_keep_their_order_and_bytes(self) -> None:
        result = run(str(EXAMPLES), "-q")

        assert ANNOTATION.sub(b"", result.stdout_bytes) == EXAMPLES.read_bytes()

    def test_an_annotation_that_is_there_is_replaced(self) -> None:
        (once,) = run_lines(
            b'{"id": "x", "text": "one two three", "dedup": {"status": "?"}, "n": 1.0}'
        )

        assert once.count(b'"dedup"') == 1
        assert b'"n":1.0' in once
        assert run_lines(once) == [once]

    def test_ids_keep_their_type_and_a_missing_one_is_made_from_the_place(self) -> None:
        write(
            "in.jsonl", [{"id": 2**64 - 1, "text": "a b c"}, {"text": "d e f"}, {"text": "A b c"}]
        )

        rows = read(run("in.jsonl", "-q").stdout_bytes)

        originals = [row["dedup"]["original_id"] for row in rows]
        assert originals == [2**64 - 1, "in.jsonl:2", 2**64 - 1]
        assert "id" not in rows[1]

    def test_blank_lines_are_left_out_and_counted(self) -> None:
        written = run_lines(b"", b'{"text": "a b c"}', b" \t", b'{"text": "d e f"}', b"")

        assert [json.loads(line)["dedup"]["original_id"] for line in written] == [
            "stdin:2",
            "stdin:4",
        ]

    def test_windows_line_endings_and_a_byte_order_mark_are_no_part_of_a_document(self) -> None:
        content = b'\xef\xbb\xbf{"id": 1, "text": "a b c"}\r\n{"id": 2, "text": "d e f"}\r\n'

        written = run("-", "-q", stdin=content).stdout_bytes

        assert ANNOTATION.sub(b"", written) == content[3:].replace(b"\r", b"")

    def test_fields_may_have_other_names(self) -> None:
        options = ("--id-field", "url", "--text-field", "body")

        (written,) = run_lines(b'{"url": "u", "body": "a b c", "text": 3}', options=options)

        assert json.loads(written)["dedup"]["original_id"] == "u"

    def test_a_window_parts_what_lies_too_far_apart(self) -> None:
        write(
            "in.jsonl",
            [
                {"id": 1, "text": STORY, "at": "2026-01-01T00:00:00Z"},
                {"id": 2, "text": STORY, "at": "2026-01-01T23:59:59Z"},
                {"id": 3, "text": STORY, "at": "2026-01-03T00:00:00Z"},
            ],
        )

        result = run("in.jsonl", "-q", "--window", "1d", "--time-field", "at")

        assert [original for _, original in statuses(result.stdout_bytes)] == [1, 1, 3]
        assert run("in.jsonl", "--window", "1d").exit_code == 65

    def test_simhash_gives_distances(self) -> None:
        write("in.jsonl", DOCUMENTS)

        rows = read(run("in.jsonl", "-q", "--method", "simhash", "--hamming", "8").stdout_bytes)

        assert [row["dedup"].get("hamming_distance") for row in rows[:3]] == [None, None, 0]
        assert {row["dedup"]["method"] for row in rows} == {"simhash"}

    def test_a_line_of_text_is_a_document(self) -> None:
        Path("in.txt").write_bytes(f"{STORY}\r\n\n{OTHER}\n  {STORY.title()}\t\n".encode())

        rows = read(run("in.txt", "-q", "--format", "text").stdout_bytes)

        assert [(row["id"], row["dedup"]["original_id"]) for row in rows] == [
            ("in.txt:1", "in.txt:1"),
            ("in.txt:3", "in.txt:3"),
            ("in.txt:4", "in.txt:1"),
        ]
        assert [row["text"] for row in rows] == [STORY, OTHER, f"  {STORY.title()}\t"]


class TestFiles:
    @pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
    def test_every_compression_is_read_and_written(self, suffix: str) -> None:
        plain = write("plain.jsonl", DOCUMENTS)
        packed = {"": plain, ".gz": gzip.compress(plain), ".zst": zstandard.compress(plain)}
        Path("no-suffix").write_bytes(packed[suffix])

        result = run("no-suffix", "-q", "-o", f"out.jsonl{suffix}")

        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, b"", "")
        out = Path(f"out.jsonl{suffix}").read_bytes()
        assert ANNOTATION.sub(b"", UNPACK[suffix](out)) == plain
        assert files() == ["no-suffix", f"out.jsonl{suffix}", "plain.jsonl"]

    @pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
    def test_a_compressed_file_may_come_in_pieces(self, pack: Any) -> None:
        pieces = [json.dumps(document).encode() + b"\n" for document in DOCUMENTS]

        result = run("-", "-q", stdin=b"".join(map(pack, pieces)))

        assert statuses(result.stdout_bytes) == EXPECTED

    @pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
    def test_the_same_documents_give_the_same_compressed_bytes(self, pack: Any) -> None:
        Path("in").write_bytes(pack(write("in.jsonl", DOCUMENTS)))
        suffix = ".gz" if pack is gzip.compress else ".zst"

        run("in", "-o", f"one{suffix}")
        run("in", "-o", f"other{suffix}")

        assert Path(f"one{suffix}").read_bytes() == Path(f"other{suffix}").read_bytes()

    def test_several_files_are_one_stream(self) -> None:
        write("one.jsonl", DOCUMENTS[:2])
        write("two.jsonl", DOCUMENTS[2:])

        assert statuses(run("one.jsonl", "two.jsonl", "-q").stdout_bytes) == EXPECTED

    def test_a_file_given_twice_is_two_inputs(self) -> None:
        write("in.jsonl", DOCUMENTS[:1])

        result = run("in.jsonl", "./in.jsonl", "-q")

        assert statuses(result.stdout_bytes) == [("original", "a"), ("exact_duplicate", "a")]

    def test_an_empty_file_has_no_documents(self) -> None:
        Path("in.jsonl").touch()

        result = run("in.jsonl", "-o", "out.jsonl")

        assert result.exit_code == 0
        assert result.stderr.startswith("0 documents")
        assert Path("out.jsonl").read_bytes() == b""

    @pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
    @pytest.mark.parametrize("damage", ["cut", "last byte cut", "rubbish inside", "rubbish after"])
    def test_a_damaged_file_ends_the_run(self, pack: Any, damage: str) -> None:
        packed = pack(EXAMPLES.read_bytes())
        half = len(packed) // 2
        Path("in.jsonl.x").write_bytes(
            {
                "cut": packed[:half],
                "last byte cut": packed[:-1],
                "rubbish inside": packed[:half] + bytes(99) + packed[half + 99 :],
                "rubbish after": packed + b"rubbish",
            }[damage]
        )
        Path("out.jsonl").write_text("of an earlier run")

        result = run("in.jsonl.x", "-o", "out.jsonl")

        assert result.exit_code == 65
        assert re.fullmatch(r"Error: in\.jsonl\.x .*\n", result.stderr)
        assert Path("out.jsonl").read_text() == "of an earlier run"
        assert files() == ["in.jsonl.x", "out.jsonl"]

    def test_a_missing_file_is_a_wrong_use(self) -> None:
        result = run("absent.jsonl", "-o", "out.jsonl")

        assert result.exit_code == 2
        assert "'absent.jsonl' does not exist" in result.stderr
        assert files() == []

    def test_an_output_that_cannot_be_written_is_named(self) -> None:
        write("in.jsonl", DOCUMENTS)

        result = run("in.jsonl", "-o", "absent/out.jsonl")

        assert result.exit_code == 65
        assert result.stderr.startswith("Error: absent/out.jsonl cannot be written: No such file")

    def test_a_device_is_written_to_and_its_failure_told(self) -> None:
        write("in.jsonl", DOCUMENTS)

        full = run("in.jsonl", "-o", "/dev/full")

        assert run("in.jsonl", "-q", "-o", "/dev/null").exit_code == 0
        assert full.exit_code == 65
        assert full.stderr.startswith("Error: /dev/full cannot be written: No space left")


class TestDeadLetters:
    GOOD = b'{"id": 1, "text": "a b c"}'
    BAD = (b"not json", b'{"id": 3}', b'{"id": 4, "text": "\xff"}')

    def test_without_a_place_for_it_a_bad_line_ends_the_run(self) -> None:
        Path("in.jsonl").write_bytes(self.GOOD + b"\n\n" + self.BAD[0] + b"\n")

        result = run("in.jsonl", "-o", "out.jsonl")

        assert result.exit_code == 65
        assert result.stderr == (
            "Error: in.jsonl:3 is not a document: The value is not JSON. Correct it, or set such "
            "lines aside with --dead-letters FILE.\n"
        )
        assert files() == ["in.jsonl"]

    def test_bad_lines_are_set_aside_with_their_reason(self) -> None:
        Path("in.jsonl").write_bytes(b"\n".join([self.BAD[0], self.GOOD, *self.BAD[1:]]))

        result = run("in.jsonl", "--dead-letters", "bad.jsonl")

        assert statuses(result.stdout_bytes) == [("original", 1)]
        assert re.search(r"^ +3 +lines set aside$", result.stderr, re.M)
        place = Path("in.jsonl").resolve()
        assert [
            (letter["source"], letter["reason"], letter["value"])
            for letter in read(Path("bad.jsonl").read_bytes())
        ] == [
            (f"{place}:1", "not_json", "not json"),
            (f"{place}:3", "missing_text", '{"id": 3}'),
            (f"{place}:4", "not_utf8", '{"id": 4, "text": "ÿ"}'),
        ]

    def test_a_line_of_text_must_be_utf_8(self) -> None:
        Path("in.txt").write_bytes(b"good\nbad \xff\n")

        result = run("in.txt", "--format", "text")

        assert result.exit_code == 65
        assert "in.txt:2 is not a document: The line is not UTF-8 at byte 4." in result.stderr

    def test_they_cannot_go_where_the_documents_go(self) -> None:
        write("in.jsonl", DOCUMENTS)

        assert run("in.jsonl", "-o", "out.jsonl", "--dead-letters", "./out.jsonl").exit_code == 2


class TestSummary:
    def test_it_is_made_for_people(self) -> None:
        write("in.jsonl", DOCUMENTS)

        shown = run("in.jsonl", "-o", "out.jsonl").stderr.splitlines()

        assert re.fullmatch(r"4 documents in \d+\.\d s \([\d,]+ a second\)", shown[0])
        assert [" ".join(line.split()) for line in shown[1:]] == [
            "2 50.00% originals",
            "1 25.00% exact duplicates",
            "1 25.00% near duplicates",
            "largest groups:",
            "3 documents, original a",
        ]

    def test_it_is_made_for_programs(self) -> None:
        write("in.jsonl", DOCUMENTS)

        result = run("in.jsonl", "-o", "out.jsonl", "--json")

        summary = json.loads(result.stdout)
        (row, *_) = read(Path("out.jsonl").read_bytes())
        assert result.stderr == ""
        assert summary.pop("seconds") >= 0
        assert summary.pop("documents_per_second") > 0
        assert summary == {
            "documents": 4,
            "originals": 2,
            "exact_duplicates": 1,
            "near_duplicates": 1,
            "dead_letters": 0,
            "tombstones": 0,
            "late": 0,
            "largest_groups": [
                {
                    "duplicate_id": row["dedup"]["duplicate_id"],
                    "original_id": "a",
                    "documents": 3,
                }
            ],
            "configuration": row["dedup"]["configuration"],
        }

    def test_it_does_not_mix_with_documents(self) -> None:
        write("in.jsonl", DOCUMENTS)

        result = run("in.jsonl", "--json")

        assert statuses(result.stdout_bytes) == EXPECTED
        assert json.loads(result.stderr)["documents"] == 4

    def test_no_more_than_five_groups_are_named(self) -> None:
        texts = [f"{STORY} {number}" * 2 for number in range(12)]
        write("in.jsonl", [{"text": f"{text} {text}"} for text in texts for _ in range(2)])

        result = run("in.jsonl", "-o", "out.jsonl", "--json", "--threshold", "1")

        assert len(json.loads(result.stdout)["largest_groups"]) == 5


class TestPipes:
    def test_standard_input_to_standard_output(self) -> None:
        done = subprocess.run(
            [*PROGRAM, "run", "-"], input=EXAMPLES.read_bytes(), capture_output=True, check=True
        )

        assert ANNOTATION.sub(b"", done.stdout) == EXAMPLES.read_bytes()
        assert done.stderr.startswith(b"75 documents in ")
        assert b"\x1b" not in done.stderr
        assert b"\r" not in done.stderr

    def test_a_terminal_is_shown_a_bar_and_the_summary(self) -> None:
        terminal, stderr = pty.openpty()
        subprocess.run([*PROGRAM, "run", EXAMPLES, "-o", "out"], stderr=stderr, check=True)
        os.close(stderr)

        shown = os.read(terminal, 1 << 16)

        os.close(terminal)
        assert b"\x1b[" in shown
        assert b"75 documents in " in shown

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_reader_that_has_seen_enough_is_no_error(
        self, unbuffered: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Unbuffered, a write may end with a part, and only the next one fails."""
        monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
        Path("in.jsonl").write_bytes(EXAMPLES.read_bytes() * 10)
        with subprocess.Popen(
            [*PROGRAM, "run", "in.jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            complaint = process.stderr.read()

        assert (complaint, process.returncode) == (b"", 0)

    def test_an_interrupt_ends_the_run_quietly(self) -> None:
        with subprocess.Popen(
            [*PROGRAM, "run", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A test run in the background has it ignored, and its children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(b'{"text": "a b c"}\n' * (CHUNK_LINES + 1))
            process.stdin.flush()
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.stdin.close()
            process.stdout.read()
            complaint = process.stderr.read()

        assert (complaint, process.returncode) == (b"", 130)

    def test_a_full_disk_behind_standard_output_is_told(self) -> None:
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*PROGRAM, "run", EXAMPLES], stdout=full, stderr=subprocess.PIPE, check=False
            )

        assert done.returncode == 65
        assert done.stderr == (
            b"Error: Standard output cannot be written: No space left on device. Make room, or "
            b"name another file.\n"
        )


class TestState:
    def test_the_same_file_again_gives_the_same_bytes(self) -> None:
        write("in.jsonl", DOCUMENTS)

        first, second = (run("in.jsonl", "-q", "--state", "s.db").stdout_bytes for _ in range(2))

        assert statuses(first) == EXPECTED
        assert second == first

    def test_today_is_compared_with_yesterday(self) -> None:
        write("yesterday.jsonl", DOCUMENTS[:2])
        write("today.jsonl", [{"id": "t", "text": NEAR}, {"id": 5, "text": STORY}, {"text": "new"}])

        run("yesterday.jsonl", "--state", "s.db")
        result = run("today.jsonl", "-q", "--state", "s.db")

        assert statuses(result.stdout_bytes) == [
            ("near_duplicate", "a"),
            ("exact_duplicate", "a"),
            ("original", "today.jsonl:3"),
        ]

    def test_the_same_documents_in_another_file_are_copies(self) -> None:
        write("in.jsonl", DOCUMENTS)
        write("copy.jsonl", DOCUMENTS)

        run("in.jsonl", "--state", "s.db")
        result = run("copy.jsonl", "-q", "--state", "s.db")

        assert [status for status, _ in statuses(result.stdout_bytes)] == [
            "exact_duplicate",
            "exact_duplicate",
            "exact_duplicate",
            "near_duplicate",
        ]

    def test_ids_of_both_types_are_kept(self) -> None:
        write("in.jsonl", [{"id": 1, "text": STORY}, {"id": "1", "text": OTHER}])
        write("copy.jsonl", [{"text": STORY}, {"text": OTHER}])

        run("in.jsonl", "--state", "s.db")
        result = run("copy.jsonl", "-q", "--state", "s.db")

        assert [original for _, original in statuses(result.stdout_bytes)] == [1, "1"]

    def test_other_settings_are_refused(self) -> None:
        write("in.jsonl", DOCUMENTS)
        run("in.jsonl", "--state", "s.db")

        result = run("in.jsonl", "--state", "s.db", "--threshold", "0.9", "-o", "out.jsonl")

        assert result.exit_code == 78
        assert re.fullmatch(
            r"Error: s\.db was made with other fingerprint settings \(configuration \w{16}, now "
            r"\w{16}\)\. What differs: threshold was 0\.8, is 0\.9\. Run with the settings it was "
            r"made with, or make a new --state file: stream-dedup rebuild\.\n",
            result.stderr,
        )
        assert not Path("out.jsonl").exists()

    def test_a_file_that_is_no_state_file_is_refused_and_kept(self) -> None:
        write("in.jsonl", DOCUMENTS)
        Path("notes.txt").write_text("my notes " * 200)

        result = run("in.jsonl", "--state", "notes.txt")

        assert result.exit_code == 73
        assert "notes.txt cannot be used as a state file: file is not a database." in result.stderr
        assert Path("notes.txt").read_text() == "my notes " * 200

    def test_the_database_of_another_program_is_refused_and_kept(self) -> None:
        write("in.jsonl", DOCUMENTS)
        database = sqlite3.connect("other.db")
        database.execute("CREATE TABLE notes (text)")
        database.close()
        before = Path("other.db").read_bytes()

        result = run("in.jsonl", "--state", "other.db")

        assert result.exit_code == 73
        assert "other.db is not a state file but another database." in result.stderr
        assert Path("other.db").read_bytes() == before

    def test_a_state_in_a_missing_directory_is_refused(self) -> None:
        write("in.jsonl", DOCUMENTS)

        result = run("in.jsonl", "--state", "absent/s.db")

        assert result.exit_code == 73
        assert "absent/s.db cannot be used as a state file" in result.stderr

    def test_a_state_in_use_is_refused(self) -> None:
        write("in.jsonl", DOCUMENTS)

        with Deduplicator(state=Path("s.db")):
            done = subprocess.run(
                [*PROGRAM, "run", "in.jsonl", "--state", "s.db"], capture_output=True, check=False
            )

        assert done.returncode == 73
        assert done.stderr == (
            b"Error: s.db is in use by another process. Wait for it, or use another file.\n"
        )


class TestExplain:
    @pytest.fixture(autouse=True)
    def documents(self, alone: None) -> None:
        write("in.jsonl", DOCUMENTS)

    def test_two_lines_that_match(self) -> None:
        shown = invoke("explain", "in.jsonl:1", "in.jsonl:4")

        assert shown.exit_code == 0
        assert re.match(r"Match\. They share \d+ table keys and the estimated", shown.stdout)
        assert "98 and 98, 95 in common" in shown.stdout
        assert "0.9406 exact" in shown.stdout
        assert "'word50' / 'changed'" in shown.stdout

    def test_two_lines_that_do_not(self) -> None:
        shown = invoke("explain", "in.jsonl:1", "in.jsonl:2")

        assert shown.exit_code == 0
        assert shown.stdout.startswith("No match. They share no table key")

    def test_both_methods_together_give_both_reasons(self) -> None:
        shown = invoke("explain", "in.jsonl:1", "in.jsonl:4", "--method", "fused")

        assert re.match(
            r"Match\. They share \d+ table keys and the estimated resemblance 0\.9\d+ reaches the "
            r"threshold 0\.8 and the Hamming distance \d is beyond 3 \(which counts from a "
            r"resemblance of 0\.6 on\): a near duplicate\.",
            shown.stdout,
        )

    def test_the_distance_is_that_of_as_many_bits_as_are_set(self) -> None:
        options = ("--method", "simhash", "--simhash-bits", "128", "--hamming", "12")

        shown = invoke("explain", "in.jsonl:1", "in.jsonl:2", *options)

        assert re.search(r"Hamming distance +\d\d of 128 bits", shown.stdout)

    def test_two_texts_as_json(self) -> None:
        Path("one.txt").write_text(STORY)
        Path("other.txt").write_text(STORY.title())

        found = json.loads(invoke("explain", "one.txt", "other.txt", "--json").stdout)

        assert found == {
            "shingles": [98, 98],
            "shingles_in_common": 98,
            "resemblance": 1.0,
            "containment": [1.0, 1.0],
            "estimated_resemblance": 1.0,
            "hamming_distance": 0,
            "simhash_bits": 64,
            "tables_hit": list(range(16)),
            "tables": 16,
            "exact": True,
            "match": True,
            "reason": "The normalised texts are equal: an exact duplicate.",
            "differences": [],
        }

    def test_containment_says_which_holds_the_other(self) -> None:
        Path("part.txt").write_text(" ".join(STORY.split()[:52]))

        found = json.loads(invoke("explain", "part.txt", "in.jsonl:1", "--json").stdout)

        assert found["shingles"] == [50, 98]
        assert found["containment"] == [1.0, 0.5102]
        assert found["resemblance"] == 0.5102
        assert not found["match"]

    def test_simhash_decides_by_distance(self) -> None:
        found = json.loads(
            invoke(
                *("explain", "in.jsonl:1", "in.jsonl:4", "--json"),
                *("--method", "simhash", "--hamming", "8"),
            ).stdout
        )

        assert found["estimated_resemblance"] is None
        assert found["match"] == (found["hamming_distance"] <= 8)
        assert f"Hamming distance {found['hamming_distance']} is" in found["reason"]

    def test_the_measure_that_decides_is_shown(self) -> None:
        flags = ("--verify-by", "text", "--measure", "edit", "--verify-threshold", "0.99")

        shown = invoke("explain", "in.jsonl:1", "in.jsonl:4", *flags).stdout
        found = json.loads(invoke("explain", "in.jsonl:1", "in.jsonl:4", *flags, "--json").stdout)

        assert f"the edit {found['score']:.3f} is below the threshold 0.99: no match." in shown
        assert f"edit                {found['score']:.4f} by text, which decides" in shown
        assert 0.9 < found["score"] < 0.99
        assert (found["verify_by"], found["measure"]) == ("text", "edit")
        assert found["estimated_resemblance"] is None

    def test_originals_in_a_state_are_compared_by_the_measure(self) -> None:
        flags = ("--verify-by", "shingles", "--measure", "containment")
        run("in.jsonl", "--state", "s.db", *flags)

        (found,) = json.loads(
            invoke("explain", "in.jsonl:4", "--state", "s.db", "--json", *flags).stdout
        )

        assert (found["original_id"], found["near"]) == ("a", True)
        assert found["score"] == 0.9694

    @pytest.mark.parametrize("text", ["", " \u200b\n"])
    def test_nothing_matches_nothing(self, text: str) -> None:
        Path("empty.txt").write_text(text)

        found = json.loads(invoke("explain", "empty.txt", "empty.txt", "--json").stdout)

        assert not found["match"]
        assert found["reason"] == "A text with nothing left after normalisation never matches."

    def test_a_document_is_looked_up_in_a_state(self) -> None:
        run("in.jsonl", "--state", "s.db")
        before = Path("s.db").read_bytes()

        shown = invoke("explain", "-", "--state", "s.db", stdin=NEAR.encode())
        found = json.loads(invoke("explain", "in.jsonl:4", "--state", "s.db", "--json").stdout)

        assert shown.stdout.startswith("Match. 1 originals share a table key, 1 of them near.\n")
        (sighting,) = found
        assert sighting["original_id"] == "a"
        assert sighting["near"]
        assert 0.8 <= sighting["score"] < 1
        assert Path("s.db").read_bytes() == before

    def test_a_document_without_a_candidate_is_told_so(self) -> None:
        run("in.jsonl", "--state", "s.db")

        shown = invoke("explain", "-", "--state", "s.db", stdin=b"something else altogether")

        assert shown.stdout == "No match. No original shares a table key with this document.\n"

    @pytest.mark.parametrize(
        ("arguments", "code", "reason"),
        [
            (("in.jsonl:1",), 2, "Give a second document, or a state file with --state, or"),
            (("in.jsonl:1", "in.jsonl:2", "--state", "s.db"), 2, "Give a second document"),
            (("in.jsonl:1", "--state", "absent.db"), 73, "absent.db does not exist."),
            (("in.jsonl:1", "in.jsonl:9"), 65, "in.jsonl has no document in line 9."),
            (("in.jsonl:1", "absent.jsonl:1"), 65, "absent.jsonl cannot be read"),
            (("in.jsonl:1", "absent.txt"), 65, "absent.txt cannot be read"),
            (("in.jsonl:1", "bad.jsonl:1"), 65, "bad.jsonl:1 is not a document"),
            (("in.jsonl:1", "latin.txt"), 65, "latin.txt cannot be read"),
            (("in.jsonl:1", "--state", "bad.jsonl"), 73, "cannot be used as a state file"),
        ],
    )
    def test_what_cannot_be_explained_is_told(
        self, arguments: tuple[str, ...], code: int, reason: str
    ) -> None:
        Path("bad.jsonl").write_text("no JSON at all\n" * 100)
        Path("latin.txt").write_bytes(b"caf\xe9")

        result = invoke("explain", *arguments)

        assert result.exit_code == code
        assert reason in result.stderr

    def test_other_settings_are_refused(self) -> None:
        run("in.jsonl", "--state", "s.db")

        Path("seed").write_text("x")
        other = invoke("explain", "in.jsonl:1", "--state", "s.db", "--seed-file", "seed")
        assert other.exit_code == 78
