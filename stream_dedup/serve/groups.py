"""Duplicate groups in Redis: looked up in a thread of their own, beside the queries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from stream_dedup.errors import ServiceError
from stream_dedup.outage import Outage
from stream_dedup.serve.source import PAUSE

log = logging.getLogger(__name__)


class View(Protocol):
    """What is asked; ``GroupView`` is one."""

    def look_up(self, duplicate_id: str) -> bytes | None:
        """Return the state of a group, as JSON; None when it has none."""

    def close(self) -> None:
        """Release the connections."""


class Groups:
    """Looks groups up in a Redis that may go away and come back."""

    def __init__(self, connect: Callable[[], View]) -> None:
        """Look groups up by what ``connect`` opens when it is needed."""
        self._connect = connect
        self._view: View | None = None
        self._outage = Outage(log, "Redis, asked for groups,")
        self._failure = ""
        self._failed_at = float("-inf")
        self._thread = ThreadPoolExecutor(1, "groups")

    async def look_up(self, duplicate_id: str) -> bytes | None:
        """Return the state of a group, as JSON; None when it has none.

        Raises:
            ServiceError: Redis is out of reach or refuses.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._look_up, duplicate_id)

    def close(self) -> None:
        """End the thread, and release the connections."""
        self._thread.shutdown(cancel_futures=True)
        if self._view is not None:
            self._view.close()

    def _look_up(self, duplicate_id: str) -> bytes | None:
        if time.monotonic() < self._failed_at + PAUSE:
            raise ServiceError(self._failure)
        try:
            if self._view is None:
                self._view = self._connect()
            found = self._view.look_up(duplicate_id)
        except ServiceError as error:
            self._failure, self._failed_at = str(error), time.monotonic()
            self._outage.failed(error)
            raise
        self._outage.ended()
        return found
