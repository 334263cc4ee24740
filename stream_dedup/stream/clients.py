"""Which Kafka client a worker uses: the setting ``transport``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings
from stream_dedup.stream.transport import Transport


def check_installed(settings: Settings) -> None:
    """Check that the client that the settings name is there.

    Raises:
        SettingsError: it is not.
    """
    if settings.transport == "confluent" and importlib.util.find_spec("confluent_kafka") is None:
        msg = (
            "The transport confluent needs the package confluent-kafka, which is not installed. "
            "Install it (pip install 'stream-dedup[confluent]'), or set transport to kafka-python."
        )
        raise SettingsError(msg)


def open_transport(
    settings: Settings,
    transactional_id: str,
    *,
    beat: Callable[[], None] = lambda: None,
    on_assigned: Callable[[int], None] = lambda _partitions: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Transport:
    """Open the transport that the settings name; only its client is loaded.

    Args:
        settings: which one, brokers, topics, group and limits.
        transactional_id: the same for every life of one worker process, and of no other.
        beat: called whenever there was progress.
        on_assigned: called with the number of partitions after each rebalance.
        stopping: tells whether to end; then nothing is waited for any more.

    Raises:
        SettingsError: its client is not installed.
        ServiceError: no broker answers, or it refuses this producer.
    """
    check_installed(settings)
    if settings.transport == "confluent":
        from stream_dedup.stream.confluent import ConfluentTransport  # noqa: PLC0415 - optional

        return ConfluentTransport(
            settings, transactional_id, beat=beat, on_assigned=on_assigned, stopping=stopping
        )
    from stream_dedup.stream.kafka import KafkaTransport  # noqa: PLC0415 - the other is not loaded

    return KafkaTransport(
        settings, transactional_id, beat=beat, on_assigned=on_assigned, stopping=stopping
    )
