"""What happens to brokers: killed, frozen, restarted, out of disk, their offices moved."""

from __future__ import annotations

from tests.campaign.faults.base import Fault, Lane, Span
from tests.campaign.fleet import Fleet
from tests.services.kafka import KafkaBroker

#: Bytes beyond which a broker's files cannot grow: below what its logs hold already.
_FULL = 64 * 1024


class _OnBroker(Fault):
    lane = Lane.KAFKA

    def __init__(self, fleet: Fleet, share: float) -> None:
        super().__init__(fleet, share)
        self.broker: KafkaBroker = fleet.kafka.brokers[int(share * len(fleet.kafka.brokers))]

    def say(self) -> None:
        self.hits = f"broker {self.fleet.kafka.brokers.index(self.broker) + 1}"


class BrokerKill(_OnBroker):
    """SIGKILL to a broker, which is a controller too; started again after a moment."""

    name = "broker kill"
    lasts = Span(2, 6)
    lasts_long = Span(2, 20)

    def begin(self) -> None:
        self.say()
        self.broker.kill()

    def end(self) -> None:
        self.broker.launch()


class CoordinatorKill(BrokerKill):
    """SIGKILL to the broker that coordinates the group."""

    name = "coordinator kill"

    def begin(self) -> None:
        self.broker = self.fleet.kafka.coordinator(self.fleet.settings.group)
        super().begin()


class BrokerPause(_OnBroker):
    """SIGSTOP to a broker, past its session: others lead, and it wakes up believing it does."""

    name = "broker SIGSTOP"
    lasts = Span(8, 11)
    lasts_long = Span(8, 40)

    def begin(self) -> None:
        self.say()
        self.broker.pause()

    def end(self) -> None:
        self.broker.resume()


class RollingRestart(Fault):
    """Every broker is asked to end and started again, the next when all are well again."""

    name = "rolling restart"
    lane = Lane.KAFKA
    lasts = Span(1, 1)

    def __init__(self, fleet: Fleet, share: float) -> None:
        super().__init__(fleet, share)
        self._left = list(fleet.kafka.brokers)

    def begin(self) -> None:
        self.hits = "all brokers"
        self._restart()

    def is_done(self) -> bool:
        if self._left and self.is_healed():
            self._restart()
        return not self._left

    def _restart(self) -> None:
        broker = self._left.pop(0)
        broker.stop()
        broker.launch()


class CoordinatorMove(Fault):
    """Every partition of offsets and transactions is led by another broker from now on."""

    name = "coordinator move"
    lane = Lane.KAFKA

    def begin(self) -> None:
        self.hits = "all coordinators"
        self.fleet.kafka.move_coordinators()


class BrokerDiskFull(_OnBroker):
    """No file of a broker can grow: it ends by itself, and starts when there is room again."""

    name = "broker disk full"
    lasts = Span(3, 6)

    def begin(self) -> None:
        self.say()
        self.broker.limit_files(_FULL)

    def end(self) -> None:
        # Where it has not noticed yet, it goes on with room; where it has ended, it starts.
        self.broker.limit_files(None)
        self.broker.launch()


KINDS = (BrokerKill, CoordinatorKill, BrokerPause, RollingRestart, CoordinatorMove, BrokerDiskFull)
