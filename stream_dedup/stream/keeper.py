"""The states of duplicate groups: folded from members, and brought back when Redis lost them.

A state names the last offset that it was folded from, and is put only in the place of the one that
was read. So members that come again, or a process that was given up for dead, change nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from stream_dedup import metrics
from stream_dedup.groups import Group, Limits, Member, decode_group, encode
from stream_dedup.index.group_store import Held, Swap
from stream_dedup.settings import Settings
from stream_dedup.stream.answers import source_of
from stream_dedup.stream.compacted import read_all
from stream_dedup.stream.patience import Clock
from stream_dedup.stream.transport import Record

log = logging.getLogger(__name__)


class States(Protocol):
    """What is needed of a ``GroupStore``."""

    def enter(self) -> bool:
        """Return whether all states are there, as far as is known."""

    def begin(self) -> None:
        """Begin to put states back."""

    def complete(self) -> None:
        """Say that all states are there, unless some were lost since that was begun."""

    def read(self, ids: Sequence[str], *, complete: bool = True) -> list[Held]:
        """Return the states of some groups."""

    def swap(self, swaps: Sequence[Swap], *, complete: bool = True) -> dict[int, Held]:
        """Put states in the place of those expected; return what stands where it is another."""


class Keeper:
    """Keeps the states of groups up to date, and brings them back when they are lost.

    Args:
        settings: what a group keeps, and for how long.
        states: where they are kept.
        published: reads what was published of them, in order for each group.
        clock: the time.
    """

    def __init__(
        self,
        settings: Settings,
        states: States,
        published: Callable[[], Iterable[Sequence[Record]]],
        clock: Clock,
    ) -> None:
        self._limits = Limits(settings.group_members, settings.group_sources)
        self._ttl = settings.group_ttl
        self._states = states
        self._published = published
        self._clock = clock

    def open(self) -> None:
        """Make sure that all states are there."""
        if not self._states.enter():
            self.restore()

    def fold(self, members: Sequence[tuple[Record, Member]]) -> dict[str, bytes]:
        """Fold members in; return the state of every group touched, by duplicate id.

        Raises:
            GroupsLostError: the states must be restored first.
            ServiceError: Redis is out of reach; some states may have been put, which is no harm.
        """
        touched = defaultdict(list)
        for record, member in members:
            touched[member.duplicate_id].append((record, member))
        folded: dict[str, bytes] = {}
        standing = dict(zip(touched, self._states.read(list(touched)), strict=True))
        while standing:
            swaps = []
            for name, held in standing.items():
                state = self._fold_group(held, touched[name])
                folded[name] = state.value
                # Even one that has not changed, when members have come again: it is not known
                # whether the replicas have it.
                swaps.append(Swap(name, held.revision, state, self._ttl))
            refused = self._states.swap(swaps)
            standing = {swaps[row].duplicate_id: held for row, held in refused.items()}
        return folded

    def restore(self) -> int:
        """Put back every published state that is missing, or older; return how many were.

        May be done at any time, and by several processes at once.

        Raises:
            GroupsLostError: Redis has lost them again meanwhile.
            ServiceError: Redis or Kafka is out of reach.
        """
        self._states.begin()
        restored = 0
        for records in self._published():
            restored += self._put_back(dict(self._readable(records)))
        self._states.complete()
        metrics.groups_restored_total.inc(restored)
        log.info("restored the states of %(groups)d groups", {"groups": restored})
        return restored

    def _fold_group(self, held: Held, members: Iterable[tuple[Record, Member]]) -> Held:
        group = decode_group(held.value) if held.value else None
        for record, member in members:
            if group is None:
                group = Group.begin(member)
            group.apply(member, record.partition, record.offset, self._limits)
        if group is None or group.revision == held.revision:
            return held
        return Held(group.revision, encode(group))

    def _readable(self, records: Iterable[Record]) -> Iterator[tuple[str, Swap]]:
        """Return the published states that have not had their time; of one group, all in order."""
        now = self._clock.time()
        for record in records:
            if record.value is None:
                continue
            ttl = None if self._ttl is None else record.timestamp / 1000 + self._ttl - now
            if ttl is not None and ttl <= 0:
                continue
            try:
                group = decode_group(record.value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._pass_over(record)
                continue
            held = Held(group.revision, record.value)
            yield group.duplicate_id, Swap(group.duplicate_id, 0, held, ttl)

    @staticmethod
    def _pass_over(record: Record) -> None:
        """Say that a message is no state of a group: what strangers write must not stop ours."""
        metrics.foreign_states_total.inc()
        fields = {"source": source_of(record), "reason": "not of the schema group.v1"}
        log.warning("%(source)s of groups_topic is passed over: %(reason)s", fields)

    def _put_back(self, published: Mapping[str, Swap]) -> int:
        if not published:
            return 0
        names, restored = list(published), 0
        standing = dict(zip(names, self._states.read(names, complete=False), strict=True))
        while standing:
            swaps = [
                published[name]._replace(expected=held.revision)
                for name, held in standing.items()
                if held.revision < published[name].held.revision
            ]
            refused = self._states.swap(swaps, complete=False) if swaps else {}
            restored += len(swaps) - len(refused)
            standing = {swaps[row].duplicate_id: held for row, held in refused.items()}
        return restored


def keeper_of(
    settings: Settings, states: States, clock: Clock, beat: Callable[[], None] = lambda: None
) -> Keeper:
    """Return what keeps the states of groups, with the settings of ``settings_of_groups``."""
    published = partial(read_all, settings, settings.output_topic, beat)
    return Keeper(settings, states, published, clock)
