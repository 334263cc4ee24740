"""What happens between a worker and a server: delay, resets, silence, a thin line (Toxiproxy)."""

from __future__ import annotations

from typing import ClassVar

from tests.campaign.faults.base import Fault, Lane, Span
from tests.services.toxiproxy import Toxic

_LATENCY = Toxic("latency", {"latency": 300, "jitter": 100})
_RESET = Toxic("reset_peer", {"timeout": 100})
#: Nothing goes through, and nobody is told.
_BLACK_HOLE = Toxic("timeout", {"timeout": 0})
#: Kilobytes a second.
_SLOW = Toxic("bandwidth", {"rate": 20})


class _OnLine(Fault):
    """The line to a broker, or to a node of Redis, which the others use to replicate it too."""

    toxic: ClassVar[Toxic]
    lasts = Span(4, 8)
    lasts_long = Span(4, 20)

    def begin(self) -> None:
        lines = self.fleet.lines(self.lane)
        self.hits = lines[int(self.share * len(lines))]
        self.fleet.proxy.poison(self.hits, self.toxic)

    def end(self) -> None:
        self.fleet.proxy.cure(self.hits)


def _on_line(lane: Lane, what: str, toxic: Toxic) -> type[Fault]:
    name = f"{lane.capitalize()} {what}"
    about = {"name": name, "lane": lane, "toxic": toxic, "__doc__": f"{what} on a line."}
    return type(f"{lane.capitalize()}Line", (_OnLine,), about)


KINDS = tuple(
    _on_line(lane, what, toxic)
    for lane in (Lane.KAFKA, Lane.REDIS)
    for what, toxic in (
        ("latency", _LATENCY),
        ("connections reset", _RESET),
        ("black hole", _BLACK_HOLE),
        ("slow link", _SLOW),
    )
)
