"""What happens to workers: killed, asked to end, frozen, crowded, out of time, poisoned."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer

from tests.campaign.faults.base import Fault, Lane, Span
from tests.campaign.fleet import Fleet, WorkerProgram
from tests.campaign.load import LETTER

#: Longer than the session of a member of the group (10 s): it is thrown out and must notice.
_PAST_SESSION = Span(12, 16)
#: Clocks jump by so many seconds.
_JUMP = 3600
#: Members that come and go in a storm, and for how long each stays.
_GUESTS, _STAY = 6, 0.5
#: Time that a record has to arrive.
_ARRIVAL = 60.0
#: Time that a worker has to end; it kills its own process after 25 s.
_STOP_SECONDS = 40.0


class _OnWorker(Fault):
    lane = Lane.WORKERS

    def __init__(self, fleet: Fleet, share: float) -> None:
        super().__init__(fleet, share)
        self.worker = self.choose(fleet.workers)

    def choose(self, workers: list[WorkerProgram]) -> WorkerProgram:
        """Choose a worker that may be hit."""
        chosen = workers[int(self.share * len(workers))]
        self.hits = chosen.name
        return chosen


class WorkerKill(_OnWorker):
    """SIGKILL to a supervisor and its process; started again after a moment."""

    name = "worker SIGKILL"
    lasts = Span(0.5, 3)

    def begin(self) -> None:
        self.worker.away = True
        self.worker.process.kill()

    def end(self) -> None:
        self.worker.start()


class WorkerTerm(_OnWorker):
    """SIGTERM to a supervisor, which is started again when it has ended."""

    name = "worker SIGTERM"
    lasts = Span(1, 3)

    def begin(self) -> None:
        self.worker.away = True
        self.worker.process.terminate()

    def end(self) -> None:
        if self.worker.process.wait(_STOP_SECONDS) is None:
            self.hits += " (had to be killed)"
            self.worker.process.kill()
        self.worker.start()


class WorkerPause(_OnWorker):
    """SIGSTOP to a supervisor and its process, past the session of its member."""

    name = "worker SIGSTOP"
    lasts = _PAST_SESSION
    lasts_long = Span(12, 90)

    def begin(self) -> None:
        self.worker.away = True
        self.worker.process.pause()

    def end(self) -> None:
        self.worker.process.resume()
        self.worker.away = False


class ClockJump(_OnWorker):
    """The clock of a worker jumps by an hour, on or back, and then returns (see ``clock``)."""

    name = "worker clock jump"
    lasts = Span(2, 6)

    def choose(self, workers: list[WorkerProgram]) -> WorkerProgram:
        return super().choose([one for one in workers if one.clock is not None])

    def begin(self) -> None:
        assert self.worker.clock is not None
        offset = _JUMP if int(self.share * 1000) % 2 else -_JUMP
        self.hits += f" {offset:+} s"
        self.worker.clock.set(offset)

    def end(self) -> None:
        assert self.worker.clock is not None
        self.worker.clock.set(0)


class ClockStep(ClockJump):
    """The clock of a worker steps by an hour, on or back, and stays so until the next step."""

    name = "worker clock step"

    def end(self) -> None:
        """Leave it so; what follows must go well with it."""


class RebalanceStorm(Fault):
    """Members join the group, are given partitions that they do nothing with, and leave."""

    name = "rebalance storm"
    lane = Lane.WORKERS

    def begin(self) -> None:
        self.hits = f"{_GUESTS} members"
        for _ in range(_GUESTS):
            self._visit()

    def _visit(self) -> None:
        guest = Consumer(
            {
                "bootstrap.servers": self.fleet.kafka.inside,
                "group.id": self.fleet.settings.group,
                # As the workers have it; members that can't agree are refused.
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 6000,
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        with suppress(KafkaException):
            guest.subscribe([self.fleet.settings.input_topic])
            guest.poll(_STAY)
        guest.close()


class FatalRecord(Fault):
    """A record comes at which every process dies that takes it (see ``preloaded``)."""

    name = "fatal record"
    lane = Lane.WORKERS

    def begin(self) -> None:
        partition = int(self.share * self.fleet.size.partitions)
        producer = Producer({"bootstrap.servers": self.fleet.kafka.inside, "log_level": 2})
        producer.produce(
            self.fleet.settings.input_topic,
            b'{"text": "kill-the-process"}',
            partition=partition,
            headers=[(LETTER, b"fatal")],
        )
        sent = not producer.flush(_ARRIVAL)
        self.hits = f"partition {partition}" + ("" if sent else " (did not arrive)")


KINDS = (WorkerKill, WorkerTerm, WorkerPause, ClockJump, ClockStep, RebalanceStorm, FatalRecord)
