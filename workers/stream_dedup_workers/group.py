"""One process of ``stream-dedup groups``: group states in Redis and a transport around the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from stream_dedup import __version__
from stream_dedup.index.group_store import GroupStore
from stream_dedup.settings import Settings
from stream_dedup.stream.grouping import GroupLoop
from stream_dedup.stream.keeper import keeper_of
from stream_dedup_workers import process
from stream_dedup_workers.pulse import Pulse

log = logging.getLogger(__name__)


def run(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Keep groups until SIGTERM; the entry point of a spawned process (see ``process.run``)."""
    process.run(settings, instance, number, pulse, _work)


def _work(settings: Settings, identity: str, pulse: Pulse, stop: Callable[[], bool]) -> None:
    """Build everything, run the loop, and take everything down in the opposite order."""
    store = GroupStore.connect(settings)
    try:
        pulse.beat()
        keeper = keeper_of(settings, store, time, pulse.beat)
        keeper.open()
        with process.transport_of(settings, identity, pulse, stop) as (transport, beat):
            log.info(
                "started as %(transactional_id)s",
                {"version": __version__, "transactional_id": identity},
            )
            GroupLoop(settings, transport, keeper, time, stopping=stop, beat=beat).run()
    finally:
        store.close()
