"""Files that unpack to gigabytes, and lines of hundreds of megabytes: read in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from stream_dedup.errors import InputError, SettingsError
from stream_dedup.fingerprint import frequencies
from stream_dedup.stream.files import Line, read_lines
from stream_dedup.text.sealed import seal

#: Runs a command, and says how much memory it took at most, in MiB.
PROGRAM = """
import resource, sys
from stream_dedup.cli.main import cli
code = 0
try:
    cli(prog_name="stream-dedup")
except SystemExit as end:
    code = end.code
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr)
"""
GOOD = b'{"id": 1, "text": "one two three four five", "dedup": {"status": "original"}}\n'
#: Bytes of the long line, and MiB that reading it may take beside a file without it.
LONG, MORE = 256 << 20, 32

pytestmark = pytest.mark.usefixtures("alone")


def pieces() -> Iterator[bytes]:
    """A file with one long line between two good ones, some of it at a time."""
    yield GOOD + b'{"id": 2, "text": "'
    for _ in range(LONG >> 20):
        yield bytes(1 << 20)
    yield b'"}\n' + GOOD.replace(b"1", b"3")


def write(path: Path, content: Iterator[bytes]) -> None:
    with path.open("wb") as file:
        is_gzip = path.suffix == ".gz"
        packed: Any = (
            gzip.GzipFile("", "wb", 1, file)
            if is_gzip
            else zstandard.ZstdCompressor().stream_writer(file)
        )
        with packed:
            for piece in content:
                packed.write(piece)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file that is compressed by each, and one without the long line."""
    folder = tmp_path_factory.mktemp("large")
    for suffix in (".zst", ".gz"):
        write(folder / f"in.jsonl{suffix}", pieces())
    sparse = folder / "in.jsonl"
    with sparse.open("wb") as file:
        file.write(GOOD + b'{"id": 2, "text": "')
        file.seek(LONG, io.SEEK_CUR)
        file.write(b'"}\n' + GOOD.replace(b"1", b"3"))
    (folder / "small.jsonl").write_bytes(GOOD + GOOD.replace(b"1", b"3"))
    return folder


def measured(*command: object, stdin: Path | None = None) -> tuple[int, int, str]:
    """Run a command; return its exit code, its memory and what it reported."""
    with (stdin or Path("/dev/null")).open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, command)],
            stdin=file,
            capture_output=True,
            timeout=120,
            check=True,
        )
    *reported, last = done.stderr.decode().splitlines()
    code, memory = map(int, last.split())
    return code, memory, "\n".join(reported)


@pytest.mark.parametrize(
    ("name", "jobs"),
    [("in.jsonl.zst", 1), ("in.jsonl.zst", 2), ("in.jsonl.gz", 1), ("in.jsonl", 1), ("-", 1)],
)
def test_a_run_sets_a_line_aside_without_holding_it(files: Path, name: str, jobs: int) -> None:
    flags = ("-o", "out", "--dead-letters", "bad", "--jobs", jobs)
    _, small, _ = measured("run", files / "small.jsonl", *flags)
    stdin = files / "in.jsonl.zst" if name == "-" else None

    code, memory, _ = measured("run", "-" if stdin else files / name, *flags, stdin=stdin)

    assert code == 0
    assert memory < small + MORE
    assert [json.loads(line)["id"] for line in Path("out").read_bytes().splitlines()] == [1, 3]
    (letter,) = map(json.loads, Path("bad").read_bytes().splitlines())
    assert letter["reason"] == "too_large"
    assert letter["source"].endswith(":2")
    assert len(letter["value"]) < 1_000_000


