"""Files of documents, one a line: opened, read and written; plain, gzip or zstd."""

from __future__ import annotations

import errno
import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import zstandard

from stream_dedup.errors import InputError
from stream_dedup.replacing import remedy, replacing

STANDARD = Path("-")

#: Lines, and bytes of them, that are read together.
CHUNK_LINES = 1024
CHUNK_BYTES = 1 << 20

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 20
#: What the frames of a zstd file begin with that are to be skipped, but for their last four bits.
_SKIPPED = 0x184D2A50
#: Most that a frame may refer back to; zstd needs --long=28 or more to make others.
_WINDOW = 1 << 27
#: Bytes that may stand around a line: a byte order mark before it, and its ending.
_AROUND = 5


class Line(NamedTuple):
    """One line of an input.

    Attributes:
        value: the line without its ending.
        name: a short name for it, ``file:line``.
        source: where it stands, the same however the file was named: ``absolute path:line``.
    """

    value: bytes
    name: str
    source: str


class Chunk(NamedTuple):
    """Neighbouring lines of one input.

    Attributes:
        lines: the lines as they stand there; whether they have their endings does not matter.
        shown: short name of the input.
        place: its absolute path.
        first: number of the first line, from 1.
    """

    lines: list[bytes]
    shown: str
    place: str
    first: int

    @property
    def bytes(self) -> int:
        """Size of the lines."""
        return sum(map(len, self.lines))

    def parsed(self) -> list[Line]:
        """Return the lines that are not blank, each with its place."""
        shown, place = self.shown, self.place
        values = [line.rstrip(b"\r\n") for line in self.lines]
        if values and self.first == 1:
            values[0] = values[0].removeprefix(_BOM)
        return [
            Line(value, f"{shown}:{number}", f"{place}:{number}")
            for number, value in enumerate(values, self.first)
            if value and not value.isspace()
        ]


def read_lines(path: Path, occurrence: int, most: int) -> Iterator[Line]:
    """Read the lines of a file one by one (see ``read_chunks``)."""
    for chunk in read_chunks(path, occurrence, most, lambda _read: None):
        yield from chunk.parsed()


def read_text(path: Path, most: int) -> str:
    """Read a file, or for ``-`` standard input, that is a text.

    Raises:
        OSError: it cannot be read, or has more than ``most`` bytes.
        UnicodeDecodeError: it is not UTF-8.
    """
    with ExitStack() as stack:
        file = sys.stdin.buffer if path == STANDARD else stack.enter_context(path.open("rb"))
        text = file.read(most + 1)
    if len(text) > most:
        msg = f"it has more than {most} bytes (max_document_bytes)"
        raise OSError(msg)
    return text.decode()


def read_chunks(
    path: Path, occurrence: int, most: int, progress: Callable[[int], None]
) -> Iterator[Chunk]:
    """Read the lines of a file or, for ``-``, of standard input, some at a time.

    A chunk has up to ``CHUNK_LINES`` lines, and no more bytes than ``CHUNK_BYTES`` but for those of
    its last line. Of a line that is too long a little more than ``most`` bytes are left, by which
    it is known; the rest is passed over. So memory is bounded, whatever the file unpacks to.

    Args:
        path: the file; compression is recognised by its first bytes.
        occurrence: how often this file was read before in the same run; a file read twice is two
            inputs.
        most: bytes that a line may have.
        progress: called now and then with the bytes read so far, before decompression.

    Raises:
        InputError: the file cannot be read or is damaged.
    """
    shown = "stdin" if path == STANDARD else path.name
    place = "-" if path == STANDARD else str(path.resolve())
    if occurrence:
        place = f"{place}#{occurrence + 1}"
    try:
        with ExitStack() as stack:
            raw = sys.stdin.buffer if path == STANDARD else stack.enter_context(path.open("rb"))
            counted = _Counted(cast("IO[bytes]", raw), progress)
            first = 1
            for lines in _some_lines(_decompressed(counted, stack), most):
                yield Chunk(lines, shown, place, first)
                first += len(lines)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        msg = f"{path} cannot be read: {error}. Check the file, or leave it out."
        raise InputError(msg) from error


def _some_lines(stream: IO[bytes], most: int) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    size = 0
    while line := stream.readline(most + _AROUND):
        if len(line) == most + _AROUND and not line.endswith(b"\n"):
            line += b"..."  # what ends in white space would become shorter
            while (rest := stream.readline(_BUFFER)) and not rest.endswith(b"\n"):
                pass
        lines.append(line)
        size += len(line)
        if len(lines) == CHUNK_LINES or size >= CHUNK_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


