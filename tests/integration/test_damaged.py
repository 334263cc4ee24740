"""Batches that a broker takes and clients cannot read, or whose answers no topic takes."""

from __future__ import annotations

import time

import pytest
from kafka.admin import ConfigResource, KafkaAdminClient  # type: ignore[import-untyped]

from stream_dedup.stream.headers import HEADER_OFFSET, HEADER_REASON, HEADER_SOURCE
from tests.services.batches import batch, record, send
from tests.services.worker import Sent, Worker, document


def answers(worker: Worker, letters: int, annotated: int) -> tuple[list[int], set[bytes]]:
    """Return the input offsets that are answered, and the reasons of dead letters."""
    found = worker.receive(worker.topics.dead_letter, letters)
    offsets = [int(dict(one.headers)[HEADER_OFFSET]) for one in found]
    reasons = {dict(one.headers)[HEADER_REASON] for one in found}
    sources = (
        dict(one.headers)[HEADER_SOURCE] for one in worker.receive(worker.topics.output, annotated)
    )
    offsets += [int(source.split(b"/")[2]) for source in sources]
    return sorted(offsets), reasons


def offer(worker: Worker, written: bytes) -> bool:
    """Send a batch; return whether the broker takes it."""
    try:
        send(worker.kafka.bootstrap, worker.topics.input, written)
    except AssertionError:
        return False
    return True


@pytest.mark.timeout(240)
def test_batches_with_a_damaged_record_are_got_past(worker: Worker) -> None:
    worker.send([Sent(document(id="first", text="the ferry leaves at nine"))])
    written = record(0, b"not JSON", [(b"name", b"value")])
    taken = 0
    for at in range(len(written)):
        for byte in (0x01, 0x4F, 0x7F, 0xFF):
            damaged = bytearray(written)
            damaged[at] = byte
            taken += offer(worker, batch("none", 1, iter([bytes(damaged)])))
    assert taken > len(written)
    worker.send([Sent(document(id="last", text="the ferry leaves at noon"))])
    worker.start()

    offsets, reasons = answers(worker, taken, 2)

    assert offsets == list(range(taken + 2))
    assert b"unreadable" in reasons
    assert b"fatal" not in reasons


@pytest.mark.parametrize("worker", ["confluent"], indirect=True)
@pytest.mark.timeout(240)
def test_any_timestamp_ends_in_an_answer(worker: Worker) -> None:
    with KafkaAdminClient(bootstrap_servers=worker.kafka.bootstrap) as admin:
        anything = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        admin.alter_configs([ConfigResource("TOPIC", worker.topics.input, anything)])
    time.sleep(0.5)
    taken = 0
    for moment in (-5, -(2**62), 0, 2**40, 2**62, 2**63 - 1, 253402300800000):
        for value in (document(id=str(moment), text=f"the ferry of {moment}"), b"not JSON"):
            taken += offer(worker, batch("none", 1, iter([record(0, value)]), moment=moment))
    assert taken > 6
    worker.send([Sent(document(id="last", text="the train leaves at noon"))])
    worker.start()

    worker.until(lambda: worker.receive(worker.topics.output, 1)[-1].offset >= 0)
    deadline = time.monotonic() + 60
    while len(found := answers(worker, 1, 1)[0]) < taken + 1 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert found == list(range(taken + 1))
