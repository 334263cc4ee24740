"""Looking the states of duplicate groups up in Redis: no Function, no right to write."""

from __future__ import annotations

from typing import Any, Self

from stream_dedup.index.connection import Client, connect, reporting_errors
from stream_dedup.settings import Settings


class GroupView:
    """Looks up what ``GroupStore`` keeps, and changes nothing there.

    Over how many partitions the states are spread they tell themselves; while they do not, because
    they are being put back after a loss, it goes by the settings.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._namespace = settings.redis_namespace
        self._partitions = settings.partitions

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Connect to the Redis of the settings.

        Raises:
            ServiceError: it does not answer.
        """
        return cls(connect(settings), settings)

    def look_up(self, duplicate_id: str) -> bytes | None:
        """Return the state of a group, as it is published; None when it has none.

        Args:
            duplicate_id: its name, 24 hexadecimal digits.

        Raises:
            ServiceError: Redis is out of reach or refuses.
        """
        with reporting_errors():
            word: Any = self._client.get(f"{self._namespace}:{{0}}:g")
            told = int((word or b"").partition(b"/")[2] or self._partitions)
            partition = int(duplicate_id[:8], 16) % told
            value: Any = self._client.get(f"{self._namespace}:{{{partition}}}:g{duplicate_id}")
        # The state follows its revision, 8 bytes.
        return value[8:] if value else None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
