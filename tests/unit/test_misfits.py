"""What a topic surely refuses, and what it may take."""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

import pytest
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from stream_dedup.settings import Settings
from stream_dedup.stream import misfits as module
from stream_dedup.stream.misfits import TopicLimits, misfits, read_limits
from stream_dedup.stream.transport import Output

NOISE = random.Random(2).randbytes(3000)
SETTINGS = Settings(transport="kafka-python", compression="lz4")


class Input(NamedTuple):
    """An input record."""

    offset: int
    topic: str = "documents"
    partition: int = 0
    timestamp: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"{}"
    headers: tuple[tuple[str, bytes | None], ...] = ()


def output(value: bytes = b"{}", **more: Any) -> Output:
    given: dict[str, Any] = {"headers": [], "key": b"k", "timestamp": None} | more
    return Output("annotated", Input(7), value, **given)


def refused(one: Output, limits: TopicLimits, settings: Settings = SETTINGS) -> str:
    return misfits([one], {"annotated": limits}, settings).get(("documents", 0, 7), "")


class TestSizes:
    @pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
    @pytest.mark.parametrize("where", ["value", "key", "headers"])
    def test_what_cannot_be_made_smaller(self, compression: Any, where: str) -> None:
        content: Any = [("h", NOISE)] if where == "headers" else NOISE
        settings = SETTINGS.model_copy(update={"compression": compression})

        assert "takes 2000 bytes at most" in refused(
            output(**{where: content}), TopicLimits(2000), settings
        )
        assert refused(output(**{where: content}), TopicLimits(4000), settings) == ""

    @pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
    def test_what_is_sent_counts_not_what_it_was(self, compression: Any) -> None:
        settings = SETTINGS.model_copy(update={"compression": compression})

        assert refused(output(b"x" * 100_000), TopicLimits(2000), settings) == ""

    def test_the_size_is_that_of_the_batch_to_the_byte(self) -> None:
        one = output(NOISE)
        size = module._sent_bytes(one, "lz4")

        assert refused(one, TopicLimits(size)) == ""
        assert refused(one, TopicLimits(size - 1))

    def test_the_other_client_may_compress_better(self) -> None:
        """Where that can matter: not for what does not become smaller at all."""
        text = NOISE[:1500].hex().encode()
        settings = SETTINGS.model_copy(update={"compression": "gzip", "transport": "confluent"})
        size = module._sent_bytes(output(text), "gzip")

        assert refused(output(text), TopicLimits(size - 1), settings) == ""
        assert refused(output(text), TopicLimits(size * 10 // 12), settings)
        noise = module._sent_bytes(output(NOISE), "gzip")
        assert refused(output(NOISE), TopicLimits(noise - 1), settings)


class TestOtherLimits:
    def test_a_compacted_topic_wants_keys(self) -> None:
        assert "compacted" in refused(output(key=None), TopicLimits(9999, compacted=True))
        assert refused(output(), TopicLimits(9999, compacted=True)) == ""
        assert refused(output(key=None), TopicLimits(9999)) == ""

    @pytest.mark.parametrize(("seconds", "fits"), [(-900, False), (-30, True), (900, False)])
    def test_timestamps(self, seconds: int, *, fits: bool) -> None:
        limits = TopicLimits(9999, before_ms=60_000, after_ms=60_000)
        moment = int((time.time() + seconds) * 1000)

        assert (refused(output(timestamp=moment), limits) == "") is fits
        assert refused(output(timestamp=moment), TopicLimits(9999)) == ""

    def test_all_are_found_in_one_pass(self) -> None:
        outputs = [
            Output("annotated", Input(n), NOISE if n % 2 else b"", [], None, None)
            for n in range(1000)
        ]
        found = misfits(outputs, {"annotated": TopicLimits(1000)}, SETTINGS)

        assert [offset for _, _, offset in found] == list(range(1, 1000, 2))

    def test_of_a_topic_that_is_not_known_nothing_is(self) -> None:
        assert misfits([output(NOISE)], {}, SETTINGS) == {}


class TestReading:
    def test_settings_of_topics(self) -> None:
        config = {
            "max.message.bytes": {"value": "1000"},
            "cleanup.policy": {"value": "compact,delete"},
            "message.timestamp.after.max.ms": {"value": "60"},
        }
        assert TopicLimits.of(config) == TopicLimits(1000, compacted=True, after_ms=60)
        stamped = config | {"message.timestamp.type": {"value": "LogAppendTime"}}
        assert TopicLimits.of(stamped) == TopicLimits(1000, compacted=True)

    @pytest.mark.parametrize("error", [KafkaError("not authorized"), ValueError("x")])
    def test_who_may_not_ask_goes_without(
        self,
        error: Exception,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def refuse(*_: object, **__: object) -> object:
            raise error

        caplog.set_level("INFO")
        monkeypatch.setattr(module, "open_admin", refuse)

        assert read_limits(SETTINGS, ["annotated"]) == {}
        assert "smaller batches find it out" in caplog.text
