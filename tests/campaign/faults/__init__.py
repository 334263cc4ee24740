"""Every kind of fault."""

from __future__ import annotations

from tests.campaign.faults import kafka, network, redis, workers
from tests.campaign.faults.base import Fault

_ALL: tuple[type[Fault], ...] = (*workers.KINDS, *kafka.KINDS, *redis.KINDS, *network.KINDS)
KINDS = {kind.name: kind for kind in _ALL}
