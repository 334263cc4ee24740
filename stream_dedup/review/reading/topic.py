"""Reads the annotated topic, and goes on reading it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple, cast

from stream_dedup.review.reading.annotated import AnnotatedDecoder, PassedOver, Place
from stream_dedup.review.reading.source import Part
from stream_dedup.review.seen import Seen
from stream_dedup.settings import Settings
from stream_dedup.stream.answers import fallback_id, source_of
from stream_dedup.stream.decoding import ids_of_key
from stream_dedup.stream.headers import HEADER_SOURCE
from stream_dedup.stream.poison import Poison
from stream_dedup.stream.topic import Offsets, TopicReader
from stream_dedup.stream.transport import Record
from stream_dedup.types import DocumentId

log = logging.getLogger(__name__)

#: Records that go into the window together.
_TOGETHER = 2000
#: Seconds between two looks at a topic that has been read.
_LOOK = 0.5
#: Seconds after which the topic is opened anew: it may have more partitions.
_AGAIN = 300.0

#: Fact of a window: where reading goes on.
OFFSETS = "offsets"


class _Read(NamedTuple):
    """What a record of the topic tells.

    Attributes:
        moment: when it came about, milliseconds since the epoch.
        partition: where it stands.
        next_offset: the offset behind it.
        seen: the document, or None.
        passed_over: why it is none that is shown; empty if it is.
        forgotten: ids that it has forgotten.
    """

    moment: int
    partition: int
    next_offset: int
    seen: Seen | None = None
    passed_over: str = ""
    forgotten: tuple[DocumentId, ...] = ()


class Topic:
    """The annotated topic, read outside of any group; committed records only.

    Args:
        settings: brokers and topic.
        since: milliseconds since the epoch of the first records to read; None for as many of the
            latest as the window holds.
    """

    def __init__(self, settings: Settings, since: int | None = None) -> None:
        self._settings = settings
        self._since = since
        self._offsets: Offsets | None = None
        self._decoder = AnnotatedDecoder(settings)

    @property
    def name(self) -> str:
        """The topic."""
        return f"topic {self._settings.output_topic}"

    @property
    def identity(self) -> str:
        """The topic; brokers have many addresses."""
        return self.name

    def begin(self, facts: Mapping[str, object]) -> bool:
        """Go on where the window ends, if it holds something."""
        if OFFSETS in facts:
            stored = cast("dict[str, int]", facts[OFFSETS])
            self._offsets = {int(number): offset for number, offset in stored.items()}
        return self._offsets is not None

    def read(self) -> Iterator[Part]:
        """Read without an end.

        Yields:
            Parts; one without anything now and then, when there is nothing.

        Raises:
            ServiceError: the brokers are out of reach, or there is no such topic.
        """
        while True:
            with TopicReader(self._settings, self._settings.output_topic, {}) as reader:
                self._offsets = self._places(reader)
                reader.seek(self._offsets)
                until = time.monotonic() + _AGAIN
                while time.monotonic() < until:
                    yield from self._to_end(reader, self._offsets)

    def _to_end(self, reader: TopicReader, offsets: Offsets) -> Iterator[Part]:
        ends = reader.ends()
        records = reader.read(ends, self._read)
        while some := list(islice(records, _TOGETHER)):
            yield self._part(some, offsets)
        time.sleep(_LOOK)
        yield Part([], Counter(), [], caught_up=True)

    def _places(self, reader: TopicReader) -> Offsets:
        """Return where to begin, or to go on, in each partition."""
        begins, ends = reader.begins(), reader.ends()
        if self._offsets is None:
            places = (
                self._latest(begins, ends) if self._since is None else reader.since(self._since)
            )
            return {number: max(begins[number], place) for number, place in places.items()}
        places = {}
        for number, end in ends.items():
            place = self._offsets.get(number, 0)
            if place > end:  # somebody has made the topic anew
                log.warning(
                    "partition %(number)d of %(topic)s is shorter than it was: reading all of it",
                    {"number": number, "topic": self._settings.output_topic},
                )
                place = 0
            places[number] = max(begins[number], place)
        return places

    def _latest(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Take the same share of each partition, so that all together fill the window."""
        counts = {number: ends[number] - begins[number] for number in ends}
        share = min(1.0, self._settings.review_window / max(1, sum(counts.values())))
        return {number: ends[number] - int(count * share) for number, count in counts.items()}

    def _part(self, records: list[_Read], offsets: Offsets) -> Part:
        part = Part([], Counter(), [])
        for one in records:
            offsets[one.partition] = one.next_offset
            if one.seen is not None:
                part.seen.append(one.seen)
            elif one.passed_over:
                part.passed_over[one.passed_over] += 1
            part.forgotten.extend((len(part.seen), identity) for identity in one.forgotten)
        stored = {str(number): offset for number, offset in offsets.items()}
        return part._replace(facts={OFFSETS: stored})

    def _read(self, record: Record) -> _Read:
        stamp = max(record.timestamp, 0)
        read = _Read(stamp, record.partition, record.offset + 1)
        if record.value is None:
            try:
                return read._replace(forgotten=tuple(ids_of_key(record.key)))
            except Poison as poison:
                return read._replace(passed_over=poison.reason.value)
        source = (dict(record.headers).get(HEADER_SOURCE) or b"").decode("utf-8", "replace")
        place = Place(source_of(record), fallback_id(record.key, source), record.timestamp)
        try:
            seen = self._decoder.decode(record.value, place)
        except PassedOver as passed:
            if passed.forgotten is not None:
                return read._replace(forgotten=(passed.forgotten,))
            return read._replace(passed_over=passed.reason)
        return read._replace(moment=seen.at, seen=seen)
