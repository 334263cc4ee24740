"""Members of duplicate groups to states of groups: the loop of ``stream-dedup groups``.

One turn of ``GroupLoop.step``:

1. *Poll* members. One that cannot be read becomes a dead letter.
2. *Fold* them into the states in Redis: read, fold, swap. A state names the last offset that it
   was folded from, and is put only in the place of the one that was read, so a batch that comes
   again, or a process that was given up for dead, changes nothing.
3. *Publish* the state of every group touched, dead letters and offsets in one transaction. A member
   whose group's state the broker refuses is in the state in Redis, and a dead letter.
4. *Count*, only what is visible now.

When Redis has lost the states they are read back from the topic that they were published on, which
has, together with the members behind the committed offsets, all that there ever was.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from stream_dedup import metrics
from stream_dedup.errors import RefusedCallError, ServiceError
from stream_dedup.groups import Member, decode_member
from stream_dedup.index.group_store import GroupsLostError
from stream_dedup.outage import Outage
from stream_dedup.settings import Settings
from stream_dedup.stream.answers import dead_letter
from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.keeper import Keeper
from stream_dedup.stream.lag import LagReport
from stream_dedup.stream.patience import Clock, Patience
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.refusals import Refusals
from stream_dedup.stream.transport import Output, PublishError, Record, Transport
from stream_dedup.types import Status

log = logging.getLogger(__name__)


class GroupLoop:
    """Consume members, fold, publish states.

    Args:
        settings: topics; the input topic is that of the members, the output that of the groups.
        transport: where members come from and states go.
        keeper: folds.
        clock: the time.
        stopping: tells whether to end; asked between turns and while waiting.
        beat: called at each sign of progress.
    """

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        keeper: Keeper,
        clock: Clock,
        *,
        stopping: Callable[[], bool] = lambda: False,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._keeper = keeper
        self._clock = clock
        self._stopping = stopping
        self._beat = beat
        self._refusals = Refusals(settings.dead_letter_topic)
        self._failures = Patience(clock)
        self._outage = Outage(log, "Redis", clock)
        self._lag = LagReport(transport, clock)
        for status in Status:  # a series that is there from the beginning can be alerted on
            metrics.members_total.labels(str(status))

    def run(self) -> None:
        """Turn until asked to stop.

        Raises:
            ServiceError: Redis or Kafka stays away.
        """
        while not self._stopping():
            self.step()
            self._beat()

    def step(self) -> int:
        """Do one turn; return the number of members that were folded and published.

        Raises:
            ServiceError: Redis or Kafka stays away.
        """
        records = self._transport.poll()
        if not records:
            self._lag.read()
            return 0
        members, poison = _decode(records, self._refusals)
        folded = self._fold(members)
        if folded is None:
            return 0
        last = {member.duplicate_id: record for record, member in members}
        outputs = [self._state(last[name], name, value) for name, value in folded.items()]
        outputs += [dead_letter(self._settings.dead_letter_topic, *item) for item in poison]
        if not self._publish(outputs):
            return 0
        self._count([member for _, member in members], len(folded), poison)
        self._lag.read()
        return len(members)

    def _fold(self, members: Sequence[tuple[Record, Member]]) -> dict[str, bytes] | None:
        """Fold, again and again while Redis is away; None when asked to stop meanwhile."""
        patience = Patience(self._clock)
        while True:
            try:
                folded = self._keeper.fold(members) if members else {}
            except GroupsLostError as error:
                log.warning("%(cause)s", {"cause": str(error)})
                self._transport.unmark()  # what comes of that is not the batch's doing
                self._restore(patience)
            except ServiceError as error:
                self._outage.failed(error)
                if not isinstance(error, RefusedCallError):  # that may be the batch's doing
                    self._transport.unmark()
                patience.wait(error)
            else:
                self._outage.ended()
                return folded
            if self._stopping():
                return None
            self._beat()

    def _restore(self, patience: Patience) -> None:
        try:
            self._keeper.restore()
        except ServiceError as error:
            self._outage.failed(error)
            patience.wait(error)

    def _state(self, record: Record, name: str, value: bytes) -> Output:
        topic = self._settings.output_topic
        return Output(topic, record, value, [], name.encode(), None, by_key=True)

    def _publish(self, outputs: Sequence[Output]) -> bool:
        try:
            self._transport.publish(outputs)
        except PublishError as error:
            metrics.transaction_aborts_total.inc()
            if error.refused is None:
                self._failures.wait(error)
            else:
                self._refusals.note(error)
            return False
        self._failures.reset()
        self._refusals.clear()
        return True

    def _count(
        self, members: Sequence[Member], groups: int, poison: Sequence[tuple[Record, Poison]]
    ) -> None:
        for status, count in Counter(str(member.status) for member in members).items():
            metrics.members_total.labels(status).inc(count)
        for _, item in poison:
            metrics.dead_letters_total.labels(str(item.reason)).inc()
        metrics.groups_published_total.inc(groups)
        metrics.last_publish_timestamp_seconds.set(self._clock.time())


def _decode(
    records: Sequence[Record], refusals: Refusals
) -> tuple[list[tuple[Record, Member]], list[tuple[Record, Poison]]]:
    members, poison = [], []
    for record in records:
        try:
            refusals.check(record)
        except Poison as refused:
            poison.append((record, refused.alone()))
            continue
        if isinstance(record.headers, Damaged):
            poison.append((record, record.headers.poison()))
            continue
        if record.value is None:
            poison.append((record, Poison(Reason.TOMBSTONE, "The message has no value.")))
            continue
        try:
            members.append((record, decode_member(record.value)))
        except msgspec.ValidationError:
            detail = "The message is not one of the schema member.v1."
            poison.append((record, Poison(Reason.WRONG_TYPE, detail)))
        except RecursionError:
            poison.append((record, Poison(Reason.TOO_DEEP, "The message is nested too deeply.")))
        except (msgspec.DecodeError, UnicodeDecodeError):
            poison.append((record, Poison(Reason.NOT_JSON, "The message is not JSON.")))
    return members, poison


def settings_of_groups(settings: Settings) -> Settings:
    """Return the settings with the topics and the consumer group of ``stream-dedup groups``."""
    topics = {"input_topic": settings.members_topic, "output_topic": settings.groups_topic}
    return settings.model_copy(update=topics | {"group": f"{settings.group}.groups"})
