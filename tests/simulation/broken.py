"""Workers that break a promise, each in one way that is easily written; the checks must tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.structs import (  # type: ignore[import-untyped]
    OffsetAndMetadata,
    TopicPartition,
)
from stream_dedup_workers.annotate import CountedDeduplicator

from stream_dedup.index import claims
from stream_dedup.index.claims import Fate, Sight
from stream_dedup.index.clock import HybridClock
from stream_dedup.index.driver import Driver
from stream_dedup.index.keys import ClaimIds
from stream_dedup.stream.attempts import Place
from stream_dedup.stream.kafka import KafkaTransport
from stream_dedup.stream.kafka_publish import Publishing
from stream_dedup.stream.loop import Loop
from stream_dedup.stream.transport import Output, Partition, Record
from stream_dedup.types import Decision, Document
from tests.simulation.producer import Producer
from tests.simulation.scheduler import CLOCK
from tests.simulation.simulation import Parts
from tests.simulation.world import LETTERS


def _offsets(places: Mapping[Partition, Place]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*one): OffsetAndMetadata(*place, -1) for one, place in places.items()}


class _OffsetsFirst(KafkaTransport):
    """Commits the offsets in a transaction of their own, before the output."""

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        self._producer.begin_transaction()
        self._producer.send_offsets_to_transaction(_offsets(places), self._membership)
        self._producer.commit_transaction()
        self._producer.begin_transaction()
        Publishing(self._producer, 1, self._beat).send_singly(outputs)
        self._producer.commit_transaction()


class _OutputFirst(KafkaTransport):
    """Commits the output in a transaction of its own, before the offsets."""

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        self._producer.begin_transaction()
        Publishing(self._producer, 1, self._beat).send_singly(outputs)
        self._producer.commit_transaction()
        self._producer.begin_transaction()
        self._producer.send_offsets_to_transaction(_offsets(places), self._membership)
        self._producer.commit_transaction()


class _Outside(KafkaTransport):
    """Sends the output through a producer without transactions."""

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        Publishing(Producer(), 1, self._beat).send_singly(outputs)
        super()._transact([], places)


class _LettersOutside(KafkaTransport):
    """Sends dead letters through a producer without transactions."""

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        letters = [output for output in outputs if output.topic == LETTERS]
        Publishing(Producer(), 1, self._beat).send_singly(letters)
        super()._transact([output for output in outputs if output.topic != LETTERS], places)


class _Reusing(KafkaTransport):
    """Goes on with the producer whose transaction failed, as long as that can be aborted."""

    def _recover(self, *, fenced: bool) -> None:
        if fenced:
            super()._recover(fenced=fenced)
            return
        try:
            self._producer.abort_transaction()
            self._rewind()
        except KafkaError:
            super()._recover(fenced=fenced)


class _Careless(KafkaTransport):
    """Does not look whether what it sent has arrived, and goes on with a producer that failed."""

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        self._producer.begin_transaction()
        publishing = Publishing(self._producer, 1, self._beat)
        for output in outputs:
            publishing._send(output)
        self._producer.flush()
        self._producer.send_offsets_to_transaction(_offsets(places), self._membership)
        self._producer.commit_transaction()


class _Unfenced(KafkaTransport):
    """Takes it for done when another producer has fenced this one."""

    def publish(self, outputs: Sequence[Output]) -> None:
        try:
            self._transact(outputs, self._attempts.places(self._offsets))
        except Exception as error:
            if not self._is_fenced(error):
                self._recover(fenced=False)
                raise self._unusable(error) from error
            self._drop_producer()
            self._open_producer()


class _TooFar(KafkaTransport):
    """Commits one offset too many."""

    def _take(self, limit: int) -> Sequence[Record]:
        records = super()._take(limit)
        self._offsets = {partition: offset + 1 for partition, offset in self._offsets.items()}
        return records


class _NotRewinding(KafkaTransport):
    """Goes on behind the batch whose transaction failed."""

    def _rewind(self) -> None:
        self._offsets = {}


class _RewindingEarly(KafkaTransport):
    """Reads the committed offsets before the last transaction has ended."""

    def _recover(self, *, fenced: bool) -> None:
        try:
            self._drop_producer()
            for partition in self._consumer.assignment():
                broker = self._consumer.cluster.broker
                self._consumer.seek(
                    partition, broker.committed(self._settings.group, partition) or 0
                )
            self._open_producer()
        except KafkaError:
            super()._recover(fenced=fenced)


class _LateMember(KafkaTransport):
    """Names the membership as it is when the batch is published, not as it was polled."""

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        self._membership = self._consumer.group_metadata()
        super()._transact(outputs, places)


class _Unmarked(KafkaTransport):
    """Leaves no trace of what it works on."""

    def _mark(self, places: Mapping[Partition, Place]) -> bool:
        return True


class _LettersLost(Loop):
    """Forgets what cannot be decoded."""

    def _decode(self, records: Sequence[Record]) -> Any:
        return super()._decode(records)._replace(poison=[])


class _TombstonesFirst(Loop):
    """Forgets what the tombstones of a batch name before it decides the batch."""

    def _decide(self, batch: Any) -> list[Decision] | None:
        for tombstone in batch.tombstones:
            self._deduplicator.forget(tombstone.ids)
        return super()._decide(batch._replace(tombstones=[]))


class _ChangingSource(CountedDeduplicator):
    """Names another source of a document each time."""

    _attempts = count()

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        attempt = next(self._attempts)
        changed = [
            msgspec.structs.replace(document, source=f"{document.source}#{attempt}")
            for document in documents
        ]
        return super().decide(changed)


def _forgetful(sight: Sight) -> bool:
    """Forget a pending claim: only one without a record matters."""
    return sight.fate is Fate.ABSENT


def _trusting(self: Driver, rows: Any, claims: Any) -> Any:
    """Take every commit for done, whatever fate stands."""
    return _COMMIT(self, rows, claims) | True


_COMMIT = Driver.commit
_SAW = "stream_dedup.index.store.RedisStore.saw_fence"
_MATTERS = "stream_dedup.index.claims._matters"


def _never_forcing(*arguments: Any) -> Any:
    """Insert only where nobody is, also the second time."""
    claim, tables, mode = arguments
    return _PROBE(claim, tables, min(mode, claims.Mode.IF_EMPTY))


_PROBE = claims.Probe


def _by_time_of_day(_self: HybridClock) -> float:
    """Take the clock of the machine for that of the index."""
    return CLOCK.time()


def _coarse(time: float) -> int:
    """Let ids of many seconds have one time, so that those of one number are often equal."""
    return max(0, int(time / 100) * 100_000 - 1_577_836_800_000)


def _same_number(ids: ClaimIds, _worker: int) -> None:
    """Mint with the number that all others have too."""
    ids._worker = 0


#: All workers mint the same ids, as two do that got one number.
SAME_IDS = (
    ("stream_dedup.index.keys.ClaimIds.milliseconds", staticmethod(_coarse)),
    ("stream_dedup.index.keys.ClaimIds.renumber", _same_number),
)


def _unaware(*_arguments: Any) -> None:
    """Take no notice."""


class Broken(NamedTuple):
    """A broken worker.

    Attributes:
        parts: what it is made of.
        breaks: how the check begins that catches it.
        seeds: number of seeds within which it is caught.
    """

    parts: Parts
    breaks: str = "messages"
    seeds: int = 100


BROKEN = {
    "commits offsets before output": Broken(Parts(_OffsetsFirst)),
    "commits output before offsets": Broken(Parts(_OutputFirst)),
    "produces outside the transaction": Broken(Parts(_Outside)),
    "produces dead letters outside the transaction": Broken(Parts(_LettersOutside)),
    "reuses a producer after an abort": Broken(Parts(_Reusing), seeds=1500),
    "does not look whether records arrived": Broken(Parts(_Careless)),
    "takes being fenced for success": Broken(Parts(_Unfenced), seeds=500),
    "commits one offset too many": Broken(Parts(_TooFar)),
    "does not go back after an abort": Broken(Parts(_NotRewinding)),
    "goes back before the transaction has ended": Broken(Parts(_RewindingEarly), seeds=2000),
    "names its membership too late": Broken(Parts(_LateMember), seeds=1000),
    "leaves no trace of what it works on": Broken(Parts(_Unmarked), "no end"),
    "gives a record up at the first death": Broken(
        Parts(patched=(("stream_dedup.stream.attempts.LIVES", 1),)), "guard", 1000
    ),
    "drops what cannot be decoded": Broken(Parts(loop=_LettersLost)),
    "forgets before it decides": Broken(Parts(loop=_TombstonesFirst), "tombstones", 1000),
    "changes the source of a document": Broken(Parts(deduplicator=_ChangingSource), "I2"),
    "forgets a pending claim": Broken(Parts(patched=((_MATTERS, _forgetful),)), "I1", 2000),
    "never forces its claim in": Broken(
        Parts(patched=(("stream_dedup.index.claims.Probe", _never_forcing),)), "I4"
    ),
    "goes by the time of day": Broken(
        Parts(patched=(("stream_dedup.index.clock.HybridClock.now", _by_time_of_day),)),
        "no end",
        1000,
    ),
    "sweeps up to the present": Broken(
        Parts(
            patched=(
                (_SAW, _unaware),
                ("tests.simulation.functions.ClaimIds.first_at", lambda time: 1 << 62),
            )
        ),
        "progress",
    ),
    "takes another's claim for its own": Broken(
        Parts(
            patched=(
                *SAME_IDS,
                ("tests.simulation.functions._fate_of", lambda value, _record: value[:1]),
            )
        ),
        "I",
    ),
    "commits a claim that is void": Broken(
        Parts(patched=(("stream_dedup.index.driver.Driver.commit", _trusting),)), "I", 2000
    ),
}
