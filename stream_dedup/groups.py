"""Duplicate groups: how large each is and who is in it, folded from one message for each member.

Pure. A group is the fold of its members in the order of the members topic, so two states of it are
never in conflict: the one with the larger ``revision`` has seen everything that the other has, and
more. What a group keeps does not grow with its size: the first and the latest members, and the most
frequent origins by Space-Saving (Metwally, Agrawal and El Abbadi, Efficient computation of frequent
and top-k elements in data streams, 2005, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from stream_dedup.types import Decision, Document, DocumentId, Status

#: What names of duplicate groups look like.
DUPLICATE_ID = re.compile("[0-9a-f]{24}")

#: Name of a duplicate group.
#: ``$`` would let a line break pass.
DuplicateId = Annotated[str, msgspec.Meta(pattern=f"^{DUPLICATE_ID.pattern}$", max_length=24)]

#: Characters that are kept of an origin, of which there may be any number in a field.
MAX_ORIGIN_CHARACTERS = 256


class Limits(NamedTuple):
    """What a group keeps, at most.

    Attributes:
        members: members listed from the first on, and as many from the latest back.
        sources: origins counted one by one.
    """

    members: int
    sources: int


class ListedMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document as a group lists it.

    Attributes:
        id: its own id.
        status: what it turned out to be.
        time: event time in seconds since the epoch.
        origin: what it comes from, cut to ``MAX_ORIGIN_CHARACTERS``.
        similarity: the measure that decided, 0 to 1.
        hamming_distance: differing fingerprint bits.
    """

    id: DocumentId
    status: Status
    time: float | None = None
    origin: str = ""
    similarity: float | None = None
    hamming_distance: int | None = None


class Member(ListedMember, frozen=True, kw_only=True, omit_defaults=True):
    """One document of one group: the value of a message on the members topic.

    Attributes:
        duplicate_id: name of the duplicate group; the key of the message.
        original_id: id of the document that the group began with.
    """

    duplicate_id: DuplicateId
    original_id: DocumentId

    @classmethod
    def of(cls, document: Document, decision: Decision) -> Member:
        """Say of a decided document which group it belongs to."""
        return cls(
            duplicate_id=decision.duplicate_id,
            original_id=decision.original_id,
            id=document.id,
            status=decision.status,
            time=document.time,
            origin=document.origin[:MAX_ORIGIN_CHARACTERS],
            similarity=decision.similarity,
            hamming_distance=decision.hamming_distance,
        )

    def listed(self) -> ListedMember:
        """Return the member as its group lists it."""
        return ListedMember(
            id=self.id,
            status=self.status,
            time=self.time,
            origin=self.origin,
            similarity=self.similarity,
            hamming_distance=self.hamming_distance,
        )


class Source(msgspec.Struct, omit_defaults=True):
    """An origin and how many members come from it.

    Attributes:
        origin: the origin.
        count: members that come from it, at most.
        over: by how much ``count`` may be too high; 0 while there are no more origins than places.
    """

    origin: str
    count: int
    over: int = 0


class Group(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The state of one duplicate group: the value of a message on the groups topic.

    Attributes:
        duplicate_id: its name, and the key of the message.
        original_id: id of the document that it began with.
        size: documents in it, the original included.
        exact_duplicates: of these, exact duplicates.
        near_duplicates: of these, near duplicates.
        first_seen: earliest event time of its members, in seconds since the epoch.
        last_seen: latest one.
        sources: the most frequent origins, most frequent first.
        other_sources: members from an origin that are in no count of ``sources`` for certain.
        first_members: members from the first on.
        latest_members: members after these, up to the latest, the oldest left out.
        revision: members that were folded into this state.
        applied: offset of the last of these for each partition of the members topic.
    """

    duplicate_id: DuplicateId
    original_id: DocumentId
    size: int
    exact_duplicates: int
    near_duplicates: int
    revision: Annotated[int, msgspec.Meta(ge=1, le=2**62)]
    first_seen: float | None = None
    last_seen: float | None = None
    sources: list[Source] = []
    other_sources: int = 0
    first_members: list[ListedMember] = []
    latest_members: list[ListedMember] = []
    applied: dict[str, int] = {}

    @classmethod
    def begin(cls, member: Member) -> Group:
        """Return the group of a member as it is before any: its original only."""
        return cls(
            duplicate_id=member.duplicate_id,
            original_id=member.original_id,
            size=1,
            exact_duplicates=0,
            near_duplicates=0,
            revision=0,
        )

    def apply(self, member: Member, partition: int, offset: int, limits: Limits) -> bool:
        """Fold a member of the members topic in, unless it is in already; return whether it was.

        Args:
            member: a member of this group.
            partition: where it stands in the members topic.
            offset: where in the partition. Those of one partition come in order, maybe repeatedly.
            limits: what to keep.
        """
        place = str(partition)
        if offset <= self.applied.get(place, -1):
            return False
        self.fold(member, limits)
        self.applied[place] = offset
        return True

    def fold(self, member: Member, limits: Limits) -> None:
        """Fold the next member in."""
        self.revision += 1
        # The original counts from the beginning on, whether it says so itself or not.
        self.size += member.status is not Status.ORIGINAL
        self.exact_duplicates += member.status is Status.EXACT_DUPLICATE
        self.near_duplicates += member.status is Status.NEAR_DUPLICATE
        time = member.time
        if time is not None:
            self.first_seen = time if self.first_seen is None else min(time, self.first_seen)
            self.last_seen = time if self.last_seen is None else max(time, self.last_seen)
        if member.origin:
            self._count(member.origin, limits.sources)
        self._list(member.listed(), limits.members)

    def _list(self, member: ListedMember, most: int) -> None:
        if len(self.first_members) < most and not self.latest_members:
            self.first_members.append(member)
            return
        del self.first_members[most:]
        self.latest_members.append(member)
        del self.latest_members[: max(0, len(self.latest_members) - most)]

    def _count(self, origin: str, places: int) -> None:
        sources = self.sources
        while len(sources) > places:
            self._drop_last()
        at = next((n for n, source in enumerate(sources) if source.origin == origin), len(sources))
        if at < len(sources):
            sources[at].count += 1
        elif not places:
            self.other_sources += 1
            return
        else:
            over = self._make_room(places)
            at = len(sources)
            sources.append(Source(origin, over + 1, over))
        while at and sources[at - 1].count < sources[at].count:
            sources[at - 1], sources[at] = sources[at], sources[at - 1]
            at -= 1

    def _make_room(self, places: int) -> int:
        """Make room for one origin; return how many members it may have had already, at most."""
        if len(self.sources) == places:
            return self._drop_last()
        if not self.other_sources:
            return 0
        # Some were given up when there were fewer places; none of them had more than the last.
        return self.sources[-1].count if self.sources else self.other_sources

    def _drop_last(self) -> int:
        """Give up the least frequent origin; return its count."""
        last = self.sources.pop()
        self.other_sources += last.count - last.over
        return last.count


def fold_all(members: Iterable[Member], limits: Limits) -> dict[str, Group]:
    """Fold members into their groups, in order; return these by duplicate id."""
    groups: dict[str, Group] = {}
    for member in members:
        group = groups.get(member.duplicate_id)
        if group is None:
            group = groups[member.duplicate_id] = Group.begin(member)
        group.fold(member, limits)
    return groups


encode = msgspec.json.Encoder().encode
decode_member = msgspec.json.Decoder(Member).decode
decode_group = msgspec.json.Decoder(Group).decode
