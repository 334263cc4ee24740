"""Logging of the worker programs: to stderr, a line for each change of state."""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime

import msgspec

#: Time for which the Kafka client's repetitions of a line are left out. While a broker is away it
#: reports every attempt of every connection.
REPEAT_SECONDS = 30.0


def configure(name: str, log_format: str) -> None:
    """Log our own state changes, and what the clients warn of.

    Args:
        name: tells processes apart.
        log_format: ``text``, or ``json`` for an object on each line.
    """
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_Json(name))
    else:
        text = f"%(asctime)s %(levelname)s {name} %(name)s: %(message)s"
        handler.setFormatter(logging.Formatter(text))
    handler.addFilter(_Repetitions())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in ("stream_dedup", "stream_dedup_workers"):
        logging.getLogger(package).setLevel(logging.INFO)


class _Json(logging.Formatter):
    """Writes a line as an object of time (RFC 3339), level, process, logger and message."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _Repetitions(logging.Filter):
    """Leaves out lines of the Kafka clients that the same place logged a short time ago."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[object, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is to be written."""
        place: tuple[object, ...] = (record.pathname, record.lineno)
        if record.name == "librdkafka" and isinstance(record.args, tuple):
            place = record.args[:1]  # its own name for the kind of event
        elif not record.name.startswith("kafka"):
            return True
        now = time.monotonic()
        if now - self._last.get(place, float("-inf")) < REPEAT_SECONDS:
            return False
        self._last[place] = now
        return True
