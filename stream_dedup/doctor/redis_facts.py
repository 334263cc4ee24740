"""What is known of Redis and of the index in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stream_dedup.doctor.findings import Unknown, known, not_checked
from stream_dedup.index.description import Described

_NOT_ASKED = not_checked("It was not asked for.")


@dataclass(frozen=True)
class Node:
    """A node that takes writes.

    Attributes:
        name: host and port.
        cli: how ``redis-cli`` is called for it.
        info: what INFO says.
        config: the configuration that is asked for.
        libraries: code of each library of Functions that is named like ours.
        latency: median seconds of a PING.
        ahead: seconds by which its clock is ahead of ours.
        lengths: members of some of the index's sorted sets, at random.
    """

    name: str
    cli: str
    info: Mapping[str, Any] | Unknown
    config: Mapping[str, str] | Unknown = _NOT_ASKED
    libraries: Mapping[str, str] | Unknown = _NOT_ASKED
    latency: float | Unknown = _NOT_ASKED
    ahead: float | Unknown = _NOT_ASKED
    lengths: tuple[int, ...] | Unknown = _NOT_ASKED

    def said(self, name: str) -> Any:
        """Return one value of INFO.

        Raises:
            UnknownFactError: it is not known; ends the check.
        """
        value = known(self.info).get(name)
        return known(not_checked(f"{self.name} does not tell {name}.") if value is None else value)

    @property
    def used(self) -> int:
        """Bytes of memory in use."""
        return int(self.said("used_memory"))

    @property
    def limit(self) -> int:
        """Bytes of memory that it may use; 0 without a limit."""
        return int(self.said("maxmemory"))


@dataclass(frozen=True)
class RedisFacts:
    """All that is known of Redis.

    Attributes:
        where: its address, fit for a log.
        nodes: those that take writes.
        cluster: what CLUSTER INFO says; None for a single node.
        wanted: the index as the settings would have it.
        index: the index as it stands; None if there is none.
        originals: that it holds.
        denied: commands that a worker needs and this user may not use.
        claims: name and code of this version's library of the claim protocol.
        libraries: names of all libraries of this version.
    """

    where: str
    nodes: tuple[Node, ...]
    cluster: Mapping[str, str] | Unknown | None = None
    wanted: Described | Unknown = _NOT_ASKED
    index: Described | Unknown | None = _NOT_ASKED
    originals: int | Unknown = _NOT_ASKED
    denied: tuple[str, ...] | Unknown = _NOT_ASKED
    claims: tuple[str, str] = ("", "")
    libraries: tuple[str, ...] = ()
