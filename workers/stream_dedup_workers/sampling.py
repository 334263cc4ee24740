"""The metrics of the index: a thread of each worker process, of which one takes the samples.

All of them report the latest sample, whoever took it. So every worker tells the same of the index,
none tells what was true when it had its last turn, and none is missed when it dies.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from stream_dedup import metrics
from stream_dedup.errors import StreamDedupError
from stream_dedup.fingerprint.planned import planned
from stream_dedup.index.connection import connect
from stream_dedup.index.keys import Layout
from stream_dedup.index.sample import Node, Sample, Sampler
from stream_dedup.settings import Settings
from stream_dedup_workers.aside import Aside, StoppedError, aside

log = logging.getLogger(__name__)

#: Times in an interval that a process looks for a new sample, or for its turn.
_LOOKS = 4


@contextmanager
def sampling(settings: Settings, layout: Layout) -> Iterator[None]:
    """Report samples of the index while the block runs, unless ``sample_interval`` is 0."""
    if not settings.sample_interval:
        yield
        return
    with aside("sample", Samples(settings, layout)):
        yield


class Samples(Aside):
    """Takes samples whenever it is this process's turn, and reports all."""

    def __init__(self, settings: Settings, layout: Layout) -> None:
        super().__init__()
        self._settings = settings
        self._layout = layout
        self._report = Report(settings)

    def run(self) -> None:
        """Go on until stopped; what goes wrong is tried again."""
        failed = False
        while not self._stopped.is_set():
            try:
                with closing(connect(self._settings)) as client:
                    self._follow(Sampler(client, self._layout, self._settings.sample_interval))
            except StreamDedupError as error:
                # Told once: what keeps a sample from being taken keeps the worker from its work.
                log.log(
                    logging.DEBUG if failed else logging.WARNING,
                    "no sample of the index, trying again: %s",
                    error,
                )
                failed = True
            self._wait()

    def _follow(self, sampler: Sampler) -> None:
        """Report each new sample until stopped."""
        while not self._stopped.is_set():
            try:
                sample = sampler.take(self._pause) if sampler.turn() else sampler.latest()
            except StoppedError:
                return
            if sample is not None:
                self._report.tell(sample)
            self._wait()

    def _wait(self) -> None:
        self._stopped.wait(self._settings.sample_interval / _LOOKS)


class Report:
    """Sets the metrics of the index to what a sample found, and those of its plan beside them."""

    def __init__(self, settings: Settings) -> None:
        self._expected = settings.expected_originals
        self._plan = planned(settings)

    def tell(self, sample: Sample) -> None:
        """Set them."""
        metrics.index_originals.set(sample.originals)
        metrics.index_planned_originals.set(self._expected)
        share = sample.originals / self._expected
        metrics.index_planned_candidates.set(self._plan.candidates_per_probe * share)
        for table, entries in sample.entries.items():
            metrics.index_entries.labels(table).set(entries)
        metrics.index_fullest_key_entries.set(max(sample.longest.values(), default=0))
        metrics.index_mean_key_entries.set(sample.mean)
        metrics.redis_memory_bytes.labels("planned").set(self._plan.memory)
        if sample.nodes is not None:
            self._tell_memory(sample.nodes)
        metrics.index_sample_timestamp_seconds.set(sample.time)

    def _tell_memory(self, nodes: list[Node]) -> None:
        limited = all(node.limit for node in nodes)
        metrics.redis_memory_bytes.labels("used").set(sum(node.used for node in nodes))
        metrics.redis_memory_bytes.labels("max").set(
            sum(node.limit for node in nodes) if limited else 0
        )
        fullest = max((node.used / node.limit for node in nodes if node.limit), default=0.0)
        metrics.redis_fullest_node_ratio.set(fullest)
