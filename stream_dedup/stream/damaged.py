"""Records of which a client could not read everything. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stream_dedup.stream.poison import Poison, Reason

Headers = Iterable[tuple[str, bytes | None]]


class Damaged(list[tuple[str, bytes | None]]):
    """What could be read of a record's headers, and why not everything of the record could.

    It stands in the place of the headers, because the clients' records have no room for more.

    Args:
        headers: that could be read.
        reason: one of the list.
        detail: the same for people.
        lost: the parts that could not be read: ``value``, ``key``, ``headers``.
    """

    def __init__(
        self, headers: Headers, reason: Reason, detail: str, lost: Sequence[str] = ()
    ) -> None:
        super().__init__(headers)
        self._why = (reason, detail, tuple(lost))

    def poison(self) -> Poison:
        """Return it as what makes a dead letter."""
        return Poison(*self._why)
