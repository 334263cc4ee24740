"""``wait_replicas``: nothing is decided on writes that too few replicas have."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from stream_dedup import Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import index_batch
from stream_dedup.index.claims import Mode
from stream_dedup.index.driver import Claims, Driver
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisServer

FIRST = Document("a", "one text of several words for all of them", source="1")
COPY = Document("b", FIRST.text, source="2")


@pytest.fixture
def primary() -> Iterator[RedisServer]:
    with RedisServer(extra=("--repl-diskless-sync-delay", "0"), local=True) as server:
        yield server


@pytest.fixture
def replica(primary: RedisServer) -> Iterator[RedisServer]:
    extra = ("--replicaof", "127.0.0.1", str(primary.port))
    with RedisServer(extra=extra, local=True) as server, server.client() as client:
        deadline = time.monotonic() + 20
        while client.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield server


def deduplicator(server: RedisServer, replicas: int) -> Deduplicator:
    settings = Settings(redis_url=server.url, wait_replicas=replicas, wait_timeout=0.3)
    return Deduplicator(settings, index=RedisIndex.connect(settings))


def in_step(server: RedisServer) -> Deduplicator:
    """Enter once the replica has caught up."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return deduplicator(server, replicas=1)
        except ServiceError:
            assert time.monotonic() < deadline


def decide_in_the_end(waiting: Deduplicator, document: Document) -> Status:
    """Try again until the replica has caught up."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return waiting.decide([document])[0].status
        except ServiceError:
            assert time.monotonic() < deadline


def test_what_was_decided_survives_the_loss_of_the_primary(
    primary: RedisServer, replica: RedisServer
) -> None:
    with in_step(primary) as before:
        decide_in_the_end(before, FIRST)
    primary.kill()
    with replica.client() as client:
        client.replicaof("NO", "ONE")

    with deduplicator(replica, replicas=0) as after:
        decision = after.decide([COPY])[0]

    assert decision.status is Status.EXACT_DUPLICATE
    assert decision.original_id == FIRST.id


def test_too_few_replicas_are_an_error_and_the_batch_can_be_tried_again(
    primary: RedisServer, replica: RedisServer
) -> None:
    with in_step(primary) as waiting:
        replica.pause()
        with pytest.raises(ServiceError, match=r"Only 0 of 1 replicas.*lower wait_replicas"):
            waiting.decide([FIRST])
        replica.resume()

        statuses = [decide_in_the_end(waiting, document) for document in (FIRST, COPY)]

    assert statuses == [Status.ORIGINAL, Status.EXACT_DUPLICATE]


def test_nothing_is_attached_to_an_original_that_no_replica_has(
    primary: RedisServer, replica: RedisServer
) -> None:
    """A fate that another worker has written a moment ago, on a connection of its own."""
    in_step(primary).close()
    settings = Settings(redis_url=primary.url, wait_replicas=1, wait_timeout=0.3)
    reader = RedisIndex.connect(settings)
    alone = RedisIndex.connect(settings.model_copy(update={"wait_replicas": 0}))
    driver, claims = announced(alone, FIRST)
    rounds = 0

    def commit_between() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:  # the reader has met the claim, and comes to read its fate
            with replica.client() as client:  # it takes over without what comes now
                client.replicaof("NO", "ONE")
            driver.commit(np.zeros(1, np.int64), claims)

    reader.store.progress = commit_between
    attaching = Deduplicator(settings, index=reader)
    with pytest.raises(ServiceError, match=r"Only 0 of 1 replicas"):
        attaching.decide([COPY])
    attaching.close()
    primary.kill()
    alone.close()
    with deduplicator(replica, replicas=0) as after:
        assert after.decide([COPY])[0].status is Status.ORIGINAL


def test_nobody_enters_an_index_that_no_replica_knows_of(
    primary: RedisServer, replica: RedisServer
) -> None:
    in_step(primary).close()
    replica.pause()
    with pytest.raises(ServiceError, match=r"Only 0 of 1 replicas"):
        deduplicator(primary, replicas=1)
    replica.resume()


def announced(index: RedisIndex, document: Document) -> tuple[Driver, Claims]:
    """Announce a claim for a document, up to its commit."""
    prints = Fingerprinter(Settings()).fingerprint([document.text])
    batch = index_batch([document], prints)
    driver = Driver(index.store, batch, index.matcher, index.records)
    claims = index.mint(1)
    for _ in driver.announce(np.zeros(1, np.int64), claims, Mode.IF_EMPTY):
        pass
    return driver, claims
