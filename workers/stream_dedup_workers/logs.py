"""Logging of the programs that run on: to stderr, a line for each change of state.

A message says it all in words; what a machine may look for is in its fields, too. A call gives them
as one mapping, which the standard library puts into the words by name and ``_Json`` writes out::

    log.info("joined the group %(group)s", {"group": group, "topic": topic})
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ClassVar

import msgspec
from rich.console import Console
from rich.text import Text

from stream_dedup.outage import Outage
from stream_dedup.secret_values import MaskingFormatter

#: Time for which repetitions of a Kafka client's line are left out, after its first and at most:
#: while a broker is away they report every attempt of every connection.
REPEAT_SECONDS = (30.0, 600.0)
#: A line that was not repeated for this long is told like a new one.
QUIET_SECONDS = 120.0

log = logging.getLogger(__name__)

_OURS = ("stream_dedup", "stream_dedup_workers")
#: What the clients of Kafka name their loggers after.
_CLIENTS = ("kafka", "librdkafka")
#: The logger and the last word with which kafka-python tells of a connection that stands, and what
#: its many lines of one that does not have in common.
_CONNECTED = ("kafka.net.connection", "Connected")
_BROKEN = re.compile(
    r"KafkaConnectionError|disconnected|network data|No node available|NodeNotReady"
)
#: Its scheduler warns when a callback took a tenth of a second, as when a machine is busy.
_SCHEDULER = "kafka.net.selector"


def configure(name: str, log_format: str, log_level: str = "info") -> None:
    """Log our own state changes, and what the clients warn of.

    Args:
        name: tells processes apart.
        log_format: ``text``, ``json`` for an object on each line, or ``auto``: text for a terminal.
        log_level: ``debug``, ``info``, ``warning`` or ``error``; of this level or above are our own
            lines, and of warnings at least those of others. ``debug`` has theirs of level info.
    """
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json" or (log_format == "auto" and not sys.stderr.isatty()):
        handler.setFormatter(_Json(name))
    elif sys.stderr.isatty():
        handler.setFormatter(_Terminal(name))
    else:
        handler.setFormatter(_Words(name))
    handler.setFormatter(MaskingFormatter(handler.formatter or logging.Formatter()))
    handler.addFilter(_Clients())
    level = logging.getLevelNamesMapping()[log_level.upper()]
    others = logging.INFO if level == logging.DEBUG else max(level, logging.WARNING)
    logging.basicConfig(level=others, handlers=[handler], force=True)
    for package in _OURS:
        logging.getLogger(package).setLevel(level)
    # Its line of a connection that stands ends what it told before of one that does not.
    logging.getLogger(_CLIENTS[0]).setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


class _Words(logging.Formatter):
    """Writes time (UTC), level, process, logger and message."""

    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {process} %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        """Write the time with milliseconds."""
        return _time_of(record)


class _Terminal(logging.Formatter):
    """Writes for somebody who looks on: the time of day, colours, and no logger's name."""

    _STYLES: ClassVar[Mapping[str, str]] = {
        "DEBUG": "dim",
        "INFO": "green",
        "WARNING": "yellow",
        "ERROR": "bold red",
        "CRITICAL": "bold red",
    }

    def __init__(self, process: str) -> None:
        super().__init__("%(message)s")
        self._process = process
        self._console = Console(stderr=True, soft_wrap=True)

    def format(self, record: logging.LogRecord) -> str:
        """Write one line, and below it the traceback if there is one."""
        at = datetime.fromtimestamp(record.created).astimezone()
        level = record.levelname
        line = Text.assemble(
            (f"{at:%H:%M:%S} ", "dim"),
            (f"{level:<8}", self._STYLES.get(level, "")),
            (f"{self._process:<11}", "cyan"),
            super().format(record),
        )
        with self._console.capture() as written:
            self._console.print(line, end="", highlight=False)
        return written.get()


class _Json(logging.Formatter):
    """Writes a line as an object; see docs/logs.md."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        line: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if isinstance(record.args, Mapping):
            line |= {name: value for name, value in record.args.items() if name not in line}
        return msgspec.json.encode(line, enc_hook=str).decode()


class _Clients(logging.Filter):
    """Makes the Kafka clients' lines fit beside ours.

    They try again by themselves, so their errors are warnings here. What the same place says again
    is left out, but now and then, and so is what ``debug`` alone asks for. All that kafka-python
    says of a broken connection is one outage; librdkafka does not tell when one stands again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._outage = Outage(log, "the connection to Kafka", state="is broken")
        self._told: dict[object, _Told] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is to be written."""
        if record.name.partition(".")[0] not in _CLIENTS:
            return True
        if record.name == _CONNECTED[0] and str(record.msg).endswith(_CONNECTED[1]):
            self._outage.ended()
        if record.levelno < logging.WARNING or record.name == _SCHEDULER:
            return logging.getLogger().isEnabledFor(min(record.levelno, logging.INFO))
        if record.name != "librdkafka" and _BROKEN.search(record.getMessage()):
            self._outage.failed(record.getMessage())
            return False
        record.levelno = logging.WARNING
        record.levelname = logging.getLevelName(logging.WARNING)
        # The first argument of librdkafka's lines is its own name for the kind of event.
        place: object = (record.pathname, record.lineno)
        if record.name == "librdkafka" and isinstance(record.args, tuple):
            place = record.args[:1]
        return self._told.setdefault(place, _Told()).is_due(record)


class _Told:
    """When one place told something last, and how often since."""

    def __init__(self) -> None:
        self._last = self._due = time.monotonic()
        self._pause = REPEAT_SECONDS[0]
        self._left_out = 0

    def is_due(self, record: logging.LogRecord) -> bool:
        """Tell whether to write a line; if so, it gets the number of those left out before."""
        now = time.monotonic()
        if now - self._last > max(QUIET_SECONDS, self._pause):
            self._due, self._pause = now, REPEAT_SECONDS[0]
        self._last = now
        if now < self._due:
            self._left_out += 1
            return False
        self._due = now + self._pause
        self._pause = min(2 * self._pause, REPEAT_SECONDS[1])
        if self._left_out:
            record.msg = f"{record.getMessage()} ({self._left_out} like it were left out)"
            record.args = None
            self._left_out = 0
        return True


def _time_of(record: logging.LogRecord) -> str:
    """Return a record's time as RFC 3339 has it: UTC, with milliseconds."""
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    log.critical("ended by an error", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(caught: threading.ExceptHookArgs) -> None:
    if caught.exc_value is not None and caught.exc_type is not SystemExit:
        name = caught.thread.name if caught.thread else ""
        log.critical(
            "the thread %(thread)s ended by an error",
            {"thread": name},
            exc_info=(caught.exc_type, caught.exc_value, caught.exc_traceback),
        )
