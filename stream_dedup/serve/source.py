"""The index behind the service: opened when it is needed, and again after it was out of reach."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from stream_dedup import __version__, metrics
from stream_dedup.errors import ServiceError, StreamDedupError
from stream_dedup.index.base import LookUp
from stream_dedup.outage import Outage
from stream_dedup.query import Answer, Query, Question
from stream_dedup.settings import Settings

log = logging.getLogger(__name__)

#: Seconds after a failure in which questions are refused without another attempt.
PAUSE = 1.0


class Source:
    """Asks an index that may go away and come back; for one thread at a time."""

    def __init__(self, settings: Settings, open_index: Callable[[], LookUp]) -> None:
        self._settings = settings
        self._open_index = open_index
        self._query: Query | None = None
        self._outage = Outage(log, "the index")
        self._failure = ""
        self._failed_at = float("-inf")

    def open(self) -> None:
        """Open the index, if it is not open.

        Raises:
            StreamDedupError: it cannot be opened.
        """
        if self._query is None:
            self._query = Query(self._settings, self._open_index())
            metrics.build_info.labels(__version__, self._query.configuration).set(1)
            log.info(
                "asks an index of configuration %(configuration)s",
                {"configuration": self._query.configuration},
            )

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer questions.

        Raises:
            ServiceError: the index is out of reach, or is another one than it was.
        """
        if time.monotonic() < self._failed_at + PAUSE:
            raise ServiceError(self._failure)
        try:
            self.open()
            answers = self._opened().ask(questions)
        except StreamDedupError as error:
            self.close()
            self._failure, self._failed_at = str(error), time.monotonic()
            self._outage.failed(error)
            raise ServiceError(self._failure) from error
        self._outage.ended()
        return answers

    def close(self) -> None:
        """Release the index; it is opened again when it is needed."""
        if self._query is not None:
            self._query.index.close()
            self._query = None

    def _opened(self) -> Query:
        if self._query is None:
            msg = "the index is not open"
            raise RuntimeError(msg)
        return self._query
