"""A worker needs no more of Redis than docs/redis.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stream_dedup import Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.index import store
from stream_dedup.index.group_store import GroupStore, Held, Swap
from stream_dedup.index.group_view import GroupView
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisServer

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "redis.md").read_text()
GROUPS = (DOCS / "groups.md").read_text()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def test_the_documented_user_can_work_and_nothing_else(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PAGE", 1)
    rules = re.findall(r"`(\+fcall[^`]*)`", PAGE)[0].replace("NAMESPACE", "sd").split()
    RedisIndex.connect(Settings(redis_url=server.url)).close()
    with server.client() as client:
        client.acl_setuser("worker", enabled=True, passwords=["+pw"], reset=True)
        client.execute_command("ACL", "SETUSER", "worker", *rules)  # type: ignore[no-untyped-call]
    url = server.url.replace("redis://", "redis://worker:pw@")
    # The first two share table keys and are not near, so that the third finds two pages of them.
    ends = ["with one end", "that closes in another way", "with one end"]
    start = " ".join(f"word{number}" for number in range(20))
    documents = [Document(n, f"{start} {end}", source=str(n)) for n, end in enumerate(ends)]

    settings = Settings(redis_url=url)
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        statuses = [deduplicator.decide([document])[0].status for document in documents]

    assert statuses == [Status.ORIGINAL, Status.ORIGINAL, Status.EXACT_DUPLICATE]
    with server.client() as client:
        assert client.info("commandstats")["cmdstat_zrank"]["calls"]
    with pytest.raises(ServiceError, match="lacks a permission"):
        RedisIndex.connect(Settings(redis_url=url, redis_namespace="other"))


def test_the_documented_user_can_look_a_group_up(server: RedisServer) -> None:
    (found,) = re.findall(r"`(\+get \+hello[^`]*)`", GROUPS)
    name = "0123456789abcdef01234567"
    with closing(GroupStore.connect(Settings(redis_url=server.url))) as groups:
        groups.enter()
        groups.complete()
        groups.swap([Swap(name, 0, Held(1, b"{}"))])
    with server.client() as client:
        client.acl_setuser("reader", enabled=True, passwords=["+pw"], reset=True)
        rules = found.replace("NAMESPACE", "sd").split()
        client.execute_command("ACL", "SETUSER", "reader", *rules)  # type: ignore[no-untyped-call]
    url = server.url.replace("redis://", "redis://reader:pw@")

    with closing(GroupView.connect(Settings(redis_url=url))) as view:
        assert view.look_up(name) == b"{}"
