"""The doctor on real servers: a healthy Redis, then each defect made, found and mended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.doctor import redis_look
from stream_dedup.doctor.examination import REDIS, of_service
from stream_dedup.doctor.findings import Finding, Level
from stream_dedup.index.functions import CLAIMS
from stream_dedup.index.redis import RedisIndex
from tests.services import remedies
from tests.services.process import free_ports
from tests.services.redis import RedisCluster, RedisServer

PAGE = (Path(__file__).parents[2] / "docs" / "redis.md").read_text()
HEALTHY = ("--maxmemory", "2gb", "--appendonly", "yes", "--enable-debug-command", "yes")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(extra=HEALTHY, local=True) as server:
        yield server


@pytest.fixture
def settings(server: RedisServer) -> Settings:
    """Those of a healthy server with a small index."""
    with server.client() as client:
        client.flushall()
        client.function_flush()
        client.config_set("maxmemory", "2gb")
        client.config_set("appendonly", "yes")
    found = Settings(redis_url=server.url)
    fill(found)
    return found


def fill(settings: Settings) -> None:
    documents = [Document(number, f"a text of its own, {number} " * 9) for number in range(50)]
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        list(deduplicator.decide(documents))


def examine(settings: Settings) -> list[Finding]:
    """Return what all checks of Redis say, but for the latency of a busy machine."""
    found = of_service("Redis", REDIS, settings, redis_look.look)
    return [one for one in found if one.check != "redis.latency"]


def bad(findings: list[Finding]) -> dict[str, Level]:
    return {one.check: one.level for one in findings if one.level is not Level.OK}


class TestOneNode:
    def test_a_healthy_server_is_all_ok(self, settings: Settings) -> None:
        findings = examine(settings)

        assert bad(findings) == {}
        assert {one.check for one in findings} == {one.name for one in REDIS} - {"redis.latency"}
        told = {one.check: one.found for one in findings}
        assert told["redis.originals"].startswith("50 originals of the 1,000,000")
        assert "sampled" in told["redis.keys"]

    def test_looking_changes_nothing(self, settings: Settings, server: RedisServer) -> None:
        with server.client() as client:
            before = fingerprint(client)

            examine(settings)

            assert fingerprint(client) == before

    DEFECTS: tuple[tuple[str, Level, Callable[[Redis], Any]], ...] = (
        ("redis.policy", Level.ERROR, lambda c: c.config_set("maxmemory-policy", "allkeys-lru")),
        ("redis.memory", Level.WARNING, lambda c: c.config_set("maxmemory", "0")),
        ("plan.memory", Level.WARNING, lambda c: c.config_set("maxmemory", "900mb")),
        ("redis.memory", Level.ERROR, lambda c: c.config_set("maxmemory", used(c))),
        ("redis.persistence", Level.WARNING, lambda c: c.config_set("appendonly", "no")),
        ("redis.persistence", Level.HINT, lambda c: c.config_set("appendfsync", "no")),
        ("redis.clients", Level.WARNING, lambda c: c.config_set("maxclients", "2")),
        ("redis.functions", Level.WARNING, lambda c: c.function_flush()),
        (
            "redis.functions",
            Level.WARNING,
            lambda c: c.function_load(f"{CLAIMS.code}\n-- changed", replace=True),
        ),
        (
            "redis.functions",
            Level.HINT,
            lambda c: c.function_load(
                "#!lua name=stream_dedup_0\nredis.register_function('f', function() end)"
            ),
        ),
    )

    @pytest.mark.parametrize(("check", "level", "break_it"), DEFECTS)
    def test_a_defect_is_found_and_its_remedy_mends_it(
        self,
        settings: Settings,
        server: RedisServer,
        check: str,
        level: Level,
        break_it: Callable[[Redis], Any],
    ) -> None:
        with server.client() as client:
            break_it(client)

            findings = examine(settings)

            (found,) = [one for one in findings if one.check == check]
            assert found.level is level
            remedies.run(found.command)
            assert check not in bad(examine(settings))

    def test_another_configuration(self, settings: Settings) -> None:
        other = settings.model_copy(update={"threshold": 0.7})

        (found,) = [one for one in examine(other) if one.check == "redis.index"]

        assert found.level is Level.ERROR
        assert "threshold was 0.8, is 0.7" in found.remedy
        assert found.command == "stream-dedup rebuild --redis-namespace sd-new"
        mended = other.model_copy(update={"redis_namespace": "sd-new"})
        assert bad(examine(mended)) == {}

    def test_another_layout(self, settings: Settings) -> None:
        other = settings.model_copy(update={"expected_originals": 100_000_000})

        (found,) = [one for one in examine(other) if one.check == "redis.index"]

        assert found.level is Level.ERROR
        assert "expected_originals was 1000000, is 100000000" in found.remedy

    def test_an_outgrown_index(self, settings: Settings, server: RedisServer) -> None:
        with server.client() as client:
            client.set("sd:{0}:n", 1_500_000)

        assert bad(examine(settings))["redis.originals"] is Level.WARNING


class TestPermissions:
    def test_the_workers_user_is_told_what_it_may_not_see(
        self, settings: Settings, server: RedisServer
    ) -> None:
        rules = re.findall(r"`(\+fcall[^`]*)`", PAGE)[0].replace("NAMESPACE", "sd").split()
        url = user(server, "worker", *rules)

        findings = examine(Settings(redis_url=url))

        assert set(bad(findings).values()) == {Level.MAY_NOT_LOOK}
        hidden = {one.check: one.remedy for one in findings if one.level is Level.MAY_NOT_LOOK}
        assert "+acl|whoami +acl|dryrun" in hidden["redis.permissions"]
        assert "+function|list" in hidden["redis.functions"]
        assert "redis.memory" not in hidden

    def test_a_right_that_is_lacking(self, settings: Settings, server: RedisServer) -> None:
        may = ("+@all", "-zadd", "-@dangerous", "+info", "+acl|whoami", "+acl|dryrun", "~sd:*")
        limited = Settings(redis_url=user(server, "narrow", *may))

        (found,) = [one for one in examine(limited) if one.check == "redis.permissions"]

        assert found.level is Level.ERROR
        assert "may not zadd" in found.found
        command = found.command.replace("NAME", "narrow").replace("--user narrow ", "")
        remedies.run(command)
        assert "redis.permissions" not in bad(examine(limited))

    def test_a_user_that_may_do_nothing(self, settings: Settings, server: RedisServer) -> None:
        url = user(server, "nobody", "+hello")

        findings = examine(Settings(redis_url=url))

        assert {one.check for one in findings} == {one.name for one in REDIS} - {"redis.latency"}
        assert Level.ERROR not in bad(findings).values()


def test_a_redis_that_is_away() -> None:
    settings = Settings(redis_url=f"redis://127.0.0.1:{free_ports(1)[0]}", redis_timeout=1)

    first, *others = examine(settings)

    assert (first.check, first.level) == ("redis.reachable", Level.ERROR)
    assert first.remedy.startswith("Start it, or give its address with --redis-url")
    assert {one.level for one in others} == {Level.NOT_CHECKED}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(masters=3) as cluster:
        yield cluster


class TestCluster:
    @pytest.fixture
    def settings(self, cluster: RedisCluster) -> Settings:
        for master in cluster.masters:
            master.flush()
            with master.client() as client:
                client.config_set("maxmemory", "1gb")
                client.config_set("appendonly", "yes")
        found = Settings(redis_url=cluster.url, partitions=64)
        fill(found)
        return found

    def test_all_is_ok_but_for_the_replicas(self, settings: Settings) -> None:
        assert bad(examine(settings)) == {"redis.replicas": Level.WARNING}

    def test_one_partition_is_on_one_node(self, settings: Settings) -> None:
        other = settings.model_copy(update={"partitions": 1, "redis_namespace": "one"})

        (found,) = [one for one in examine(other) if one.check == "plan.partitions"]

        assert found.command == "partitions = 64"

    def test_nobody_waits_for_replicas_that_are_not_there(self, settings: Settings) -> None:
        waiting = settings.model_copy(update={"wait_replicas": 1})

        (found,) = [one for one in examine(waiting) if one.check == "redis.replicas"]

        assert found.level is Level.ERROR
        assert found.command == "wait_replicas = 0"

    def test_defects_of_one_node_name_it(self, settings: Settings, cluster: RedisCluster) -> None:
        with cluster.masters[1].client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.function_flush()

        found = [
            one for one in examine(settings) if one.check in {"redis.policy", "redis.functions"}
        ]

        assert len(found) == 2
        assert all(f":{cluster.masters[1].port}" in one.found for one in found)
        for one in found:
            remedies.run(one.command)
        assert bad(examine(settings)) == {"redis.replicas": Level.WARNING}

    def test_slots_that_nobody_serves(self, settings: Settings, cluster: RedisCluster) -> None:
        for master in cluster.masters:
            with master.client() as client:
                client.execute_command("CLUSTER", "DELSLOTS", 0)  # type: ignore[no-untyped-call]

        found = examine(settings)[0]

        assert (found.check, found.level) == ("redis.reachable", Level.ERROR)
        assert "does not serve all slots" in found.found
        remedies.run(found.remedy.partition(": ")[2], answer="yes\n")
        cluster._wait(cluster._is_complete, cluster.masters)
        assert bad(examine(settings)) == {"redis.replicas": Level.WARNING}


def used(client: Redis) -> int:
    return int(client.info("memory")["used_memory"]) + 100_000


def user(server: RedisServer, name: str, *rules: str) -> str:
    """Make a user; return the address by which it comes."""
    with server.client() as client:
        client.acl_setuser(name, enabled=True, passwords=["+pw"], reset=True)
        client.execute_command("ACL", "SETUSER", name, *rules)  # type: ignore[no-untyped-call]
    return server.url.replace("redis://", f"redis://{name}:pw@")


def fingerprint(client: Redis) -> tuple[Any, ...]:
    """Return all that may not change: data, Functions, configuration, users."""
    return (
        client.execute_command("DEBUG", "DIGEST"),  # type: ignore[no-untyped-call]
        client.function_list(),
        client.config_get("*"),
        client.acl_list(),
    )
