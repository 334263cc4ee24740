"""The shadow of one worker process, and what is checked about it before the start."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from stream_dedup.deduplicator import Deduplicator, Stages
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.settings_sources import load_shadow
from stream_dedup.shadow import Comparison
from stream_dedup.stream.messages import Decoder
from stream_dedup.stream.shadow_report import MetricsReport
from stream_dedup.stream.shadow_topic import open_sink
from stream_dedup.stream.shadowing import Shadow
from stream_dedup_workers.sweeping import sweeping

log = logging.getLogger(__name__)


def shadow_settings(settings: Settings) -> Settings | None:
    """Return the settings of the shadow, if there is one.

    Raises:
        SettingsError: they cannot be used beside the live ones.
    """
    if settings.shadow is None:
        return None
    shadow = load_shadow(settings, settings.shadow, in_redis=True)
    Decoder(shadow)  # it knows which fields a configuration needs
    Stages(shadow)  # and these which files
    return shadow


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
    log.info("started the shadow of %s", settings.shadow)
    with closing(shadow), sweeping(found, shadow=True):
        yield shadow


def _connect(shadow: Settings) -> Deduplicator:
    return Deduplicator(shadow, index=RedisIndex.connect(shadow))
