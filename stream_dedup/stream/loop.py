"""The loop of one worker, from poll to commit. Pure: what it touches is handed to it.

One turn of ``Loop.step``:

1. *Poll* up to ``batch_documents`` records. None: nothing else happens.
2. *Decode* each. One that cannot be decoded becomes a dead letter and holds up nobody.
3. *Decide* the documents, as a batch; a tombstone cuts it, and the documents that it names are
   forgotten between those before and those after it. While the index is out of reach the same
   part is decided again: nothing was published, and a document that comes again gets the same
   answer.
4. *Annotate*: each decision goes into the bytes that it answers.
5. *Publish* annotations, dead letters and input offsets in one transaction. If that fails nothing
   of it is visible, the input goes back to the last commit, and the turn ends; the next begins
   with the same records, or with fewer where the broker refused something and it is not known
   what. A record that the broker refuses for good is remembered, and becomes a dead letter when it
   comes again.
6. *Count*, only what is visible now, and tell the observer, if there is one.

The loop ends when it is asked to, between turns, or with a ``ServiceError`` when the index or
Kafka stays away longer than ``GIVE_UP_SECONDS``: then a restart is more likely to help.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from stream_dedup import metrics
from stream_dedup.errors import RefusedCallError, ServiceError
from stream_dedup.outage import Outage
from stream_dedup.settings import Settings
from stream_dedup.stream.answers import (
    annotated,
    dead_letter,
    fallback_id,
    member,
    source_of,
    tombstone,
)
from stream_dedup.stream.counting import count_published
from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.decoding import Decoder, ids_of_key
from stream_dedup.stream.lag import LagReport
from stream_dedup.stream.patience import Clock, Patience
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.refusals import Refusals
from stream_dedup.stream.tombstones import Tombstone, cut
from stream_dedup.stream.transport import (
    Output,
    PublishError,
    Record,
    Transport,
)
from stream_dedup.types import Decision, Document, DocumentId, Status

log = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Decides(Protocol):
    """What the loop needs of a ``Deduplicator``."""

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Decide a batch, in order."""

    def forget(self, ids: Sequence[DocumentId]) -> Sequence[int]:
        """Forget the originals that have these ids."""

    def settle(self) -> None:
        """Do what waits for decisions to be published."""

    def discard(self) -> None:
        """Drop what waits for decisions that were not published."""


class Observer(Protocol):
    """Is told what became of each batch, and must be quick about it; a shadow is one."""

    def published(
        self,
        documents: Sequence[Document],
        decisions: Sequence[Decision],
        tombstones: Sequence[Tombstone],
    ) -> None:
        """These documents were published with these decisions, and will not come again."""

    def unsettled(self, documents: Sequence[Document], tombstones: Sequence[Tombstone]) -> None:
        """Whether these were published is not known; if they were not, they will come again."""


class _Batch(NamedTuple):
    """Records of one poll, sorted into documents, tombstones and poison."""

    records: list[Record]
    documents: list[Document]
    tombstone_records: list[Record]
    tombstones: list[Tombstone]
    poison: list[tuple[Record, Poison]]


