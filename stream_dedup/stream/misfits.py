"""Which messages a topic surely refuses, by its settings: asked when it has refused something."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, Self

from kafka.admin import ConfigResource  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.record.default_records import (  # type: ignore[import-untyped]
    DefaultRecordBatchBuilder,
)

from stream_dedup.errors import StreamDedupError
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import open_admin
from stream_dedup.stream.kafka_limits import describe
from stream_dedup.stream.transport import Output, Position

log = logging.getLogger(__name__)

#: Time for an answer of the brokers; without one it is found out by smaller batches.
_TIMEOUT_MS = 5000
#: Bytes of a batch beside what its only record holds, at most, and of each header.
_FRONT_BYTES, _HEADER_BYTES = 120, 10
#: The other client's compressors are not those used here: what they make smaller than this, and is
#: above a limit by less than that, is tried.
_PACKED, _DOUBT = 0.97, 1.1
#: The same for the clocks of the brokers, ms.
_DOUBT_MS = 60_000
_FOREVER = 2**63 - 1
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class TopicLimits(NamedTuple):
    """What a topic takes.

    Attributes:
        batch_bytes: size of a batch as it is sent.
        compacted: whether a message must have a key.
        before_ms: how old a message's timestamp may be.
        after_ms: how far ahead it may be.
    """

    batch_bytes: int
    compacted: bool = False
    before_ms: int = _FOREVER
    after_ms: int = _FOREVER

    @classmethod
    def of(cls, config: Mapping[str, Mapping[str, Any]]) -> Self:
        """Read a topic's settings, as brokers give them."""

        def value(name: str, default: object) -> str:
            return str(config.get(name, {}).get("value", default))

        own_time = value("message.timestamp.type", "CreateTime") != "LogAppendTime"
        return cls(
            int(value("max.message.bytes", _FOREVER)),
            "compact" in value("cleanup.policy", ""),
            int(value("message.timestamp.before.max.ms", _FOREVER)) if own_time else _FOREVER,
            int(value("message.timestamp.after.max.ms", _FOREVER)) if own_time else _FOREVER,
        )


def read_limits(settings: Settings, topics: Collection[str]) -> dict[str, TopicLimits]:
    """Ask the brokers what topics take; nothing of those that this program may not ask about."""
    asked = [ConfigResource("TOPIC", topic) for topic in topics]
    options = {"bootstrap_timeout_ms": _TIMEOUT_MS, "request_timeout_ms": _TIMEOUT_MS}
    try:
        with closing(open_admin(settings, **options)) as admin:
            found = admin.describe_configs(asked, config_filter="all").get("topic", {})
        return {topic: TopicLimits.of(config) for topic, config in found.items() if config}
    except (KafkaError, StreamDedupError, ValueError) as error:
        log.info(
            "what topics take cannot be asked, so smaller batches find it out: %(cause)s",
            {"cause": describe(error)},
        )
        return {}


def misfits(
    outputs: Sequence[Output], limits: Mapping[str, TopicLimits], settings: Settings
) -> dict[Position, str]:
    """Return the input positions of what topics surely refuse, and why."""
    now = time.time() * 1000
    found = {}
    for output in outputs:
        known = limits.get(output.topic)
        if known is not None and (why := _obstacle(output, known, settings, now)):
            record = output.record
            found[record.topic, record.partition, record.offset] = f"{output.topic} takes {why}"
    return found


def _obstacle(output: Output, limits: TopicLimits, settings: Settings, now: float) -> str:
    if limits.compacted and output.key is None:
        return "no message without a key, because it is compacted"
    moment = now if output.timestamp is None else output.timestamp
    if moment < now - limits.before_ms - _DOUBT_MS or moment > now + limits.after_ms + _DOUBT_MS:
        return "no message with a timestamp so far from now"
    if _plain_bytes(output) > limits.batch_bytes:
        size = _sent_bytes(output, settings.compression)
        exact = settings.transport == "kafka-python" or size > _PACKED * _plain_bytes(output)
        if size > limits.batch_bytes * (1 if exact else _DOUBT):
            return f"{limits.batch_bytes} bytes at most, and it has {size}"
    return ""


def _plain_bytes(output: Output) -> int:
    """Return what a batch with this message alone has at most, uncompressed."""
    headers = sum(4 * len(name) + len(value) + _HEADER_BYTES for name, value in output.headers)
    return _FRONT_BYTES + len(output.value or b"") + len(output.key or b"") + headers


def _sent_bytes(output: Output, compression: str) -> int:
    """Return what a batch with this message alone has as it is sent."""
    codec = _CODECS[compression]
    builder = DefaultRecordBatchBuilder(2, codec, True, 0, 0, 0, 1 << 62)  # noqa: FBT003
    builder.append(0, output.timestamp or 0, output.key, output.value, output.headers)
    return len(builder.build())
