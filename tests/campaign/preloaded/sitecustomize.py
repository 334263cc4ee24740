"""What Python imports by its name at the start of every worker.

A clock that can be set while the program runs. libfaketime cannot do it: with it, a sleep of Python
ends in EINVAL. So this is the clock that the program's own code and that of kafka-python read;
librdkafka and the system keep the right time.

And a defect, such as a library might have: a text at which the process dies.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_FILE = os.environ.get("CAMPAIGN_CLOCK")
#: Seconds for which the offset is not read again.
_STALE = 0.2

_true_time, _true_time_ns, _steady = time.time, time.time_ns, time.monotonic
_read_at = -_STALE
_offset = 0


def _current() -> int:
    global _read_at, _offset  # noqa: PLW0603
    if _FILE is not None and _steady() > _read_at + _STALE:
        _read_at = _steady()
        _offset = int.from_bytes(Path(_FILE).read_bytes(), sys.byteorder, signed=True)
    return _offset


def _time() -> float:
    return _true_time() + _current()


def _time_ns() -> int:
    return _true_time_ns() + _current() * 1_000_000_000


time.time, time.time_ns = _time, _time_ns

# From here on the program's own modules: they must find the clock above.
from stream_dedup.fingerprint.fingerprinter import Fingerprinter  # noqa: E402

_fingerprint = Fingerprinter.fingerprint


def _fingerprint_or_die(self: Any, texts: Any, *more: Any) -> Any:
    if any("kill-the-process" in text for text in texts):
        os.kill(os.getpid(), signal.SIGKILL)
    return _fingerprint(self, texts, *more)


Fingerprinter.fingerprint = _fingerprint_or_die  # type: ignore[method-assign, assignment]
