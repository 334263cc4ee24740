"""A worker needs no more of Redis than docs/redis.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_dedup import Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.cli.main import cli
from stream_dedup.index.functions import CLAIMS
from stream_dedup.index.group_store import GroupStore, Held, Swap
from stream_dedup.index.group_view import GroupView
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.sample import Sampler
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
    monkeypatch.setattr("stream_dedup.index.found.PAGE", 1)
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
    with closing(RedisIndex.connect(settings)) as index:
        sampler = Sampler(index.store.client, index.store.layout, 60)
        assert sampler.turn()
        assert sampler.take() == sampler.latest()
    with server.client() as client:
        assert client.info("commandstats")["cmdstat_zrank"]["calls"]
    with pytest.raises(ServiceError, match="lacks a permission"):
        RedisIndex.connect(Settings(redis_url=url, redis_namespace="other"))


def test_the_documented_user_can_look_a_group_up(server: RedisServer) -> None:
    (found,) = re.findall(r"`(\+get \+hello[^`]*)`", GROUPS)
    name = "0123456789abcdef01234567"
    with closing(GroupStore.connect(Settings(redis_url=server.url))) as groups:
        groups.begin()
        groups.complete()
        groups.swap([Swap(name, 0, Held(1, b"{}"))])
    with server.client() as client:
        client.acl_setuser("reader", enabled=True, passwords=["+pw"], reset=True)
        rules = found.replace("NAMESPACE", "sd").split()
        client.execute_command("ACL", "SETUSER", "reader", *rules)  # type: ignore[no-untyped-call]
    url = server.url.replace("redis://", "redis://reader:pw@")

    with closing(GroupView.connect(Settings(redis_url=url))) as view:
        assert view.look_up(name) == b"{}"


def test_functions_that_workers_may_not_load_are_loaded_for_them(server: RedisServer) -> None:
    (found,) = re.findall(r"`(\+function\|load[^`]*)`", PAGE)
    worker = re.findall(r"`(\+fcall[^`]*)`", PAGE)[0].replace("NAMESPACE", "sd")
    with server.client() as client:
        for user, rules in (("deployer", found), ("worker", worker)):
            client.acl_setuser(user, enabled=True, passwords=["+pw"], reset=True)
            client.execute_command("ACL", "SETUSER", user, *rules.split())  # type: ignore[no-untyped-call]
    settings = Settings(redis_url=server.url.replace("redis://", "redis://worker:pw@"))

    def load(user: str) -> Result:
        url = server.url.replace("redis://", f"redis://{user}:pw@")
        return CliRunner().invoke(cli, ["functions", "load"], env={"STREAM_DEDUP_REDIS_URL": url})

    with pytest.raises(ServiceError, match="stream-dedup functions load"):
        RedisIndex.connect(settings)
    refused, loaded, again = load("worker"), load("deployer"), load("deployer")

    assert refused.exit_code == 69
    assert f"may not load {CLAIMS.name}" in refused.stderr
    assert loaded.exit_code == again.exit_code == 0, loaded.output
    RedisIndex.connect(settings).close()
