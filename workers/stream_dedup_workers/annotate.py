"""One worker process: Redis index, deduplicator and Kafka transport around the loop."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from types import FrameType

from stream_dedup import __version__, metrics
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import StreamDedupError
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.collector import calm
from stream_dedup.stream.loop import Loop
from stream_dedup.types import Decision, Document
from stream_dedup_workers import logs
from stream_dedup_workers.pulse import Pulse, Stage
from stream_dedup_workers.shadow import shadowed

log = logging.getLogger(__name__)


def transactional_id(settings: Settings, instance: str, number: int) -> str:
    """Name the producer of one worker process.

    Fencing of zombies does not depend on this name: offsets carry the group's generation, and the
    broker refuses those of a former one. The name decides how fast a dead worker is got over. An
    unfinished transaction holds up everybody who reads the output, and whoever takes over the
    input partition; it ends when a producer of the same name appears, else only after
    ``transaction_timeout``. So the name is the same for every life of a process (host, port and
    number are) and never shared by two at one time (a port of a host is bound once).
    """
    return f"{settings.group}-{instance}-{number}"


def run(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Work until SIGTERM; the entry point of a spawned process.

    Exits with 0 after SIGTERM, with an error's ``exit_code`` after that error.
    """
    logs.configure(f"worker-{number}", settings.log_format)
    stop = _Stop()
    try:
        _work(settings, transactional_id(settings, instance, number), pulse, stop)
    except StreamDedupError as error:
        log.error("%s", error)  # noqa: TRY400 - an error on purpose needs no traceback
        sys.exit(error.exit_code)
    log.info("stopped")


class _Stop:
    """Tells whether to end: after SIGTERM, or when the supervisor is gone."""

    def __init__(self) -> None:
        self._asked = False
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._on_signal)
        # Ctrl-C reaches the whole process group; the supervisor turns it into SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def __call__(self) -> bool:
        return self._asked or os.getppid() != self._parent


class CountedDeduplicator:
    """Decides through the Redis index, and counts what its claims went through."""

    def __init__(self, settings: Settings) -> None:
        self._index = RedisIndex.connect(settings)
        self._deduplicator = Deduplicator(settings, index=self._index)
        self.configuration = self._deduplicator.configuration

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Decide a batch, in order."""
        decisions = self._deduplicator.decide(documents)
        counts = self._index.counts
        metrics.claims_voided_total.inc(counts.voided)
        metrics.claims_retried_total.inc(counts.retried)
        metrics.capped_probes_total.inc(counts.capped)
        return decisions

    def close(self) -> None:
        """Close the connections."""
        self._deduplicator.close()


def _work(settings: Settings, identity: str, pulse: Pulse, stop: Callable[[], bool]) -> None:
    """Build everything, run the loop, and take everything down in the opposite order."""
    with (
        closing(CountedDeduplicator(settings)) as deduplicator,
        shadowed(settings, identity) as shadow,
    ):
        metrics.build_info.labels(__version__, deduplicator.configuration).set(1)
        pulse.beat()
        transport = open_transport(
            settings,
            identity,
            beat=pulse.beat,
            on_assigned=lambda _partitions: metrics.rebalances_total.inc(),
        )
        log.info("started, configuration %s", deduplicator.configuration)
        pulse.beat(Stage.POLLING)
        calm(settings.batch_documents)

        def beat() -> None:
            pulse.beat(Stage.JOINED if transport.joined() else Stage.POLLING)

        with closing(transport):
            loop = Loop(
                settings, transport, deduplicator, time, stopping=stop, beat=beat, observer=shadow
            )
            loop.run()
