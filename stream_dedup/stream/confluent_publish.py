"""Sends the messages of one transaction through librdkafka and makes sure that each arrived."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from stream_dedup.settings import Settings
from stream_dedup.stream.bounded import bounded, leave_behind
from stream_dedup.stream.confluent_clients import OPEN_TIMEOUT, discard, open_producer
from stream_dedup.stream.kafka_limits import (
    DELIVERY_TIMEOUT,
    OFFSETS_TIMEOUT,
    OVERTIME,
    PRODUCER_TIMEOUT,
)
from stream_dedup.stream.transactional import RecordRefusedError, position_of
from stream_dedup.stream.transport import Output

#: Answers of a broker that will be the same for the same record next time.
_REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        # What the others of a batch get; which of it is refused may not be said at all.
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
#: Time after which the number of partitions of a topic is asked for again.
ROUTES_SECONDS = 300.0
#: Wait for room when too much is on its way already.
_ROOM_SECONDS = 0.05
#: Time between two looks for failures while messages are under way.
_FLUSH_SECONDS = 0.1
#: Lets the client's partitioner choose.
_BY_KEY = -1


class Outbox:
    """One producer, from ``init_transactions`` to its first failure.

    Args:
        settings: brokers, topics and limits.
        transactional_id: its name.
        batch_bytes: uncompressed bytes of one batch of one partition.
        beat: called at each sign of progress.
        stopping: tells whether to end; then nothing is waited for any more.

    Raises:
        KafkaException: there is no working with the brokers.
        OverdueError: the client does not say so in time.
    """

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        batch_bytes: int,
        beat: Callable[[], None],
        stopping: Callable[[], bool],
    ) -> None:
        failures: list[Any] = []
        troubles: list[Any] = []
        self._failures = failures
        self._troubles = troubles
        self._stopping = stopping
        self._input = settings.input_topic
        self._beat = beat
        #: How many partitions each output topic has, and whether these are as many as the input's.
        self._routes: dict[str, tuple[int, bool]] = {}
        self._routed = time.monotonic()
        # The functions hold the lists, not this object, so that the client can end by itself.
        self._producer: Any = bounded(
            "init_transactions",
            lambda: open_producer(
                settings,
                transactional_id,
                batch_bytes,
                lambda error, _: failures.append(error),
                troubles.append,
            ),
            PRODUCER_TIMEOUT,
            stopping,
        )
        self._produce: Any = self._producer.produce
        # What it took to open is over.
        self._producer.poll(0)
        troubles.clear()

    def shaken(self) -> bool:
        """Tell whether the client had trouble with a broker since it was opened.

        A broker that was away is another object of the client when it is back, and sending offsets
        may wait for the former (librdkafka issue 5511).
        """
        self._producer.poll(0)
        return bool(self._troubles)

    def discard(self) -> None:
        """End it without waiting for anything that it still wants to send."""
        producer, self._producer, self._produce = self._producer, None, None
        # With the last reference the client waits for its threads, which may be in a call.
        leave_behind("discard", partial(discard, producer))

    def begin(self) -> None:
        """Begin a transaction."""
        now = time.monotonic()
        if now - self._routed > ROUTES_SECONDS:
            self._routes.clear()
            self._routed = now
        self._producer.begin_transaction()

    def commit(self, offsets: Sequence[Any], membership: Any) -> None:
        """Add the input's offsets and commit."""
        producer = self._producer
        bounded(
            "send_offsets_to_transaction",
            lambda: producer.send_offsets_to_transaction(
                list(offsets), membership, OFFSETS_TIMEOUT
            ),
            OFFSETS_TIMEOUT + OVERTIME,
            self._stopping,
        )
        bounded(
            "commit_transaction",
            lambda: producer.commit_transaction(DELIVERY_TIMEOUT),
            DELIVERY_TIMEOUT + OVERTIME,
            self._stopping,
        )

    def send_all(self, outputs: Sequence[Output]) -> None:
        """Send everything at once, and return when all of it has arrived.

        Raises:
            RecordRefusedError: the broker refuses a record, maybe unknown which.
            KafkaException: something did not arrive.
        """
        send = self._send
        for output in outputs:
            send(output)
        self._beat()
        self._flush()
        self._beat()

    def _send(self, output: Output) -> None:
        topic, record, value, headers, key, timestamp, by_key = output
        count, by_number = self._routes.get(topic) or self._route(topic)
        # Where both topics have as many partitions an answer keeps its number, whichever
        # partitioner chose it: order and co-partitioning stay. Elsewhere a key decides as the
        # default partitioner would, and messages without one keep their order.
        keeps_number = key is None or (by_number and not by_key)
        partition = record.partition % count if keeps_number else _BY_KEY
        # Zero means "now" to the client; a millisecond later is the nearest that can be said.
        moment = 0 if timestamp is None else timestamp or 1
        try:
            self._produce(topic, value, key, partition, timestamp=moment, headers=headers)
        except BufferError:
            self._make_room()
            self._send(output)
        except (TypeError, ValueError, OverflowError) as error:  # the client cannot write it down
            raise RecordRefusedError(error, position_of(output)) from error
        except KafkaException as error:
            if error.args[0].code() in _REFUSALS:
                raise RecordRefusedError(error, position_of(output)) from error
            # A refusal ends the transaction; this may be the error that follows from it.
            self._producer.poll(0)
            self._check()
            raise

    def _route(self, topic: str) -> tuple[int, bool]:
        """Return how many partitions a topic has, and whether answers keep their number there."""
        count = self._partitions_of(topic)
        route = self._routes[topic] = (count, count == self._partitions_of(self._input))
        return route

    def _partitions_of(self, topic: str) -> int:
        found = self._producer.list_topics(topic, OPEN_TIMEOUT).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)

    def _make_room(self) -> None:
        """Wait until less is under way, or until something of it failed."""
        self._producer.poll(_ROOM_SECONDS)
        self._check()
        self._beat()

    def _flush(self) -> None:
        deadline = time.monotonic() + DELIVERY_TIMEOUT
        # In steps, because with one failed message the rest may wait for the end of a transaction
        # that will never come.
        while left := self._producer.flush(_FLUSH_SECONDS):
            self._check()
            if time.monotonic() > deadline:
                msg = f"{left} messages did not arrive in time"
                raise TimeoutError(msg)
        self._check()

    def _check(self) -> None:
        """Raise a refusal, or else the first failure."""
        failures = self._failures
        if not failures:
            return
        # A refusal is not always the first to be reported; the others failed because of it.
        refusal = next((one for one in failures if one.code() in _REFUSALS), None)
        if refusal is not None:
            raise RecordRefusedError(KafkaException(refusal), None)
        raise KafkaException(failures[0])
