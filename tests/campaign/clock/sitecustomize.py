"""Lets the clock of a Python program jump while it runs; Python imports this by its name at start.

libfaketime cannot do it: with it, a sleep of Python ends in EINVAL. So this is the clock that the
program's own code and that of kafka-python read; librdkafka and the system keep the right time.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_FILE = Path(os.environ["CAMPAIGN_CLOCK"])
#: Seconds for which the offset is not read again.
_STALE = 0.2

_true_time, _true_time_ns, _steady = time.time, time.time_ns, time.monotonic
_read_at = -_STALE
_offset = 0


def _current() -> int:
    global _read_at, _offset
    if _steady() > _read_at + _STALE:
        _read_at, _offset = (
            _steady(),
            int.from_bytes(_FILE.read_bytes(), sys.byteorder, signed=True),
        )
    return _offset


def _time() -> float:
    return _true_time() + _current()


def _time_ns() -> int:
    return _true_time_ns() + _current() * 1_000_000_000


time.time, time.time_ns = _time, _time_ns