COMMANDS: list[Sequence[str]] = [
    ("run", "--format", "text"),
    ("evaluate",),
    ("sample", "-o", "pairs"),
    ("learn", "boilerplate", "-o", "lines"),
    ("learn", "frequencies", "-o", "counts"),
    ("query", "--state", "state", "--file"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_who_must_have_every_line_refuses_it(files: Path, command: Sequence[str]) -> None:
    measured("run", files / "small.jsonl", "-q", "-o", "out", "--state", "state")
    _, small, _ = measured(*command, files / "small.jsonl")

    code, memory, reported = measured(*command, files / "in.jsonl.zst")

    assert code == 65
    assert "in.jsonl.zst:2 is not a document" in reported
    assert "(max_document_bytes)" in reported
    assert memory < small + MORE


def test_a_rebuild_passes_it_over(files: Path) -> None:
    measured("run", files / "small.jsonl", "-q", "-o", "out")
    _, small, _ = measured("rebuild", "out", "--state", "one.db")

    code, memory, _ = measured("rebuild", files / "in.jsonl.zst", "--state", "two.db")

    assert code == 0
    assert memory < small + MORE


def test_a_text_or_an_id_from_standard_input_is_bounded(files: Path) -> None:
    measured("run", files / "small.jsonl", "-q", "-o", "out", "--state", "state")
    for command in (("query", "-"), ("explain", "-"), ("forget", "-")):
        _, small, _ = measured(*command, "--state", "state", stdin=files / "small.jsonl")

        code, memory, reported = measured(*command, "--state", "state", stdin=files / "in.jsonl")

        assert code == 65, reported
        assert "Traceback" not in reported
        assert memory < small + MORE


def lines(path: Path, most: int = 100) -> list[bytes]:
    return [line.value for line in read_lines(path, 0, most)]


class TestZstd:
    def frames(self) -> list[bytes]:
        """Frames of every form: with and without checksum and size, of one block and of many."""
        noise = random.Random(3).randbytes(300_000).hex().encode()
        plain = [b"", b"a\n", b"b" * 50 + b"\n", bytes(1 << 20) + b"\n", noise + b"\n"]
        packed = []
        for checksum in (False, True):
            for size in (False, True):
                compressor = zstandard.ZstdCompressor(
                    write_checksum=checksum, write_content_size=size
                )
                packed += [compressor.compress(one) for one in plain]
        streamed = zstandard.ZstdCompressor().compressobj()
        parts = [streamed.compress(b"c\n"), streamed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)]
        packed.append(b"".join([*parts, streamed.compress(b"d\n"), streamed.flush()]))
        # One that is to be skipped, as seekable files have it, and one larger than a buffer.
        packed += [b"\x50\x2a\x4d\x18" + (n).to_bytes(4, "little") + bytes(n) for n in (9, 3 << 20)]
        return packed

    def test_all_frames_are_read_one_after_the_other(self, tmp_path: Path) -> None:
        path = tmp_path / "in.zst"
        path.write_bytes(b"".join(self.frames()))

        found = lines(path, 1 << 21)

        assert [len(one) for one in found] == [1, 50, 1 << 20, 600_000] * 4 + [1, 1]

    def test_a_missing_end_is_noticed_wherever_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "in.zst"
        frame = zstandard.ZstdCompressor(write_checksum=True).compress(GOOD * 9)
        for end in range(4, len(frame)):
            path.write_bytes(frame + frame[:end])
            with pytest.raises(InputError, match=r"in\.zst cannot be read: .*\. Check the file"):
                lines(path, 10_000)

    def test_damage_is_noticed(self, tmp_path: Path) -> None:
        path = tmp_path / "in.zst"
        frame = zstandard.ZstdCompressor(write_checksum=True).compress(GOOD * 9)
        chance = random.Random(5)
        for place in range(4, len(frame)):
            damaged = bytearray(frame)
            damaged[place] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            with suppress(InputError):  # some bits of a header change nothing
                assert lines(path, 10_000) == [GOOD.rstrip()] * 9

    def test_a_window_of_gigabytes_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "in.zst"
        parameters = zstandard.ZstdCompressionParameters(window_log=29)
        with path.open("wb") as file:
            compressor = zstandard.ZstdCompressor(compression_params=parameters)
            with compressor.stream_writer(file) as packed:
                packed.write(GOOD)

        with pytest.raises(InputError, match="too much memory"):
            lines(path)


class TestLines:
    @pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
    @pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
    def test_a_line_is_whole_or_known_to_be_too_long(
        self, tmp_path: Path, ending: bytes, mark: bytes
    ) -> None:
        path = tmp_path / "in"
        for size in range(90, 120):
            path.write_bytes(mark + b"x" * size + ending + (b"next" if ending else b""))

            first, *rest = lines(path)

            assert first == b"x" * size if size <= 100 else len(first) > 100
            assert len(first) < 120
            assert rest == ([b"next"] if ending else [])

    def test_white_space_at_the_cut_hides_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "in"
        path.write_bytes(b"x" * 50 + b"\r" * 200 + b"y\nnext\n")

        first, rest = read_lines(path, 0, 100)

        assert len(first.value) > 100
        assert rest == Line(b"next", "in:2", f"{path.resolve()}:2")


@pytest.mark.parametrize("kind", range(16))
def test_a_file_may_begin_with_a_frame_to_be_skipped(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "in.zst"
    skipped = (0x184D2A50 + kind).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    path.write_bytes(skipped + zstandard.compress(GOOD))

    assert [line.value for line in read_lines(path, 0, 1000)] == [GOOD.rstrip()]


@pytest.mark.parametrize("cells", [1024, 1 << 40])
def test_frequencies_unpack_to_no_more_than_there_are(tmp_path: Path, cells: int) -> None:
    packed = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(packed, size=LONG, closefd=False) as writer:
        for _ in range(LONG >> 20):
            writer.write(bytes(1 << 20))
    stored = frequencies._File(
        frequencies._FORMAT, frequencies._VERSION, "word:3", 0, 1, 1, cells, packed.getvalue()
    )
    path = tmp_path / "counts"
    path.write_bytes(seal(msgspec.msgpack.encode(stored)))

    tracemalloc.start()
    try:
        with pytest.raises(SettingsError, match="its counts are not as many as it says"):
            frequencies.read_frequencies(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < MORE << 20
