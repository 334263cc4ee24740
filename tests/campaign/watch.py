"""What goes in and what comes out, and when: committed records, read beside the trouble."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

#: Messages taken at a time, and the longest wait for the first of them, s.
_MESSAGES, _WAIT = 2000, 0.1


class Timeline(NamedTuple):
    """How many records there were in each partition, and when.

    Attributes:
        times: moments, monotonic s; float64, shape (m,), increasing.
        came: records of the input up to that moment; int64, shape (m, partitions).
        went: committed answers to them, annotated or dead letters; the same shape.
    """

    times: npt.NDArray[np.float64]
    came: npt.NDArray[np.int64]
    went: npt.NDArray[np.int64]


class Watch:
    """Counts records in a thread of its own, while it is entered.

    An answer is in the partition of the record that it answers.
    """

    def __init__(self, bootstrap: str, source: str, sinks: Sequence[str], partitions: int) -> None:
        """Describe it.

        Args:
            bootstrap: brokers, as those see them who are no part of the trouble.
            source: the input topic.
            sinks: the topics for answers.
            partitions: of each.
        """
        self._source = source
        self._topics = [source, *sinks]
        self._partitions = partitions
        self._counts = np.zeros((2, partitions), np.int64)
        self._moments: list[tuple[float, npt.NDArray[np.int64]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "campaign-watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    def __enter__(self) -> Self:
        self._consumer.assign(
            [
                TopicPartition(topic, number, OFFSET_BEGINNING)
                for topic in self._topics
                for number in range(self._partitions)
            ]
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    @property
    def came(self) -> int:
        """Records of the input so far."""
        return int(self._counts[0].sum())

    @property
    def went(self) -> int:
        """Answers so far."""
        return int(self._counts[1].sum())

    def answers(self) -> npt.NDArray[np.int64]:
        """Return the answers so far in each partition."""
        went: npt.NDArray[np.int64] = self._counts[1]
        return went

    def goes_on(self, before: npt.NDArray[np.int64]) -> bool:
        """Whether every partition has had an answer since there were so many, or nothing waits."""
        came, went = self._counts
        return bool(((went > before) | (went >= came)).all())

    def timeline(self) -> Timeline:
        """Return what was seen until now."""
        moments = list(self._moments)
        counts = np.array([counts for _, counts in moments]).reshape(-1, 2, self._partitions)
        times = np.array([moment for moment, _ in moments], np.float64)
        return Timeline(times, counts[:, 0], counts[:, 1])

    def _run(self) -> None:
        while not self._stop.is_set():
            taken = self._consumer.consume(_MESSAGES, _WAIT)
            counts = self._counts.copy()
            for message in taken:
                if message.error() is None:
                    counts[int(message.topic() != self._source), message.partition()] += 1
            if taken:
                self._counts = counts
                self._moments.append((time.monotonic(), counts))