class Loop:
    """Consume, decide, publish.

    Args:
        settings: topics, fields and limits.
        transport: where records come from and answers go.
        deduplicator: decides.
        clock: the time.
        stopping: tells whether to end; asked between turns and while waiting.
        beat: called at each sign of progress.
        observer: told of each batch after it was published, or not.
    """

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        deduplicator: Decides,
        clock: Clock,
        *,
        stopping: Callable[[], bool] = lambda: False,
        beat: Callable[[], None] = lambda: None,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer
        self._settings = settings
        self._transport = transport
        self._deduplicator = deduplicator
        self._clock = clock
        self._stopping = stopping
        self._beat = beat
        self._decoder = Decoder(settings)
        for status in Status:  # a series that is there from the beginning can be alerted on
            metrics.documents_total.labels(str(status))
        for reason in Reason:
            metrics.dead_letters_total.labels(str(reason))
        self._refusals = Refusals(settings.dead_letter_topic)
        self._failures = Patience(clock)
        self._outage = Outage(log, "the index", clock)
        self._lag = LagReport(transport, clock)

    def run(self) -> None:
        """Turn until asked to stop.

        Raises:
            ServiceError: the index or Kafka stays away.
        """
        while not self._stopping():
            self.step()
            self._beat()

    def step(self) -> int:
        """Do one turn; return the number of records that were published.

        Raises:
            ServiceError: the index or Kafka stays away.
        """
        began = self._clock.monotonic()
        records = self._transport.poll()
        if not records:
            self._lag.read()
            return 0
        polled = self._spent("poll", began)
        batch = self._decode(records)
        decoded = self._spent("decode", polled)
        decisions = self._decide(batch)
        if decisions is None:
            return 0
        decided = self._spent("decide", decoded)
        outputs, published, reasons = self._outputs(batch, decisions)
        annotated = self._spent("annotate", decided)
        self._beat()
        if not self._publish(outputs):
            if self._observer is not None:
                self._observer.unsettled(batch.documents, batch.tombstones)
            return 0
        self._spent("publish", annotated)
        count_published(
            records,
            published,
            reasons,
            tombstones=len(batch.tombstones),
            seconds=decided - decoded,
            now=self._clock.time(),
        )
        if self._observer is not None:
            self._observer.published(batch.documents, decisions, batch.tombstones)
        self._lag.read()
        return len(records)

    def _decode(self, records: Sequence[Record]) -> _Batch:
        batch = _Batch([], [], [], [], [])
        decode, check_refused = self._decoder.decode, self._refusals.check
        for record in records:
            source = source_of(record)
            try:
                check_refused(record)
                if isinstance(record.headers, Damaged):
                    raise record.headers.poison()
                if record.value is None:
                    ids = ids_of_key(record.key)
                    batch.tombstones.append(Tombstone(len(batch.documents), ids))
                    batch.tombstone_records.append(record)
                    continue
                document = decode(
                    record.value,
                    fallback_id=fallback_id(record.key, source),
                    source=source,
                    fallback_time=record.timestamp / 1000 if record.timestamp >= 0 else None,
                )
            except Poison as poison:
                batch.poison.append((record, poison.alone()))
            else:
                batch.records.append(record)
                batch.documents.append(document)
        return batch

    def _decide(self, batch: _Batch) -> list[Decision] | None:
        """Decide the documents and forget what tombstones name; None when asked to stop."""
        decisions: list[Decision] = []
        for part, ids in cut(len(batch.documents), batch.tombstones):
            decided = self._patiently(self._deduplicator.decide, batch.documents[part])
            if decided is None or self._patiently(self._deduplicator.forget, ids) is None:
                return None
            decisions += decided
        return decisions

    def _patiently(
        self, act: Callable[[Sequence[_Item]], Sequence[_Result]], items: Sequence[_Item]
    ) -> Sequence[_Result] | None:
        """Do it again and again while the index is away; None when asked to stop meanwhile."""
        patience = Patience(self._clock)
        while items:
            try:
                done = act(items)
            except ServiceError as error:
                metrics.index_retries_total.inc()
                self._outage.failed(error)
                if not isinstance(error, RefusedCallError):  # that may be the batch's doing
                    self._transport.unmark()
                patience.wait(error)
            else:
                self._outage.ended()
                return done
            if self._stopping():
                return None
            self._beat()
        return []

    def _outputs(
        self, batch: _Batch, decisions: Sequence[Decision]
    ) -> tuple[list[Output], list[Decision], Counter[str]]:
        """Write down every answer.

        Returns:
            The answers, the decisions that are among them, the number of dead letters by reason.
        """
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        decided_at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        topic = self._settings.output_topic
        outputs, told = [], []
        poison = list(batch.poison)
        for record, document, decision in zip(
            batch.records, batch.documents, decisions, strict=True
        ):
            dated = msgspec.structs.replace(decision, decided_at=decided_at)
            try:
                outputs.append(annotated(topic, record, document, dated))
            except Poison as late:
                poison.append((record, late.alone()))
                continue
            told.append(decision)
            if self._tells_group(decision):
                outputs.append(member(self._settings.members_topic, record, document, decision))
        if batch.tombstones:
            outputs += [tombstone(topic, record) for record in batch.tombstone_records]
            # What was said of a key before must not come after it.
            outputs.sort(key=lambda output: (output.record.partition, output.record.offset))
        outputs += [dead_letter(self._settings.dead_letter_topic, *item) for item in poison]
        return outputs, told, Counter(str(item.reason) for _, item in poison)

    def _tells_group(self, decision: Decision) -> bool:
        """Whether a document's group is told of it."""
        if self._settings.groups_topic is None:
            return False
        return decision.status is not Status.ORIGINAL or self._settings.members_of == "all"

    def _publish(self, outputs: Sequence[Output]) -> bool:
        try:
            self._transport.publish(outputs)
        except PublishError as error:
            metrics.transaction_aborts_total.inc()
            self._deduplicator.discard()
            if error.refused is None:
                self._failures.wait(error)
            else:  # there is nothing to wait for: fewer records come next, or dead letters go out
                self._refusals.note(error)
            return False
        self._failures.reset()
        self._refusals.clear()
        self._settle()
        return True

    def _settle(self) -> None:
        try:
            self._deduplicator.settle()
        except ServiceError as error:  # what was replaced stays until the next batch is published
            self._outage.failed(error)

    def _spent(self, stage: str, since: float) -> float:
        now = self._clock.monotonic()
        metrics.stage_seconds[stage].inc(now - since)
        return now
