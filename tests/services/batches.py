"""Batches of records written by hand, and sent as they are: no client would write such ones."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard
from kafka.record.util import calc_crc32c, encode_varint  # type: ignore[import-untyped]

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
#: In the order of their numbers in the protocol.
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
COMPRESSED = CODECS[1:]
Header = tuple[bytes, bytes]

_CHUNK = 1 << 20
#: What Java's snappy puts before its blocks.
_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_PRODUCE, _PRODUCE_VERSION = 0, 8


def record(number: int, value: bytes, headers: Sequence[Header] = ()) -> bytes:
    """Write a record without a key.

    Args:
        number: its place in its batch.
        value: its value.
        headers: names may be any bytes.
    """
    written = b"".join(_sized(name) + _sized(content) for name, content in headers)
    body = _front(number) + _sized(value) + _varint(len(headers)) + written
    return _varint(len(body)) + body


def long_record(number: int, size: int) -> Iterator[bytes]:
    """Write, in chunks, a record whose value is so many zeros."""
    front, back = _front(number) + _varint(size), _varint(0)
    yield _varint(len(front) + size + len(back)) + front
    for begin in range(0, size, _CHUNK):
        yield bytes(min(_CHUNK, size - begin))
    yield back


def batch(
    codec: Codec, count: int, content: Iterator[bytes], *, moment: int | None = None
) -> bytes:
    """Write a batch.

    Args:
        codec: how it is compressed.
        count: number of its records.
        content: the records, in chunks.
        moment: milliseconds since the epoch, else now; a broker soon deletes what is old.
    """
    return sealed(codec, count, _PACK[codec](content), moment)


def sealed(codec: Codec, count: int, packed: bytes, moment: int | None = None) -> bytes:
    """Put the head of a batch before what claims to be its compressed records."""
    told = int(time.time() * 1000) if moment is None else moment
    head = (CODECS.index(codec), count - 1, told, told, -1, -1, -1, count)
    rest = struct.pack(">hiqqqhii", *head) + packed
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, calc_crc32c(rest)) + rest


def send(bootstrap: str, topic: str, written: bytes, partition: int = 0) -> int:
    """Send a batch to the only broker; return the offset of its first record."""
    name = topic.encode()
    body = struct.pack(">hhihhhii", _PRODUCE, _PRODUCE_VERSION, 1, -1, -1, -1, 30_000, 1)
    body += struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, partition, len(written)) + written
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    assert error == 0, f"the broker refuses the batch with error {error}"
    return int(offset)


def raw_snappy(content: Iterator[bytes]) -> bytes:
    """Compress without framing, as librdkafka does."""
    return bytes(cramjam.snappy.compress_raw(b"".join(content)))


def _front(number: int) -> bytes:
    """Write attributes, the difference of times, the number and that there is no key."""
    return b"\0" + _varint(0) + _varint(number) + _varint(-1)


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    encode_varint(number, written.append)
    return bytes(written)


def _gzip(content: Iterator[bytes]) -> bytes:
    return _streamed(zlib.compressobj(6, zlib.DEFLATED, 31), content)


def _zstd(content: Iterator[bytes]) -> bytes:
    return _streamed(zstandard.ZstdCompressor().compressobj(), content)


def _lz4(content: Iterator[bytes]) -> bytes:
    # Kafka knows no blocks that depend on one another.
    with lz4.frame.LZ4FrameCompressor(block_linked=False) as compressor:
        return compressor.begin() + _streamed(compressor, content)  # type: ignore[no-any-return]


def _snappy(content: Iterator[bytes]) -> bytes:
    packed = bytearray(_XERIAL)
    for chunk in content:
        for begin in range(0, len(chunk), _XERIAL_BLOCK):
            block = bytes(cramjam.snappy.compress_raw(chunk[begin : begin + _XERIAL_BLOCK]))
            packed += struct.pack(">i", len(block)) + block
    return bytes(packed)


def _streamed(compressor: Any, content: Iterator[bytes]) -> bytes:
    return b"".join([*map(compressor.compress, content), compressor.flush()])


_PACK: dict[str, Callable[[Iterator[bytes]], bytes]] = {
    "none": b"".join,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