class Output:
    """A file that is being written."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream

    def write(self, data: bytes | memoryview) -> None:
        """Write some bytes.

        Raises:
            InputError: they cannot be written.
        """
        with _writing(self._path):
            # Under PYTHONUNBUFFERED standard output is a raw file, which may write but a part.
            rest = memoryview(data)
            while rest:
                rest = rest[self._stream.write(rest) :]


@contextmanager
def open_output(path: Path) -> Iterator[Output]:
    """Open a file to write; ``-`` is standard output; .gz and .zst are compressed.

    A file appears under its name only when everything has been written, so a run that is killed
    leaves no half of one behind.

    Raises:
        InputError: the file cannot be written.
    """
    with _writing(path), ExitStack() as stack:
        if path == STANDARD:
            yield Output(path, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        elif path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
            yield Output(path, stack.enter_context(path.open("wb")))
        else:
            partial = stack.enter_context(replacing(path))
            file = stack.enter_context(partial.open("wb", buffering=_BUFFER))
            yield Output(path, _compressed(path, file, stack))


def forget_standard_output() -> None:
    """Keep the interpreter from complaining at its end that a closed pipe cannot be written."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say which file cannot be written. A closed pipe is no error (see ``cli.main``)."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if path == STANDARD:
            forget_standard_output()
        name = "Standard output" if path == STANDARD else path
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        msg = f"{name} cannot be written: {reason}. {remedy(error)}"
        raise InputError(msg) from error


def _compressed(path: Path, file: IO[bytes], stack: ExitStack) -> IO[bytes]:
    match path.suffix:
        case ".gz":  # no file name and no time inside, so the same documents give the same bytes
            packed = gzip.GzipFile("", "wb", 6, file, mtime=0)
            return cast("IO[bytes]", stack.enter_context(packed))
        case ".zst":
            return stack.enter_context(
                zstandard.ZstdCompressor().stream_writer(file, closefd=False)
            )
    return file


def _decompressed(raw: _Counted, stack: ExitStack) -> IO[bytes]:
    stream = io.BufferedReader(raw, _BUFFER)
    start = stream.peek(4)[:4]
    if start.startswith(_GZIP):
        packed = stack.enter_context(gzip.GzipFile(fileobj=stream))
        return cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", packed), _BUFFER))
    if start.startswith(_ZSTD) or _is_skipped(start):
        return cast("IO[bytes]", io.BufferedReader(_Zstd(stream), _BUFFER))
    return cast("IO[bytes]", stream)


class _Counted(io.RawIOBase):
    """Reports how many bytes have been read through it."""

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None]) -> None:
        super().__init__()
        self._stream = stream
        self._progress = progress
        self._read = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read some bytes."""
        chunk = self._stream.read1(len(buffer)) if hasattr(self._stream, "read1") else b""
        buffer[: len(chunk)] = chunk
        self._read += len(chunk)
        self._progress(self._read)
        return len(chunk)


class _Zstd(io.RawIOBase):
    """Decompresses block after block, each of which unpacks to 128 KiB at most (RFC 8878).

    zstandard's own reader does not notice a missing end, and what it is given it unpacks whole.
    """

    def __init__(self, stream: io.BufferedReader[Any]) -> None:
        super().__init__()
        self._stream = stream
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._checksum_bytes = 0
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read some bytes."""
        while not self._plain and self._fill():
            pass
        size = min(len(buffer), len(self._plain))
        buffer[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size

    def _fill(self) -> bool:
        """Decompress one more block, or begin a frame; return whether there was one."""
        if self._frame is None:
            return self._begin()
        block = self._exactly(3)
        is_last, is_repeated, size = _block(block)
        block += self._exactly(1 if is_repeated else size)
        if is_last:
            block += self._exactly(self._checksum_bytes)
        self._plain = memoryview(self._frame.decompress(block))
        if is_last:
            self._frame = None
        return True

    def _begin(self) -> bool:
        if not self._stream.peek(1):
            return False
        magic = self._exactly(4)
        if _is_skipped(magic):
            left = int.from_bytes(self._exactly(4), "little")
            while left:
                left -= len(self._exactly(min(left, _BUFFER)))
            return True
        head = magic + self._exactly(1)
        # The length of a header follows from its first byte, but is asked for with all that it has.
        head += self._exactly(zstandard.frame_header_size(head + bytes(17)) - len(head))
        self._checksum_bytes = 4 * zstandard.get_frame_parameters(head).has_checksum
        self._frame = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        self._frame.decompress(head)
        return True

    def _exactly(self, size: int) -> bytes:
        found = self._stream.read(size)
        if len(found) < size:
            msg = "Compressed file ended before the end of its last frame"
            raise EOFError(msg)
        return found


def _is_skipped(magic: bytes) -> bool:
    """Say whether a frame that begins so is to be skipped; a file may begin with one."""
    return int.from_bytes(magic, "little") & ~15 == _SKIPPED


def _block(header: bytes) -> tuple[bool, bool, int]:
    """Return whether a block is the last of its frame, whether it repeats a byte, and its size."""
    word = int.from_bytes(header, "little")
    return bool(word & 1), word >> 1 & 3 == 1, word >> 3
