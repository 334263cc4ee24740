"""What kafka-python's consumers make of hostile batches here, and of good ones.

When the library changes what ``kafka_records`` builds on, ``TestTheSeam`` says so first.
"""

from __future__ import annotations

import inspect
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from kafka.codec import gzip_encode  # type: ignore[import-untyped]
from kafka.consumer.fetcher import Fetcher  # type: ignore[import-untyped]
from kafka.errors import CorruptRecordError  # type: ignore[import-untyped]
from kafka.record import MemoryRecords  # type: ignore[import-untyped]
from kafka.record.default_records import DefaultRecordBatch  # type: ignore[import-untyped]
from kafka.record.legacy_records import (  # type: ignore[import-untyped]
    LegacyRecordBatch,
    LegacyRecordBatchBuilder,
)

from stream_dedup.stream import kafka_records
from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.decompress import NAMES, UnpackError, unpack
from stream_dedup.stream.kafka_records import bound
from stream_dedup.stream.poison import Reason
from tests.services.batches import (
    CODECS,
    COMPRESSED,
    Codec,
    batch,
    long_record,
    raw_snappy,
    record,
    sealed,
)

LIMIT = 1 << 20
PLACE = TopicPartition("documents", 0)
NUMBERS = {name: number for number, name in NAMES.items()}
CONTENT = bytes(range(256)) * 300
compressed = pytest.mark.parametrize("codec", COMPRESSED)


def reading(limit: int) -> Any:
    """Return what reads a fetched partition in a consumer that is bound."""
    consumer = SimpleNamespace(_fetcher=SimpleNamespace())
    return bound(consumer, limit)._fetcher.PartitionRecords


def read(*batches: bytes, start: int = 0, limit: int = LIMIT, most: int | None = None) -> list[Any]:
    """Return what a consumer hands out of a fetch."""
    written, offset = bytearray(), 0
    for one in batches:  # offsets are given by the broker
        at = len(written)
        written += one
        struct.pack_into(">q", written, at, offset)
        offset += struct.unpack_from(">i", one, 23)[0] + 1
    make = reading(limit)
    found: list[Any] = make(start, PLACE, MemoryRecords(written)).take(most)
    return found


def good(codec: Codec = "lz4", count: int = 3) -> bytes:
    return batch(codec, count, iter([record(n, b"good %d" % n) for n in range(count)]))


def fate(found: Any) -> Reason | None:
    return found.headers.poison().reason if isinstance(found.headers, Damaged) else None


class TestUnpack:
    @compressed
    def test_it_returns_what_was_packed(self, codec: Codec) -> None:
        packed = batch(codec, 1, iter([CONTENT]))[61:]

        assert unpack(NUMBERS[codec], memoryview(packed), len(CONTENT)) == CONTENT

    @compressed
    def test_it_stops_at_the_limit(self, codec: Codec) -> None:
        packed = batch(codec, 1, iter([CONTENT]))[61:]

        with pytest.raises(UnpackError, match=r"more than 76799 bytes \(max_unpacked_bytes\)"):
            unpack(NUMBERS[codec], memoryview(packed), len(CONTENT) - 1)

    @compressed
    def test_damage_is_told(self, codec: Codec) -> None:
        with pytest.raises(UnpackError, match=f"cannot be unpacked by {codec}|more than"):
            unpack(NUMBERS[codec], memoryview(b"\xff" * 40), LIMIT)

    @pytest.mark.parametrize("codec", ["gzip", "lz4"])
    def test_an_end_that_comes_too_early_is_told(self, codec: Codec) -> None:
        packed = batch(codec, 1, iter([CONTENT]))[61:]

        with pytest.raises(UnpackError, match="ends too early"):
            unpack(NUMBERS[codec], memoryview(packed[:-20]), LIMIT)

    def test_snappy_without_frames(self) -> None:
        packed = raw_snappy(iter([CONTENT]))

        assert unpack(2, memoryview(packed), len(CONTENT)) == CONTENT
        with pytest.raises(UnpackError, match="more than"):
            unpack(2, memoryview(packed), len(CONTENT) - 1)

    def test_a_lie_about_the_length_takes_no_memory(self) -> None:
        lie = b"\xff\xff\xff\xff\x0f" + raw_snappy(iter([b"a" * 50]))

        with pytest.raises(UnpackError, match="more than"):
            unpack(2, memoryview(lie), LIMIT)

    def test_gzip_may_have_several_members(self) -> None:
        packed = gzip_encode(b"one") + gzip_encode(b"two") + bytes(7)

        assert unpack(1, memoryview(packed), 6) == b"onetwo"
        with pytest.raises(UnpackError, match="more than"):
            unpack(1, memoryview(packed), 5)

    def test_an_unknown_codec_is_told(self) -> None:
        with pytest.raises(UnpackError, match="unknown codec"):
            unpack(7, memoryview(b"a"), 1)


