"""What the clients of the simulated Kafka have in common: requests that are lost, late, or slow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, NamedTuple

from kafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-untyped]

from tests.simulation.broker import Broker
from tests.simulation.group import Group


class Cluster(NamedTuple):
    """Where clients connect to; there is one at a time, as there is one ``CLOCK``."""

    broker: Broker
    groups: dict[str, Group]
    topic: str

    def group(self, name: str) -> Group:
        """Return a consumer group."""
        if name not in self.groups:
            self.groups[name] = Group(self.broker, name, self.topic)
        return self.groups[name]


class Client:
    """What both have in common.

    Attributes:
        cluster: what is connected to.
    """

    cluster: ClassVar[Cluster]

    def _call(self, stage: str, late: Callable[[], object] | None = None) -> None:
        """Let a request take its time.

        Args:
            stage: what is done.
            late: what comes about if it arrives when nobody waits for it any more.

        Raises:
            KafkaError: it did not arrive.
        """
        broker = self.cluster.broker
        broker.faults.pass_time(stage)
        broker.check_up()
        if broker.faults.strikes(broker.faults.rates.kafka * 0.5):
            broker.scheduler.note("kafka call lost", stage)
            if broker.scheduler.chance(0.2):
                broker.fail_over()
            wait = broker.scheduler.rng.choice((0.02, 15.0))
            if late is not None and broker.scheduler.chance(0.5):
                self._delay(stage, late, wait)
            broker.scheduler.sleep(wait)
            msg = f"{stage} timed out"
            raise KafkaTimeoutError(msg)

    def _delay(self, stage: str, late: Callable[[], object], wait: float) -> None:
        scheduler = self.cluster.broker.scheduler

        def arrive() -> None:
            scheduler.note("late kafka call", stage)
            with suppress(KafkaError):
                late()

        delay = wait + scheduler.rng.choice((0.05, 0.6, 5.0)) * scheduler.rng.random()
        scheduler.after(delay, arrive)

    def _answer(self, stage: str) -> None:
        """Let the answer to a request come back; what was asked for is done.

        Raises:
            KafkaError: it did not come back.
        """
        broker = self.cluster.broker
        if broker.faults.strikes(broker.faults.rates.kafka * 0.5):
            broker.scheduler.note("kafka answer lost", stage)
            broker.scheduler.sleep(broker.scheduler.rng.choice((0.1, 15.0)))
            msg = f"the answer to {stage} timed out"
            raise KafkaTimeoutError(msg)
        broker.faults.pass_time(stage)
