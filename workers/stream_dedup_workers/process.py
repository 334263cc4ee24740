"""What every worker process does around its work: logs, signals, exit codes."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import msgspec

from stream_dedup import metrics
from stream_dedup.errors import InputError, RefusedCallError, StreamDedupError
from stream_dedup.index.connection import shown
from stream_dedup.settings import Settings
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.collector import calm
from stream_dedup.stream.transport import Transport
from stream_dedup_workers import logs
from stream_dedup_workers.pulse import Pulse, Stage

log = logging.getLogger(__name__)

#: Settings, transactional id, pulse, and what tells whether to end.
Work = Callable[[Settings, str, Pulse, Callable[[], bool]], None]


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


def run(settings: Settings, instance: str, number: int, pulse: Pulse, work: Work) -> None:
    """Work until SIGTERM.

    Exits with 0 after SIGTERM, with an error's ``exit_code`` after that error.
    """
    logs.configure(f"worker-{number}", settings.log_format, settings.log_level)
    stop = _Stop()
    try:
        work(settings, transactional_id(settings, instance, number), pulse, stop)
    except StreamDedupError as error:
        log.error("%s", error)  # noqa: TRY400 - an error on purpose needs no traceback
        sys.exit(error.exit_code)
    except Exception:  # what starts processes would print it, on many lines
        log.exception("ended by an error")
        sys.exit(1)
    log.info("stopped")


@contextmanager
def transport_of(
    settings: Settings, identity: str, pulse: Pulse, stop: Callable[[], bool]
) -> Iterator[tuple[Transport, Callable[[], None]]]:
    """Open a transport, to be closed at the end, and what to call after each turn of a loop."""
    transport = open_transport(
        settings, identity, beat=pulse.beat, on_assigned=_count_assigned, stopping=stop
    )
    pulse.beat(Stage.POLLING)
    calm(settings.batch_documents)
    membership = {"group": settings.group, "topic": settings.input_topic, "member": identity}

    def beat() -> None:
        stage = Stage.JOINED if transport.joined() else Stage.POLLING
        if stage is Stage.POLLING:
            metrics.assigned_partitions.set(0)
        if stage is not pulse.stage:
            words = "joined" if stage is Stage.JOINED else "waits for its place in"
            log.info(f"{words} the group %(group)s", membership)
        pulse.beat(stage)
        transport.stay()

    try:
        yield transport, beat
    except (InputError, RefusedCallError):
        raise  # with its mark left on what was being worked on, as any other error does
    except StreamDedupError:
        transport.unmark()
        raise
    else:
        transport.unmark()
    finally:
        transport.close()


def _count_assigned(partitions: int) -> None:
    metrics.rebalances_total.inc()
    metrics.assigned_partitions.set(partitions)


def digest_of(settings: Settings) -> str:
    """Return 12 hexadecimal digits that tell whether two programs have the same settings.

    Secrets do not take part, nor what stands before the @ in an address.
    """
    values = settings.model_dump(mode="json")
    values["redis_url"] = shown(settings.redis_url.split(","))
    written = msgspec.json.encode(values, order="deterministic")
    return hashlib.sha256(written).hexdigest()[:12]


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