class TestReading:
    @pytest.mark.parametrize("codec", CODECS)
    def test_good_batches_are_read_as_ever(self, codec: Codec) -> None:
        written = good(codec, 5)
        plain = Fetcher.PartitionRecords(0, PLACE, MemoryRecords(written)).take()

        assert read(written) == plain
        assert [one.value for one in plain] == [b"good %d" % n for n in range(5)]

    @compressed
    def test_a_bomb_is_told_of_and_its_neighbours_are_read(self, codec: Codec) -> None:
        bomb = batch(codec, 1, long_record(0, 20 * LIMIT), moment=7)

        found = read(good(), bomb, good())

        assert [one.offset for one in found] == list(range(7))
        assert [fate(one) for one in found] == [None] * 3 + [Reason.UNREADABLE] + [None] * 3
        assert (found[3].key, found[3].value, found[3].timestamp) == (None, None, 7)
        poison = found[3].headers.poison()
        assert poison.lost == ("value", "key", "headers")
        assert poison.detail == (
            "It is of the batch of offsets 3 to 3, which unpacks to more than 1048576 bytes "
            "(max_unpacked_bytes)."
        )

    def test_every_offset_of_a_bomb_is_told_of(self) -> None:
        records = [record(n, bytes(LIMIT // 4)) for n in range(8)]
        bomb = batch("zstd", 8, iter(records))

        assert [one.offset for one in read(bomb, good())] == list(range(11))
        assert [one.offset for one in read(bomb, good(), start=5)] == [5, 6, 7, 8, 9, 10]
        assert [one.offset for one in read(bomb, good(), most=2)] == [0, 1]

    def test_of_a_bomb_of_millions_the_last_offset_is_told(self) -> None:
        bomb = sealed("gzip", 2**30, gzip_encode(bytes(2 * LIMIT)))

        found = read(good(), bomb)

        assert [one.offset for one in found] == [0, 1, 2, 2**30 + 2]
        assert "offsets 3 to 1073741826" in found[3].headers.poison().detail
        assert [one.offset for one in read(good(), bomb, start=1000)] == [2**30 + 2]

    @compressed
    def test_a_batch_that_cannot_be_unpacked_is_told_of(self, codec: Codec) -> None:
        found = read(sealed(codec, 2, b"\0nonsense"), good())

        assert [fate(one) for one in found] == [Reason.UNREADABLE] * 2 + [None] * 3

    def test_damage_on_the_way_is_no_poison(self) -> None:
        damaged = bytearray(good("none"))
        damaged[70] ^= 1

        with pytest.raises(CorruptRecordError):
            read(bytes(damaged))

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_each_offset_behind_a_damaged_record_is_unreadable(self, codec: Codec) -> None:
        """Brokers take them: they do not look into all of a record."""
        written = b"".join(record(n, b"a", [(b"b", b"c")]) for n in range(4))
        size = len(written) // 4
        for at in range(size, 2 * size):
            for byte in (0, 1, 0x55, 0x80, 0xFF):
                damaged = bytearray(written)
                damaged[at] = byte
                sent = batch(codec, 4, iter([bytes(damaged)]))
                reader = reading(LIMIT)(0, PLACE, MemoryRecords(sent))

                found = reader.take()

                offsets = [one.offset for one in found]
                assert offsets == sorted(set(offsets))
                assert (offsets[0], offsets[-1], found[0].value) == (0, 3, b"a")
                lost = [one for one in found if isinstance(one.headers, Damaged)]
                assert len(found) == 4 or not lost


class TestHeaders:
    def test_a_name_that_is_not_utf8_is_escaped(self) -> None:
        headers = [(b"caf\xe9", b"\xff"), (b"trace", b"1"), ("ö".encode(), b"2")]
        records = [record(0, b"a"), record(1, b"b", headers), record(2, b"c"), record(3, b"d")]

        for codec in CODECS:
            found = read(batch(codec, 4, iter(records)), good())
            assert [one.value for one in found[:4]] == [b"a", b"b", b"c", b"d"]
            assert [fate(one) for one in found] == [None, Reason.BAD_HEADER] + [None] * 5
            assert list(found[1].headers) == [("caf\\xe9", b"\xff"), ("trace", b"1"), ("ö", b"2")]
            assert found[1].headers.poison().lost == ()

    def test_all_of_a_batch_may_be_so(self) -> None:
        records = [record(n, b"%d" % n, [(b"\xff", b"")]) for n in range(50)]

        found = read(batch("zstd", 50, iter(records)))

        assert [one.value for one in found] == [b"%d" % n for n in range(50)]
        assert {fate(one) for one in found} == {Reason.BAD_HEADER}

    def test_a_million_headers_are_counted_and_not_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        many = [(b"", b"")] * (kafka_records.MOST_HEADERS + 1)
        wide = bytes(kafka_records._WIDE_BYTES)
        records = [record(0, wide, many), record(1, b"b", many[1:]), record(2, b"c")]

        found = read(batch("gzip", 3, iter(records)), good(), limit=16 << 20)

        assert [len(one.value) for one in found] == [len(wide), 1, 1, 6, 6, 6]
        assert [fate(one) for one in found] == [Reason.BAD_HEADER] + [None] * 5
        assert found[0].headers == []
        assert found[0].headers.poison().lost == ("headers",)
        assert len(found[1].headers) == kafka_records.MOST_HEADERS


def old(magic: int, codec: Codec, values: list[bytes]) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, CODECS.index(codec), 1 << 24)
    for number, value in enumerate(values):
        builder.append(number, 7, None, value)
    return bytes(builder.build())


class TestOldFormats:
    def read(self, written: bytes) -> list[Any]:
        make = reading(LIMIT)
        found: list[Any] = make(0, PLACE, MemoryRecords(written)).take()
        return found

    @pytest.mark.parametrize(
        ("magic", "codec"),
        [(0, "none"), (0, "gzip"), (1, "none"), (1, "gzip"), (1, "lz4"), (1, "snappy")],
    )
    def test_they_are_read_as_ever(self, magic: int, codec: Codec) -> None:
        written = old(magic, codec, [b"a", b"b"])

        assert [one.value for one in self.read(written)] == [b"a", b"b"]
        assert (
            self.read(written) == Fetcher.PartitionRecords(0, PLACE, MemoryRecords(written)).take()
        )

    @pytest.mark.parametrize("magic", [0, 1])
    def test_a_bomb_is_told_of(self, magic: int) -> None:
        (found,) = self.read(old(magic, "gzip", [bytes(2 * LIMIT)]))

        assert fate(found) is Reason.UNREADABLE

    def test_lz4_of_the_oldest_is_not_read(self) -> None:
        (found,) = self.read(old(0, "lz4", [b"a", b"b"]))

        assert fate(found) is Reason.UNREADABLE


class TestTheSeam:
    """Each says what of kafka-python was built upon that is no longer so."""

    def test_a_consumer_makes_records_by_an_attribute_of_its_fetcher(self) -> None:
        assert "self._fetcher = Fetcher(" in inspect.getsource(KafkaConsumer.__init__)
        assert "self.PartitionRecords(" in inspect.getsource(Fetcher._parse_fetched_data)

    def test_which_takes_the_batches_one_by_one(self) -> None:
        parameters = list(inspect.signature(Fetcher.PartitionRecords.__init__).parameters)
        assert parameters[:4] == ["self", "fetch_offset", "tp", "records"]
        source = inspect.getsource(Fetcher.PartitionRecords._unpack_records)
        assert source.count("records.next_batch()") == source.count("records.")
        assert "for record in batch" in source

    def test_batches_unpack_in_one_place(self) -> None:
        source = inspect.getsource(DefaultRecordBatch)
        assert source.count("_decode(") == 4
        assert source.count("self._maybe_uncompress()") == 1
        assert inspect.getsource(LegacyRecordBatch).count("self._decompress(") == 1
