"""Reads topics from their beginning to their end, committed records only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stream_dedup.generate import Truth
from stream_dedup.index.audit_decisions import Published
from stream_dedup.settings import Settings
from stream_dedup.stream.headers import HEADER_OFFSET, HEADER_PARTITION, HEADER_REASON
from stream_dedup.stream.headers import HEADER_SOURCE as SOURCE
from stream_dedup.types import Decision, Document
from tests.campaign.check import Answer, Place, Sent
from tests.campaign.load import LETTER
from tests.services.reading import messages


class _Made(msgspec.Struct):
    id: str
    truth: Truth


class _Annotated(msgspec.Struct):
    id: str
    text: str
    dedup: Decision


_made = msgspec.json.Decoder(_Made).decode
_annotated = msgspec.json.Decoder(_Annotated).decode


class Topics:
    """The topics of a campaign.

    Args:
        bootstrap: brokers.
        settings: which topics.
        partitions: of each.
    """

    def __init__(self, bootstrap: str, settings: Settings, partitions: int) -> None:
        self._bootstrap, self._settings, self._partitions = bootstrap, settings, partitions

    def sent(self) -> Iterator[Sent]:
        """Yield the records of the input."""
        for message in self._messages(self._settings.input_topic):
            place = (message.partition(), message.offset())
            letter = dict(message.headers() or ()).get(LETTER)
            if letter is not None:
                yield Sent(place, None, None, letter.decode())
            else:
                made = _made(message.value())
                yield Sent(place, made.id, made.truth.group)

    def answers(self) -> Iterator[Answer]:
        """Yield the records of the output."""
        for message in self._messages(self._settings.output_topic):
            value, headers = _annotated(message.value()), dict(message.headers())
            _, partition, offset = headers[SOURCE].decode().rsplit("/", 2)
            decided = value.dedup
            yield Answer(
                (int(partition), int(offset)),
                value.id,
                value.text,
                str(decided.status),
                decided.duplicate_id,
                str(decided.original_id),
            )

    def dead(self) -> Iterator[tuple[Place, str]]:
        """Yield the place and the reason of each dead letter."""
        for message in self._messages(self._settings.dead_letter_topic):
            headers = dict(message.headers())
            place = (int(headers[HEADER_PARTITION]), int(headers[HEADER_OFFSET]))
            yield place, headers[HEADER_REASON].decode()

    def published(self) -> Iterator[Published]:
        """Yield the records of the output as the audit of the index takes them."""
        for message in self._messages(self._settings.output_topic):
            value, source = _annotated(message.value()), dict(message.headers())[SOURCE].decode()
            yield Published(source, Document(value.id, value.text, source=source), value.dedup)

    def _messages(self, topic: str) -> Iterator[Any]:
        return messages(self._bootstrap, topic, self._partitions)
