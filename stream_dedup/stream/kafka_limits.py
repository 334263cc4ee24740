"""The limits that both Kafka clients work within, and a short name for what went wrong."""

from __future__ import annotations

from stream_dedup.settings import Settings

#: Without a heartbeat for this long a worker's partitions go to others. Heartbeats come from a
#: thread of the client, so this bounds the pause after a kill -9, not the time of a batch.
SESSION_TIMEOUT_MS = 10_000
#: Time between two polls after which a worker is taken for stuck. The loop gives up earlier. It is
#: also what the group waits for a member that was lost without a trace, as when its broker crashed.
MAX_POLL_INTERVAL_MS = 180_000
#: Bytes of one fetch from one broker, and of one partition in it, as they lie on its disk. What
#: they unpack to is another matter; see ``unpacked_limit`` and the transports.
FETCH_MAX_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_MAX_BYTES = 2 * 1024 * 1024
#: Uncompressed bytes of one produced batch of one partition: as few requests as possible while
#: below the broker's default limit of 1,048,588, whatever the compression yields.
PRODUCE_BATCH_BYTES = 900_000
#: Room that key, headers and annotation may take beside the largest value.
ENVELOPE_BYTES = 4 * 1024 * 1024
#: Time for which a batch that is not full is held back. Batches are closed by the flush at the end
#: of a transaction, so this only keeps them whole until then.
LINGER_MS = 50
#: Longest wait for the broker's answer to produced records; halved for a single request.
DELIVERY_TIMEOUT = 30.0
#: Time in which all of a transaction has arrived or failed; far below the supervisor's.
SENDING_TIMEOUT = 2 * DELIVERY_TIMEOUT
#: Time in which the group's coordinator takes the offsets of a transaction; it takes milliseconds.
OFFSETS_TIMEOUT = 10.0
#: Time for a producer to open: bootstrap, and the end of the transaction of its former life.
PRODUCER_TIMEOUT = 60.0
#: Time to leave the group in.
CLOSE_TIMEOUT = 5.0
#: What calls that have a time limit of their own may take beyond it.
OVERTIME = 2.0
#: Time for bootstrap, for metadata and for the coordinator's answer when a producer opens.
OPEN_TIMEOUT_MS = 20_000
#: Longest pause of a client between two tries to reach a broker.
RECONNECT_MS = 5000


def unpacked_limit(settings: Settings) -> int:
    """Return the bytes that a batch may unpack to, with room for the largest document."""
    return max(settings.max_unpacked_bytes, settings.max_document_bytes + ENVELOPE_BYTES)


def describe(error: BaseException) -> str:
    """Name an error in a short line that quotes no record."""
    text = " ".join(str(error).split())[:160]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
