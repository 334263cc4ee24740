"""To look up changes nothing, sees nothing that is not decided, and needs no right to write."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stream_dedup import ConfigurationMismatch, Deduplicator, Document, ServiceError, Settings
from stream_dedup.cli.main import cli
from stream_dedup.index.claims import Mode
from stream_dedup.index.found import Found
from stream_dedup.index.keys import Places
from stream_dedup.index.look_up import RedisLookUp
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round
from stream_dedup.index.store import RedisStore
from stream_dedup.query import Query, Question, Standing
from tests.services.redis import RedisServer

PAGE = (Path(__file__).parents[2] / "docs" / "query.md").read_text()
START = " ".join(f"word{number}" for number in range(20))
#: They share table keys with one another, and are not near.
ENDS = [
    "with one end",
    "that closes in another way",
    "or so that nobody knows it",
    "for a third time",
]
DOCUMENTS = [Document(end, f"{START} {end}", source=end) for end in ENDS]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(extra=("--enable-debug-command", "local")) as server:
        yield server


def fill(settings: Settings, documents: list[Document] = DOCUMENTS) -> None:
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        for document in documents:
            deduplicator.decide([document])


def ask(settings: Settings, *texts: str) -> list[tuple[Standing, str | int | None]]:
    with closing(RedisLookUp.connect(settings)) as index:
        answers = Query(settings, index).ask([Question(Document("", text)) for text in texts])
    return [(answer.status, answer.original_id) for answer in answers]


def contents(server: RedisServer) -> tuple[object, ...]:
    with server.client() as client:
        digest = client.execute_command("DEBUG", "DIGEST")  # type: ignore[no-untyped-call]
        return digest, client.dbsize(), client.function_list()


def test_nothing_is_written(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dedup.index.found.PAGE", 1)  # so that further pages are read, too
    settings = Settings(redis_url=server.url)
    fill(settings)
    before = contents(server)

    answers = ask(settings, DOCUMENTS[0].text, DOCUMENTS[3].text + " too", "something new", "")

    assert answers == [
        (Standing.EXACT_DUPLICATE, ENDS[0]),
        (Standing.NEAR_DUPLICATE, ENDS[3]),
        (Standing.NEW, None),
        (Standing.NEW, None),
    ]
    assert contents(server) == before


def test_a_user_without_the_right_to_write_can_ask(server: RedisServer) -> None:
    settings = Settings(redis_url=server.url)
    fill(settings)
    rules = re.findall(r"`(\+fcall_ro[^`]*)`", PAGE)[0].replace("NAMESPACE", "sd").split()
    with server.client() as client:
        client.acl_setuser("reader", enabled=True, passwords=["+pw"], reset=True)
        client.execute_command("ACL", "SETUSER", "reader", *rules)  # type: ignore[no-untyped-call]
    url = server.url.replace("redis://", "redis://reader:pw@")

    assert ask(Settings(redis_url=url), DOCUMENTS[0].text) == [(Standing.EXACT_DUPLICATE, ENDS[0])]
    with pytest.raises(ServiceError, match="lacks a permission"):
        RedisIndex.connect(Settings(redis_url=url))


def test_a_replica_can_be_asked(server: RedisServer) -> None:
    fill(Settings(redis_url=server.url))
    with RedisServer(extra=("--replicaof", f"127.0.0.1 {server.port}"), local=True) as replica:
        with replica.client() as client:
            while client.info("replication")["master_link_status"] != "up":
                time.sleep(0.05)

        found = ask(Settings(redis_url=replica.url), DOCUMENTS[1].text)

    assert found == [(Standing.EXACT_DUPLICATE, ENDS[1])]


def test_what_another_worker_has_not_decided_yet_is_no_original(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url)
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        index = deduplicator.index
        assert isinstance(index, RedisIndex)
        batch = deduplicator.prepare(DOCUMENTS[:1])
        claims = index.mint(1)
        suffixes, scores, partitions = index.store.layout.place(batch.prints.keys)
        places = Places(suffixes[0], scores[0], partitions[0])
        round_ = Round(index.store)
        round_.put(claims, index.records.encode(batch))
        tables = batch.prints.keys.shape[1]
        modes = np.full(tables, Mode.FORCE, np.uint8)
        round_.probe(places, np.repeat(claims, tables), modes, 16)
        round_.run()

        assert ask(settings, DOCUMENTS[0].text) == [(Standing.NEW, None)]

        round_ = Round(index.store)
        round_.settle(claims, np.full(1, ord("O"), np.uint8))
        round_.run()

        assert ask(settings, DOCUMENTS[0].text) == [(Standing.EXACT_DUPLICATE, ENDS[0])]


class TestPages:
    """A key with more candidates than one reply holds."""

    LIMIT = 16

    @pytest.fixture
    def settings(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
        monkeypatch.setattr("stream_dedup.index.found.PAGE", 4)
        return Settings(redis_url=redis_url, partitions=2)

    @staticmethod
    def places(opened: RedisStore, key: int, count: int) -> Places:
        """Place a key of the first table, so many times."""
        tables = len(opened.layout.prefix_bits)
        placed = opened.layout.place(np.full((count, tables), key, np.uint64))
        return Places(placed.suffixes[:, 0], placed.scores[:, 0], placed.partitions[:, 0])

    def sighted(self, opened: RedisStore, key: int, gone: list[int]) -> list[int]:
        """Look under a key of the first table; withdraw some claims after the first page."""
        found = Found(self.places(opened, key, 1), np.zeros(1, np.uint64), self.LIMIT)
        rows = np.zeros(1, np.int64)
        while len(rows):
            round_ = Round(opened, read_only=True)
            round_.look(found, rows)
            round_.run()
            rows = found.take_unfinished()
            round_ = Round(opened)
            round_.withdraw(self.places(opened, key, len(gone)), np.array(gone, np.uint64))
            round_.run()
        claims: list[int] = found.pairs[1].tolist()
        return claims

    def fill(self, opened: RedisStore, key: int, claims: list[int]) -> None:
        round_ = Round(opened)
        modes = np.full(len(claims), Mode.FORCE, np.uint8)
        places = self.places(opened, key, len(claims))
        round_.probe(places, np.array(claims, np.uint64), modes, self.LIMIT)
        round_.run()

    @pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9, 16, 17, 40])
    def test_all_are_found_in_order_up_to_the_limit(self, settings: Settings, count: int) -> None:
        # Bytes above 127, and ids that differ in either half.
        claims = [(number << 31) + number * 0x81 + 0xFF for number in range(1, 1 + count)]
        with closing(RedisIndex.connect(settings)) as index:
            self.fill(index.store, 6, [2**62, 1])  # the scores before and after in the same set
            self.fill(index.store, 7, claims)
            self.fill(index.store, 8, [2**62 + 1, 2])

            assert self.sighted(index.store, 7, []) == claims[: self.LIMIT]

    def test_it_goes_on_where_a_claim_was_that_has_gone(self, settings: Settings) -> None:
        with closing(RedisIndex.connect(settings)) as index:
            self.fill(index.store, 7, list(range(1, 11)))

            assert self.sighted(index.store, 7, [2, 3, 4, 5]) == [1, 2, 3, 4, *range(6, 11)]


def test_a_missing_index_is_told(redis_url: str) -> None:
    with pytest.raises(ServiceError, match="Redis has no index 'sd'"):
        RedisLookUp.connect(Settings(redis_url=redis_url))


def test_an_index_of_another_configuration_is_refused(redis_url: str) -> None:
    fill(Settings(redis_url=redis_url))

    with pytest.raises(ConfigurationMismatch, match="was built with configuration"):
        RedisLookUp.connect(Settings(redis_url=redis_url, threshold=0.9))


def test_the_layout_is_that_of_the_index_whatever_is_set(redis_url: str) -> None:
    fill(Settings(redis_url=redis_url, partitions=7, expected_originals=5_000))

    assert ask(Settings(redis_url=redis_url), DOCUMENTS[2].text) == [
        (Standing.EXACT_DUPLICATE, ENDS[2])
    ]


def test_functions_that_are_gone_are_told(redis_url: str, redis_server: RedisServer) -> None:
    settings = Settings(redis_url=redis_url)
    fill(settings)
    with closing(RedisLookUp.connect(settings)) as index, redis_server.client() as client:
        client.function_flush()
        with pytest.raises(ServiceError, match="lacks the Functions"):
            Query(settings, index).ask([Question(DOCUMENTS[0])])


@pytest.mark.parametrize("kind", ["redis_url", "redis_cluster_url"])
def test_the_commands_ask_redis(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = request.getfixturevalue(kind)
    fill(Settings(redis_url=url))
    text = tmp_path / "text"
    text.write_text(DOCUMENTS[0].text.upper())

    asked = CliRunner().invoke(cli, ["query", DOCUMENTS[0].text, "--redis-url", url])
    new = CliRunner().invoke(cli, ["query", "something new", "--redis-url", url])
    explained = CliRunner().invoke(cli, ["explain", str(text), "--redis-url", url, "--json"])

    assert (asked.exit_code, new.exit_code) == (0, 1)
    assert asked.stdout.startswith(f"known: exact duplicate of {ENDS[0]}, similarity 1.0000")
    best, *others = json.loads(explained.stdout)
    assert best == {"original_id": ENDS[0], "tables_hit": 16, "score": 1.0, "near": True}
    assert {other["near"] for other in others} == {False}
