"""Logging of the worker programs: to stderr, a line for each change of state."""

from __future__ import annotations

import logging
import sys
import time

#: Time for which the Kafka client's repetitions of a line are left out. While a broker is away it
#: reports every attempt of every connection.
REPEAT_SECONDS = 30.0


def configure(name: str) -> None:
    """Log our own state changes, and what the clients warn of; ``name`` tells processes apart."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s %(levelname)s {name} %(name)s: %(message)s")
    )
    handler.addFilter(_Repetitions())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in ("stream_dedup", "stream_dedup_workers"):
        logging.getLogger(package).setLevel(logging.INFO)


class _Repetitions(logging.Filter):
    """Leaves out lines of the Kafka client that the same place logged a short time ago."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is to be written."""
        if not record.name.startswith("kafka"):
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._last.get(place, float("-inf")) < REPEAT_SECONDS:
            return False
        self._last[place] = now
        return True
