"""Unpacks batches of records to a limit. Pure: bytes to bytes.

Every codec of Kafka packs zeros well: gzip 1,030 of them into a byte, LZ4 250, Zstandard 32,000. So
no codec is asked for all it has: it is asked for some megabytes again and again until there is no
more, or too much. Snappy cannot be asked so, but says at the front of each block how long it is.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import lz4.frame  # type: ignore[import-untyped]
import snappy  # type: ignore[import-untyped]
import zstandard

#: Bytes that a codec is asked for at once.
_CHUNK = 4 << 20
#: The framing that Java puts around blocks of Snappy: a magic word, and two versions.
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_BYTES = 16
_GZIP = 16 + zlib.MAX_WBITS

#: Names of the codecs by their numbers in the attributes of a batch.
NAMES = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class UnpackError(Exception):
    """A batch that cannot be unpacked, or not within the limit; says what it does or is not."""


def unpack(codec: int, packed: memoryview, limit: int) -> bytearray:
    """Return what a batch unpacks to.

    Args:
        codec: its number in the attributes of the batch.
        packed: the compressed records.
        limit: most bytes to return.

    Raises:
        UnpackError: there is more, or what was packed is damaged.
    """
    chunks = _CODECS.get(codec)
    if chunks is None:
        msg = f"is compressed by an unknown codec ({codec})"
        raise UnpackError(msg)
    unpacked = bytearray()
    try:
        for chunk in chunks(packed, limit):
            unpacked += chunk
            if len(unpacked) > limit:
                break
    except (UnpackError, MemoryError):
        raise
    except Exception as error:  # each codec has errors of its own, and some have several
        msg = f"cannot be unpacked by {NAMES[codec]} ({type(error).__name__})"
        raise UnpackError(msg) from error
    if len(unpacked) > limit:
        raise _too_much(limit)
    return unpacked


def _too_much(limit: int) -> UnpackError:
    return UnpackError(f"unpacks to more than {limit} bytes (max_unpacked_bytes)")


def _gzip(packed: memoryview, _limit: int) -> Iterator[bytes]:
    rest: bytes | memoryview = packed
    while rest:  # one member after the other
        member = zlib.decompressobj(_GZIP)
        while True:
            yield member.decompress(rest, _CHUNK)
            rest = member.unconsumed_tail
            if member.eof:
                break
            if not rest:
                msg = "ends too early"
                raise UnpackError(msg)
        # Who pads does it with zeros.
        rest = member.unused_data.lstrip(b"\0")


def _snappy(packed: memoryview, limit: int) -> Iterator[bytes]:
    framed = bytes(packed[: len(_XERIAL)]) == _XERIAL
    left = limit
    for block in _blocks(packed[_XERIAL_BYTES:]) if framed else [packed]:
        left -= _length(block)
        if left < 0:
            raise _too_much(limit)
        yield snappy.decompress(bytes(block))


def _blocks(packed: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(packed):
        (size,) = struct.unpack_from(">I", packed, at)
        at += 4
        yield packed[at : at + size]
        at += size


def _length(block: memoryview) -> int:
    """Return what a block of Snappy begins with: its length, seven bits in a byte."""
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            break
    return size


def _lz4(packed: memoryview, _limit: int) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameDecompressor()
    yield frame.decompress(packed, max_length=_CHUNK)
    while not frame.eof:
        if frame.needs_input:
            msg = "ends too early"
            raise UnpackError(msg)
        yield frame.decompress(b"", max_length=_CHUNK)


def _zstd(packed: memoryview, _limit: int) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor()
    with decompressor.stream_reader(packed, read_across_frames=True) as reader:
        while chunk := reader.read(_CHUNK):
            yield chunk


_CODECS: dict[int, Callable[[memoryview, int], Iterator[bytes]]] = {
    1: _gzip,
    2: _snappy,
    3: _lz4,
    4: _zstd,
}
