"""One worker process: Redis index, deduplicator and Kafka transport around the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from stream_dedup import __version__, metrics
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.stream.handover import await_rebuild
from stream_dedup.stream.loop import Loop
from stream_dedup.types import Decision, Document, DocumentId
from stream_dedup_workers import process
from stream_dedup_workers.pulse import Pulse
from stream_dedup_workers.sampling import sampling
from stream_dedup_workers.shadow import shadowed
from stream_dedup_workers.sweeping import sweeping

log = logging.getLogger(__name__)


def run(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Annotate until SIGTERM; the entry point of a spawned process (see ``process.run``)."""
    process.run(settings, instance, number, pulse, _work)


class CountedDeduplicator:
    """Decides through the Redis index, and counts what its claims went through."""

    def __init__(self, settings: Settings) -> None:
        self._index = RedisIndex.connect(settings)
        self._deduplicator = Deduplicator(settings, index=self._index)
        self.configuration = self._deduplicator.configuration
        self.layout = self._index.store.layout
        #: Whether there was no index before.
        self.begins = self._index.store.begins

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Decide a batch, in order."""
        decisions = self._deduplicator.decide(documents)
        counts = self._index.counts
        metrics.claims_voided_total.inc(counts.voided)
        metrics.claims_retried_total.inc(counts.retried)
        metrics.probes_total.inc(counts.probes)
        metrics.capped_probes_total.inc(counts.capped)
        metrics.candidates_total.inc(counts.candidates)
        metrics.verifications["accepted"].inc(counts.accepted)
        metrics.verifications["rejected"].inc(counts.rejected)
        metrics.late_documents_total.inc(counts.late)
        metrics.future_documents_total.inc(counts.ahead)
        return decisions

    def await_rebuild(self, beat: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """Wait for the rebuild of the index to end, if there is one (see ``handover``)."""
        await_rebuild(self._deduplicator.settings, self._index, beat=beat, stopping=stopping)

    def tell_progress(self, beat: Callable[[], None]) -> None:
        """Have this called with each round of calls to Redis, of which a batch may take many."""
        self._index.store.progress = beat

    def forget(self, ids: Sequence[DocumentId]) -> list[int]:
        """Forget the originals that have these ids."""
        return self._deduplicator.forget(ids)

    def settle(self) -> None:
        """Forget what has been replaced."""
        self._deduplicator.settle()

    def discard(self) -> None:
        """Replace nothing: the latest decisions were not published."""
        self._deduplicator.discard()

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
        if deduplicator.begins:
            log.warning(
                "the index %(namespace)r begins, empty; if it held originals, Redis has lost them",
                {"namespace": deduplicator.layout.namespace},
            )
        pulse.beat()
        deduplicator.await_rebuild(pulse.beat, stop)
        with (
            process.transport_of(settings, identity, pulse, stop) as (transport, beat),
            sweeping(settings),
            sampling(settings, deduplicator.layout),
        ):
            log.info(
                "started, configuration %(configuration)s",
                {
                    "configuration": deduplicator.configuration,
                    "version": __version__,
                    "transactional_id": identity,
                },
            )
            deduplicator.tell_progress(beat)
            loop = Loop(
                settings, transport, deduplicator, time, stopping=stop, beat=beat, observer=shadow
            )
            loop.run()
