"""Duplicate groups in Redis by command and over HTTP: by their name, and by a document id."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.cli.main import cli
from stream_dedup.groups import Limits, Member, encode, fold_all
from stream_dedup.index.group_store import GroupStore, Held, Swap
from stream_dedup.index.group_view import GroupView
from stream_dedup.index.look_up import RedisLookUp
from stream_dedup.index.redis import RedisIndex
from stream_dedup.serve.app import make_app
from stream_dedup.serve.groups import Groups
from stream_dedup.serve.source import Source
from stream_dedup.types import Status

FERRY = "The ferry to the island leaves at nine in the morning, and again at noon if it is full."
STEW = "Boil the potatoes for twenty minutes, drain them, and let them steam until they are dry."
BRIDGE = "Nobody crosses the old bridge after dark, for reasons that no one likes to talk about."
#: The name of a document, and looks like the name of a group.
HEXADECIMAL = "0123456789abcdef01234567"

DOCUMENTS = [
    Document("a", FERRY, source="0"),
    Document("copy", FERRY, source="1"),
    Document(7, STEW, source="2"),
    Document("copy", STEW, source="3"),
    Document("7", BRIDGE, source="4"),
    Document("copy", BRIDGE, source="5"),
    Document(HEXADECIMAL, "A text whose document has a rather long and unusual name.", source="6"),
    Document("copy", "A text whose document has a rather long and unusual name.", source="7"),
    Document("alone", "Nothing is like this one, as far as anybody knows.", source="8"),
]


@pytest.fixture(params=["redis_url", "redis_cluster_url"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return Settings(redis_url=request.getfixturevalue(request.param), partitions=8)


@pytest.fixture
def names(settings: Settings) -> dict[str | int, str]:
    """Groups of some documents, in Redis: the name of each, by the id of its original."""
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        decisions = deduplicator.decide(DOCUMENTS)
    duplicates = [
        Member.of(document, decision)
        for document, decision in zip(DOCUMENTS, decisions, strict=True)
        if decision.status is not Status.ORIGINAL
    ]
    groups = fold_all(duplicates, Limits(4, 4))
    with closing(GroupStore.connect(settings)) as store:
        store.begin()
        store.complete()
        store.swap([Swap(name, 0, Held(1, encode(group))) for name, group in groups.items()])
    return {group.original_id: name for name, group in groups.items()}


def group(settings: Settings, name: str, *flags: str) -> Result:
    where = (f"--redis-url={settings.redis_url}", "--partitions=8", "--json")
    return CliRunner().invoke(cli, ["group", name, *where, *flags])


Names = dict[str | int, str]


@pytest.mark.parametrize("name", ["a", HEXADECIMAL])
def test_an_original_s_id_names_its_group(settings: Settings, names: Names, name: str) -> None:
    by_id = group(settings, name)
    by_name = group(settings, names[name])

    assert by_id.exit_code == 0
    assert json.loads(by_id.stdout)["duplicate_id"] == names[name]
    assert by_id.stdout == by_name.stdout


def test_a_number_means_both_ids(settings: Settings, names: Names) -> None:
    both = group(settings, "7")

    assert both.exit_code == 65
    assert "id 7 are in 2 groups" in both.output
    assert names[7] in both.output
    assert names["7"] in both.output


@pytest.mark.parametrize("name", ["alone", "copy", "nobody", "f" * 24])
def test_one_that_is_no_original_of_a_group(settings: Settings, names: Names, name: str) -> None:
    assert names
    missing = group(settings, name)

    assert missing.exit_code == 1
    assert "no duplicate of it is known" in missing.stderr


def test_the_service_tells_of_groups(settings: Settings, names: Names) -> None:
    # Over how many partitions they are spread it need not be told.
    elsewhere = settings.model_copy(update={"partitions": 3})
    groups = Groups(lambda: GroupView.connect(elsewhere))
    app = make_app(elsewhere, Source(elsewhere, lambda: RedisLookUp.connect(elsewhere)), "", groups)
    with TestClient(app) as client:
        found = [client.get(f"/v1/groups/{name}") for name in names.values()]
        missing = client.get(f"/v1/groups/{'f' * 24}")

    assert [response.json()["original_id"] for response in found] == list(names)
    assert found[0].text == group(settings, "a").stdout.strip()
    assert missing.status_code == 404


def test_an_id_takes_an_index_that_keeps_ids(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url, partitions=8, index_ids=False)
    absent = group(settings, "a")
    RedisIndex.connect(settings).close()
    without = group(settings, "a")
    other = group(settings, "a", "--threshold=0.5")
    none = group(settings, "f" * 24)

    assert (absent.exit_code, without.exit_code, other.exit_code, none.exit_code) == (69, 69, 78, 1)
    assert "has no index" in absent.output
    assert "keeps no document ids" in without.output
