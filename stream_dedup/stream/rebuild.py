"""Fills a new index with what the messages of the past tell, in order.

An original of the index's own configuration is registered at its annotation's word, and a duplicate
of it is left out. All else (other configurations, no annotation) is decided anew; nothing is
published. What was removed by a tombstone is removed here too.

A thread reads, decodes and fingerprints the next batches while one is written.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby, islice
from typing import NamedTuple

import msgspec
import numpy as np

from stream_dedup.deduplicator import Stages
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.rebuilding import Past, Rebuilding
from stream_dedup.index.revisions import Answers
from stream_dedup.stream.poison import Poison
from stream_dedup.stream.told import Message, Reading
from stream_dedup.types import Decision, Document, DocumentId, Status

#: Messages taken in together.
BATCH = 2_000
#: Batches made ready ahead of the index.
_WAITING = 3


class Rebuilt(msgspec.Struct, frozen=True):
    """What a rebuild took in.

    Attributes:
        messages: messages read.
        registered: originals registered at their annotation's word.
        known: documents that were registered already: they stand in the source more than once.
        left_out: duplicates of the same configuration.
        decided: documents decided anew.
        originals: of these, originals.
        kept: documents decided anew that stay in their duplicate group.
        merged: originals that became duplicates.
        split: duplicates that became originals.
        moved: duplicates that went to another group.
        forgotten: originals removed by tombstones.
        unreadable: messages that are no documents.
        seconds: time taken.
        messages_per_second: rate.
        configuration: version of the fingerprint configuration.
    """

    messages: int
    registered: int
    known: int
    left_out: int
    decided: int
    originals: int
    kept: int
    merged: int
    split: int
    moved: int
    forgotten: int
    unreadable: int
    seconds: float
    messages_per_second: int
    configuration: str


class _Register(NamedTuple):
    """Originals to be registered as they are."""

    batch: IndexBatch
    past: Past


class _Decide(NamedTuple):
    """Documents to be decided anew, with the messages that hold them."""

    batch: IndexBatch
    past: Past
    documents: list[Document]
    messages: list[Message]


class _Forget(NamedTuple):
    """Ids whose originals are to be removed."""

    ids: list[DocumentId]


_Step = _Register | _Decide | _Forget


class _Batch(NamedTuple):
    """What one batch of messages asks for, in order, and how far it brings the source."""

    steps: list[_Step]
    offsets: dict[int, int]


class Rebuild:
    """Takes messages into an index.

    Args:
        stages: fingerprints, and says what a claim's outcome means.
        target: the index.
        reading: turns messages into documents.
    """

    def __init__(self, stages: Stages, target: Rebuilding, reading: Reading) -> None:
        self._stages = stages
        self._target = target
        self._reading = reading
        self._began = time.perf_counter()
        self._counts: Counter[str] = Counter()

    def take(self, messages: Iterable[Message]) -> None:
        """Take in messages, in order.

        Raises:
            ServiceError: the source or the index is out of reach.
        """
        batches = self._batches(messages)
        waiting: deque[Future[_Batch | None]] = deque()
        thread = ThreadPoolExecutor(1)
        try:
            while True:
                while len(waiting) < _WAITING:
                    waiting.append(thread.submit(next, batches, None))
                batch = waiting.popleft().result()
                if batch is None:
                    return
                self._carry_out(batch)
        finally:
            thread.shutdown(cancel_futures=True)

    def summary(self) -> Rebuilt:
        """Say what has been taken in so far."""
        seconds = time.perf_counter() - self._began
        count = self._counts
        return Rebuilt(
            **{
                name: count[name]
                for name in Rebuilt.__struct_fields__
                if name not in {"seconds", "messages_per_second", "configuration"}
            },
            seconds=round(seconds, 3),
            messages_per_second=round(count["messages"] / max(seconds, 1e-9)),
            configuration=self._stages.configuration,
        )

    def _batches(self, messages: Iterable[Message]) -> Iterator[_Batch]:
        messages = iter(messages)
        while some := list(islice(messages, BATCH)):
            yield self._prepare(some)

    def _prepare(self, messages: Sequence[Message]) -> _Batch:
        self._counts["messages"] += len(messages)
        steps = []
        for kind, same in groupby(self._sorted(messages), key=lambda pair: pair[0]):
            steps.append(self._step(kind, [message for _, message in same]))
        # Files are read from their beginning again, and give the same claim ids then.
        offsets = {one.lane: one.next_offset for one in messages if one.next_offset}
        return _Batch(steps, offsets)

    def _sorted(self, messages: Iterable[Message]) -> Iterator[tuple[type[_Step], Message]]:
        """Say what is to be done with each message, but for those that are left out."""
        for message in messages:
            told = message.told
            if message.forgets:
                yield _Forget, message
            elif told is None or told.configuration != self._stages.configuration:
                yield _Decide, message
            elif told.status is Status.ORIGINAL:
                yield _Register, message
            else:
                self._counts["left_out"] += 1

    def _step(self, kind: type[_Step], messages: Sequence[Message]) -> _Step:
        if kind is _Forget:
            return _Forget([one for message in messages for one in message.forgets])
        documents, read = [], []
        for message in messages:
            try:
                documents.append(self._reading.document(message))
            except Poison:
                self._counts["unreadable"] += 1
            else:
                read.append(message)
        past = Past(
            np.array([message.moment for message in read], np.int64),
            np.array([message.lane for message in read], np.int64),
        )
        batch = self._stages.prepare(documents)
        if kind is _Register:
            return _Register(batch, past)
        return _Decide(batch, past, documents, read)

    def _carry_out(self, batch: _Batch) -> None:
        """Do what a batch asks for."""
        for step in batch.steps:
            match step:
                case _Register(originals, past):
                    registered = self._target.register(originals, past)
                    self._counts["registered"] += registered
                    filled = int(np.count_nonzero(~originals.prints.empty))
                    self._counts["known"] += filled - registered
                case _Decide():
                    self._decide(step)
                case _Forget(ids):
                    self._counts["forgotten"] += self._target.forget(ids)
        self._target.save(batch.offsets)

    def _decide(self, step: _Decide) -> None:
        if not step.documents:
            return
        attachments = self._target.claim(step.batch, step.past)
        digests = step.batch.prints.digests
        decisions = self._stages.decisions(step.documents, digests, Answers(attachments))
        self._counts["decided"] += len(decisions)
        for message, decision in zip(step.messages, decisions, strict=True):
            self._counts["originals"] += decision.status is Status.ORIGINAL
            if message.told is not None:
                self._counts[_change(message, decision)] += 1


def _change(message: Message, decision: Decision) -> str:
    """Name what became of a document's group."""
    told = message.told
    if told is None or told.duplicate_id == decision.duplicate_id:
        return "kept"
    if told.status is Status.ORIGINAL:
        return "merged"
    return "split" if decision.status is Status.ORIGINAL else "moved"
