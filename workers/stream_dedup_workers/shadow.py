"""The shadow of one worker process."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.shadow import Comparison
from stream_dedup.stream.shadow_report import MetricsReport
from stream_dedup.stream.shadow_settings import shadow_settings
from stream_dedup.stream.shadow_topic import open_sink
from stream_dedup.stream.shadowing import Shadow
from stream_dedup_workers.sweeping import sweeping

log = logging.getLogger(__name__)


@contextmanager
def shadowed(settings: Settings, process: str) -> Iterator[Shadow | None]:
    """Have a shadow within the block, if the settings name one.

    Nothing is connected before its first batch: the shadow's Redis may be away.

    Args:
        settings: the live settings.
        process: name of this process, as no other has it.

    Raises:
        SettingsError: the shadow's settings cannot be used.
    """
    found = shadow_settings(settings)
    if found is None:
        yield None
        return
    begin = partial(Comparison.of, settings, found)
    report = MetricsReport(begin, process, open_sink(settings, f"{process}-shadow"), time)
    shadow = Shadow(
        partial(_connect, found), report, settings.shadow_backlog, forgets=found.index_ids
    )
    log.info("started the shadow of %(file)s", {"file": settings.shadow})
    with closing(shadow), sweeping(found, shadow=True):
        yield shadow


def _connect(shadow: Settings) -> Deduplicator:
    return Deduplicator(shadow, index=RedisIndex.connect(shadow))
