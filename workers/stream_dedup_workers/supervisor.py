"""Starts the worker processes, watches over them and serves their state.

The life of a supervisor:

1. Check Kafka, Redis and the index once, so that a mistake is told once.
2. Bind the HTTP port and start ``processes`` workers.
3. Watch. A worker that ended is started again after a pause that grows; one that made no progress
   for ``stall_timeout`` is killed first. It needs killing because a commit of the Kafka client may
   wait for ever.
4. After SIGTERM or SIGINT: pass it on, wait, kill what is left.

A worker may be killed at any moment without harm: its open transaction is aborted, and its records
are decided again with the same answers. Only errors that a restart cannot mend end the program:
those of the first start, wrong settings and an index of another configuration.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import SpawnContext, SpawnProcess

from prometheus_client import multiprocess

from stream_dedup import __version__, metrics
from stream_dedup.errors import ConfigurationMismatch, SettingsError, StreamDedupError
from stream_dedup.secrets import secret_of
from stream_dedup.settings import Settings
from stream_dedup.tokens import warn_if_open
from stream_dedup_workers import annotate, checks, logs, process, resources
from stream_dedup_workers.http import StatusServer
from stream_dedup_workers.pulse import Pulse, Stage
from stream_dedup_workers.resources import Resources

log = logging.getLogger(__name__)

#: Time between two looks at the workers.
WATCH_INTERVAL = 0.1
#: First and longest pause before a worker is started again; back to the first after so long a life.
RESTART_PAUSE = (0.5, 30.0)
STEADY_SECONDS = 60.0
#: Time that workers have to finish their batch after SIGTERM; orchestrators wait 30 s.
STOP_TIMEOUT = 25.0
#: Read by prometheus_client when it is imported, so set before a worker starts.
METRICS_DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_PERMANENT = frozenset({SettingsError.exit_code, ConfigurationMismatch.exit_code})

#: Entry point of a worker process.
Target = Callable[[Settings, str, int, Pulse], None]


class Worker:
    """One worker process through all of its lives.

    Args:
        settings: handed to the process.
        instance: host and port of this supervisor.
        number: which of its processes this is.
        target: what the process runs.
    """

    def __init__(self, settings: Settings, instance: str, number: int, target: Target) -> None:
        self._settings = settings
        self._instance = instance
        self._target = target
        self._context: SpawnContext = multiprocessing.get_context("spawn")
        self._pause = RESTART_PAUSE[0]
        self._due = 0.0
        self.resources = Resources(number)
        self.number = number
        self.process: SpawnProcess | None = None
        self.pulse = Pulse(self._context)
        self.ever_ran = False

    def start(self) -> None:
        """Begin a life."""
        # A new pulse, so that nothing of the last life can be taken for this one's.
        self.pulse = Pulse(self._context)
        self._began = time.monotonic()
        self.process = self._context.Process(
            target=self._target,
            args=(self._settings, self._instance, self.number, self.pulse),
            name=f"worker-{self.number}",
        )
        self.process.start()
        self.resources.begin(self.process.pid)

    def watch(self) -> int | None:
        """Look at the process; return its exit code if it has just ended.

        A stalled one is killed, a dead one started again when its pause is over.
        """
        if self.process is None:
            if time.monotonic() >= self._due:
                self.start()
            return None
        self.ever_ran = self.ever_ran or self.pulse.stage is not Stage.STARTING
        cause = "exit"
        if self.process.is_alive():
            if self.pulse.silence < self._settings.stall_timeout:
                return None
            cause = "stall"
            fields = {"worker": self.number, "seconds": round(self.pulse.silence, 1)}
            log.error("worker-%(worker)d made no progress for %(seconds).0f s, killing it", fields)
            self.process.kill()
        return self._bury(cause)

    def alive(self) -> bool:
        """Tell whether there is a process."""
        return self.process is not None and self.process.is_alive()

    def _bury(self, cause: str) -> int:
        assert self.process is not None  # noqa: S101 - for the type checker
        self.process.join()
        code = self.process.exitcode or 0
        if self.process.pid is not None:
            forget_metrics(self.process.pid)
        self.process.close()
        self.process = None
        self.resources.begin(None)
        if time.monotonic() - self._began > STEADY_SECONDS:
            self._pause = RESTART_PAUSE[0]
        self._due = time.monotonic() + self._pause
        if self.ever_ran:
            metrics.worker_restarts_total.labels(cause).inc()
            log.warning(
                "worker-%(worker)d ended (%(end)s), starting it again in %(pause).1f s",
                {
                    "worker": self.number,
                    "end": describe_exit(code),
                    "pause": self._pause,
                    "cause": cause,
                },
            )
        self._pause = min(2 * self._pause, RESTART_PAUSE[1])
        return code


class Supervisor:
    """Runs the worker processes until it is asked to stop.

    Args:
        settings: for itself and the workers.
        target: what a worker process runs.
        check: what is checked before any of them starts.
        ping: says why the index does not answer; part of /readyz.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        target: Target = annotate.run,
        check: Callable[[Settings], None] = checks.check,
        ping: Callable[[Settings], str] = checks.ping_redis,
    ) -> None:
        self._settings = settings
        self._target = target
        self._check = check
        self._ping = ping
        self._asked_to_stop = False
        self._workers: list[Worker] = []

    def run(self) -> int:
        """Check, start and watch; return the exit code of the program."""
        logs.configure("supervisor", self._settings.log_format, self._settings.log_level)
        try:
            return self._run()
        except StreamDedupError as error:  # a check failed, or the HTTP address cannot be bound
            log.error("%s", error)  # noqa: TRY400 - an error on purpose needs no traceback
            return error.exit_code

    def _run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        token = secret_of(self._settings, "http_token")
        warn_if_open(self._settings.http_host, token, "http_token_file")
        self._check(self._settings)
        with tempfile.TemporaryDirectory(prefix="stream-dedup-metrics-") as directory:
            os.environ[METRICS_DIRECTORY_VARIABLE] = directory
            server = StatusServer(
                self._settings.http_host,
                self._settings.http_port,
                directory,
                healthy=self.healthy,
                ready=self.ready,
                token=token,
                names=self._settings.http_names,
            )
            try:
                return self._supervise(server)
            finally:
                self._end()
                server.close()
                del os.environ[METRICS_DIRECTORY_VARIABLE]

    def stop(self) -> None:
        """Have it end soon.

        No more than a flag is set: a signal may come while the main thread holds the lock of an
        event, which its handler would wait for for ever.
        """
        self._asked_to_stop = True

    def healthy(self) -> str:
        """Say which workers make no progress; empty when all do."""
        limit = self._settings.stall_timeout
        stalled = [str(worker.number) for worker in self._workers if worker.pulse.silence > limit]
        return f"No progress: worker {', '.join(stalled)}." if stalled else ""

    def ready(self) -> str:
        """Say what keeps a worker from taking part in the stream; empty when nothing does."""
        return self._absent() or self._ping(self._settings)

    def _absent(self) -> str:
        """Say which worker is no member of the group; empty when all are."""
        for worker in self._workers:
            if not worker.alive():
                return f"worker-{worker.number} is not running."
            if worker.pulse.stage is not Stage.JOINED:
                return f"worker-{worker.number} has not joined the group."
        return ""

    def _measure(self) -> None:
        """Bring the supervisor's own metrics up to date."""
        metrics.ready.set(not self._absent())
        for worker in self._workers:
            worker.resources.look()

    def _supervise(self, server: StatusServer) -> int:
        instance = f"{_host_name()}-{server.port}"
        self._workers = [
            Worker(self._settings, instance, number, self._target)
            for number in range(self._settings.processes)
        ]
        server.start()
        log.info(
            "stream-dedup %(version)s, settings %(settings)s: serving "
            "http://%(host)s:%(port)d/metrics, starting %(processes)d worker(s)",
            {
                "version": __version__,
                "settings": process.digest_of(self._settings),
                "host": self._settings.http_host,
                "port": server.port,
                "processes": len(self._workers),
                "transport": self._settings.transport,
            },
        )
        measured = float("-inf")
        while not self._asked_to_stop:
            if time.monotonic() - measured >= resources.INTERVAL:
                measured = time.monotonic()
                self._measure()
            for worker in self._workers:
                code = worker.watch()
                if code is not None and self._final(code):
                    return exit_code(code)
            time.sleep(WATCH_INTERVAL)
        metrics.ready.set(0)
        return 0

    def _final(self, code: int) -> bool:
        """Tell whether a worker's end is the end of all: a restart would meet the same error."""
        if code in _PERMANENT:
            return True
        started = any(worker.ever_ran for worker in self._workers)
        return not started and code != 0

    def _end(self) -> None:
        """Let every worker finish its batch and leave the group."""
        running = [worker for worker in self._workers if worker.alive()]
        log.info("stopping %(processes)d worker(s)", {"processes": len(running)})
        for worker in running:
            if worker.process is not None:
                worker.process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT
        for worker in running:
            if worker.process is None:
                continue
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                log.warning(
                    "worker-%(worker)d did not end in time, killing it", {"worker": worker.number}
                )
                worker.process.kill()
                worker.process.join()
        log.info("stopped")


def exit_code(code: int) -> int:
    """Turn the end of a process into an exit code, as a shell does for signals."""
    return code if code >= 0 else 128 - code


def describe_exit(code: int) -> str:
    """Say how a process ended."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def forget_metrics(pid: int) -> None:
    """Drop the gauges of a dead process; its counters stay, so that sums never go back."""
    directory = os.environ[METRICS_DIRECTORY_VARIABLE]
    multiprocess.mark_process_dead(pid, path=directory)  # type: ignore[no-untyped-call]


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64]
