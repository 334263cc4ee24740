"""From an index that is being rebuilt to the workers that go on with it, without a gap.

Workers of an old configuration publish what the new index must hold before its own workers begin.
All of it is there when three things have come about, in this order:

1. The workers' group has no member any more, so none of its transactions can be begun with effect.
2. The end of the annotated topic is read, open transactions included.
3. The rebuild has come to that end. It reads committed records only, so a transaction that was
   still open has been committed and read by then, or aborted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from stream_dedup.errors import ServiceError
from stream_dedup.index.progress import Progress, State
from stream_dedup.index.rebuilding import Rebuilding
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.stream.rebuild import Rebuild
from stream_dedup.stream.told import Reading
from stream_dedup.stream.topic import Offsets, TopicReader

log = logging.getLogger(__name__)

#: Seconds between two looks at a rebuild, and between two lines about it.
_LOOK = 0.5
_TELL = 30.0

#: States of a group without a member; the second is that of a group that never was.
_EMPTY = ("Empty", "Dead")


def source_of(topic: str) -> str:
    """Name a topic as the source of a rebuild."""
    return f"topic {topic}"


def take_topic(
    settings: Settings,
    topic: str,
    target: Rebuilding,
    job: Rebuild,
    reading: Reading,
    *,
    follow: bool = False,
    caught_up: Callable[[], None] = lambda: None,
) -> None:
    """Take in a topic from where the target has come to.

    Args:
        settings: brokers and group.
        topic: its name.
        target: the index.
        job: takes the messages into it.
        reading: reads them.
        follow: go on until the workers have ended and all that they published is taken in; else
            to the end as it is now.
        caught_up: called once, when all that there was has been taken in.

    Raises:
        ServiceError: Kafka or Redis is out of reach; or there is no such group to follow.
    """
    target.start(source_of(topic))
    start = {number: position.offset for number, position in target.positions.items()}
    with TopicReader(settings, topic, start) as reader:
        if follow and reader.group_state() == _EMPTY[1]:
            msg = (
                f"Kafka knows no consumer group {settings.group}, so there is nobody to follow. "
                "Give the workers' --group, or leave out --follow."
            )
            raise ServiceError(msg)
        while True:
            ended = follow and reader.group_state() in _EMPTY
            ends = _published(reader, settings, topic) if ended else reader.ends()
            job.take(reader.read(ends, reading.of_record))
            target.save(ends)
            if ended or not follow:
                return
            caught_up()
            caught_up = _nothing
            time.sleep(_LOOK)


def await_rebuild(
    settings: Settings,
    index: RedisIndex,
    *,
    beat: Callable[[], None] = lambda: None,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for the rebuild of an index to end, if there is one, before a worker begins on it.

    Raises:
        ServiceError: the index lacks something that was published since it was rebuilt.
    """
    progress = Progress(index.store)
    told = float("-inf")
    state, source = progress.read()
    while state is State.RUNNING and not stopping():
        if time.monotonic() - told > _TELL:
            told = time.monotonic()
            log.info(
                "the index is being rebuilt from %(source)s; waiting for that to end",
                {"source": source},
            )
        beat()
        time.sleep(_LOOK)
        state, source = progress.read()
    if state is not State.DONE:
        return
    for topic in (settings.input_topic, settings.output_topic):
        if source == source_of(topic):
            _refuse_behind(settings, topic, progress)
    progress.clear()


def _refuse_behind(settings: Settings, topic: str, progress: Progress) -> None:
    known = progress.positions()
    with TopicReader(settings, topic, {}) as reader:
        wanted = _published(reader, settings, topic)
    behind = 0
    for number, end in wanted.items():
        behind += max(0, end - known[number].offset) if number in known else end
    if behind:
        msg = (
            f"The topic {topic} has gone on by {behind} records since the index "
            f"{settings.redis_namespace!r} was rebuilt from it. Stop the workers that write it, "
            "and make the rebuild again: it goes on where it was (or use --follow)."
        )
        raise ServiceError(msg)


def _published(reader: TopicReader, settings: Settings, topic: str) -> Offsets:
    """Return how far one has to read a topic to know all that the group has published by now."""
    if topic == settings.input_topic:
        return reader.read_by_group()
    return reader.ends(committed=False)


def _nothing() -> None:
    """Do nothing."""
