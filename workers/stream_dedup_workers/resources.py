"""What the worker processes take, as the supervisor sees it."""

from __future__ import annotations

import psutil

from stream_dedup import metrics

#: Seconds between two looks.
INTERVAL = 1.0


class Resources:
    """Memory and processor time of one worker through all of its processes.

    The time of a process counts up to the last look at it: the counter goes on where the process
    before it ended, and never back.

    Args:
        number: the worker's.
    """

    def __init__(self, number: int) -> None:
        self._bytes = metrics.worker_resident_bytes.labels(str(number))
        self._seconds = metrics.worker_cpu_seconds_total.labels(str(number))
        self._process: psutil.Process | None = None
        self._counted = 0.0

    def begin(self, pid: int | None) -> None:
        """Look at this process from now on; at none for None."""
        self._counted = 0.0
        self._bytes.set(0)
        try:
            self._process = None if pid is None else psutil.Process(pid)
        except psutil.Error:  # it has ended already
            self._process = None

    def look(self) -> None:
        """Bring the metrics up to date."""
        if self._process is None:
            return
        try:
            with self._process.oneshot():
                times, memory = self._process.cpu_times(), self._process.memory_info()
        except psutil.Error:  # it has just ended; the supervisor will see that too
            return
        seconds = times.user + times.system
        self._seconds.inc(max(0.0, seconds - self._counted))
        self._counted = max(seconds, self._counted)
        self._bytes.set(memory.rss)
