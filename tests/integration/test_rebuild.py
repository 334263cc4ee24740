"""``stream-dedup rebuild``, ``export`` and ``import`` without Kafka."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from stream_dedup import ConfigurationMismatch, Deduplicator, Document, ServiceError, Settings
from stream_dedup.cli.main import cli
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.audit import audit
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.bulk import Registrar
from stream_dedup.index.progress import Progress
from stream_dedup.index.reassembly import reassemble
from stream_dedup.index.rebuilding import Past, RedisRebuilding
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisServer

SHAPE = StreamShape(documents=1200, duplicate_share=0.5, edits=1, words=120, distance=600)
HALF = 600


@pytest.fixture(params=["node", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    name = {"node": "redis_url", "cluster": "redis_cluster_url"}[request.param]
    address: str = request.getfixturevalue(name)
    return address


@pytest.fixture
def stream(tmp_path: Path) -> list[Path]:
    """The two halves of a stream, as files."""
    lines = [msgspec.json.encode(one) for one in generate(SHAPE)]
    halves = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for half, some in zip(halves, (lines[:HALF], lines[HALF:]), strict=True):
        half.write_bytes(b"\n".join(some) + b"\n")
    return halves


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def redis_flags(url: str, namespace: str) -> list[str]:
    return [f"--redis-url={url}", f"--redis-namespace={namespace}", "--partitions=8"]


def undisturbed(stream: list[Path], folder: Path, *flags: str) -> bytes:
    """Return the second half as a run without any loss annotates it."""
    state, output = folder / "undisturbed.db", folder / "undisturbed.jsonl"
    for half in stream:
        call("run", half, "-o", output, "--state", state, *flags)
    return output.read_bytes()


class TestLoss:
    def test_after_a_rebuild_every_decision_is_as_if_nothing_had_been_lost(
        self, url: str, stream: list[Path], tmp_path: Path
    ) -> None:
        first, second = tmp_path / "annotated.jsonl", tmp_path / "second.annotated.jsonl"
        call("run", stream[0], "-o", first, *redis_flags(url, "lost"))
        flags = redis_flags(url, "new")

        rebuilt = json.loads(call("rebuild", first, "--json", *flags).stdout)
        call("run", stream[1], "-o", second, *flags)

        assert second.read_bytes() == undisturbed(stream, tmp_path)
        assert rebuilt["registered"] + rebuilt["left_out"] == HALF
        assert rebuilt["decided"] == 0
        settings = Settings(redis_url=url, redis_namespace="new", partitions=8)
        assert audit(settings).violations == []

    def test_a_state_file_is_rebuilt_too(self, stream: list[Path], tmp_path: Path) -> None:
        first, second, state = (tmp_path / name for name in ("annotated", "second", "new.db"))
        call("run", stream[0], "-o", first)

        call("rebuild", first, "--state", state)
        call("run", stream[1], "-o", second, "--state", state)

        assert second.read_bytes() == undisturbed(stream, tmp_path)

    def test_the_input_itself_is_a_source(
        self, redis_url: str, stream: list[Path], tmp_path: Path
    ) -> None:
        flags = redis_flags(redis_url, "new")
        again, second = tmp_path / "again.jsonl", tmp_path / "second.annotated.jsonl"

        rebuilt = json.loads(call("rebuild", stream[0], "--json", *flags).stdout)
        call("run", stream[0], "-o", again, *flags)
        call("run", stream[1], "-o", second, *flags)

        assert rebuilt["decided"] == HALF
        assert second.read_bytes() == undisturbed(stream, tmp_path)
        # The documents come from the same place, so each original is itself again.
        statuses = [json.loads(line)["dedup"]["status"] for line in again.read_text().splitlines()]
        assert statuses.count("original") == rebuilt["originals"]


class TestTombstones:
    FIRST = "the ferry leaves at nine in the morning and at noon if it is full"
    OTHER = "a comet with three tails was seen above the harbour by all of the town"

    def test_what_was_forgotten_is_gone_and_what_came_after_is_there(
        self, url: str, tmp_path: Path
    ) -> None:
        source, annotated, later = (tmp_path / name for name in ("in", "annotated", "later"))
        texts = {"a": self.FIRST, "copy": self.FIRST, "gone": None, "b": self.FIRST, 7: self.OTHER}
        lines = [{"id": "a" if text is None else n, "text": text} for n, text in texts.items()]
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        later.write_text(json.dumps({"id": "c", "text": self.FIRST}) + "\n")
        call("run", source, "-o", annotated, *redis_flags(url, "lost"))
        flags = redis_flags(url, "new")

        rebuilt = json.loads(call("rebuild", annotated, "--json", *flags).stdout)

        assert {name: rebuilt[name] for name in ("registered", "left_out", "forgotten")} == {
            "registered": 3,
            "left_out": 1,
            "forgotten": 1,
        }
        settings = Settings(redis_url=url, redis_namespace="new", partitions=8)
        found = audit(settings)
        assert (found.originals, found.violations) == (2, [])
        with closing(RedisIndex.connect(settings)) as index:
            named = index.named(["a", "b", 7, "7"])
        assert [[one.document_id for one in some] for some in named] == [[], ["b"], [7], []]
        (decided,) = decisions_of(call("run", later, *flags).stdout)
        assert (decided["status"], decided["original_id"]) == ("exact_duplicate", "b")

    @pytest.mark.parametrize("batch", [1, 2, 3, 4])
    def test_wherever_batches_end_and_with_a_state_file_it_is_the_same(
        self, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("stream_dedup.stream.rebuild.BATCH", batch)
        source, annotated, state = (tmp_path / name for name in ("in", "annotated", "state.db"))
        texts = [self.FIRST, None, self.FIRST, self.FIRST, None, self.OTHER, self.FIRST]
        lines = [{"id": "a", "text": text} for text in texts]
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        call("run", source, "-o", annotated)

        rebuilt = json.loads(call("rebuild", annotated, "--json", "--state", state).stdout)

        assert (rebuilt["registered"], rebuilt["forgotten"]) == (4, 2)
        with Deduplicator(state=state) as deduplicator:
            (named,) = deduplicator.index.named(["a"])
        assert len(named) == 2


class TestAnotherConfiguration:
    @pytest.mark.parametrize(("before", "after"), [("0.99", "0.8"), ("0.8", "0.99")])
    def test_all_is_decided_anew_as_a_run_with_the_new_settings_does(
        self, url: str, stream: list[Path], tmp_path: Path, before: str, after: str
    ) -> None:
        old, new, second = (tmp_path / name for name in ("old", "new", "second"))
        call("run", stream[0], "-o", old, "--threshold", before)
        call("run", stream[0], "-o", new, "--threshold", after)
        flags = [*redis_flags(url, "new"), f"--threshold={after}"]

        rebuilt = json.loads(call("rebuild", old, "--json", *flags).stdout)
        call("run", stream[1], "-o", second, *flags)

        assert second.read_bytes() == undisturbed(stream, tmp_path, f"--threshold={after}")
        changes = Counter(map(change, decisions(old), decisions(new)))
        assert {name: rebuilt[name] for name in changes} == changes
        assert changes["merged" if after == "0.8" else "split"] > 0
        assert rebuilt["registered"] == 0

    def test_what_was_decided_by_these_settings_before_is_taken_at_its_word(
        self, redis_url: str, stream: list[Path], tmp_path: Path
    ) -> None:
        """A topic that begins with another configuration, as it is after a migration."""
        first, second, both = (tmp_path / name for name in ("first", "second", "both"))
        state = tmp_path / "state.db"
        call("run", stream[0], "-o", first, "--threshold=0.9")
        call("run", stream[0], "-o", tmp_path / "unused", "--state", state)
        call("run", stream[1], "-o", second, "--state", state)
        both.write_bytes(first.read_bytes() + second.read_bytes())

        rebuilt = json.loads(call("rebuild", both, "--json", *redis_flags(redis_url, "new")).stdout)

        originals = sum(one["status"] == "original" for one in decisions(second))
        assert rebuilt["registered"] == originals
        assert rebuilt["decided"] == HALF
        settings = Settings(redis_url=redis_url, redis_namespace="new", partitions=8)
        assert audit(settings).violations == []


def change(before: dict[str, Any], after: dict[str, Any]) -> str:
    if before["duplicate_id"] == after["duplicate_id"]:
        return "kept"
    if before["status"] == "original":
        return "merged"
    return "split" if after["status"] == "original" else "moved"


def decisions(path: Path) -> list[dict[str, Any]]:
    return decisions_of(path.read_text())


def decisions_of(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line)["dedup"] for line in lines.splitlines()]


class TestUnfinished:
    def test_a_run_on_an_index_that_is_being_rebuilt_is_refused(
        self, redis_url: str, stream: list[Path]
    ) -> None:
        index = RedisIndex.connect(Settings(redis_url=redis_url))
        Progress(index.store).start("topic documents.annotated")
        index.close()

        result = CliRunner().invoke(cli, ["run", str(stream[0]), f"--redis-url={redis_url}"])

        assert result.exit_code == 69
        assert "is being rebuilt from topic documents.annotated. Wait" in result.output

    def test_a_sweep_of_an_index_that_is_being_rebuilt_is_refused(self, redis_url: str) -> None:
        with closing(RedisIndex.connect(Settings(redis_url=redis_url))) as index:
            progress = Progress(index.store)
            progress.start("topic documents.annotated")

            with pytest.raises(ServiceError, match=r"is being rebuilt from topic documents"):
                index.sweep()
            refused = CliRunner().invoke(cli, ["sweep", f"--redis-url={redis_url}"])
            progress.finish()
            swept = index.sweep()

        assert refused.exit_code == 69
        assert swept.originals == 0

    def test_an_index_with_originals_is_not_rebuilt_over(
        self, redis_url: str, stream: list[Path], tmp_path: Path
    ) -> None:
        flags = redis_flags(redis_url, "full")
        call("run", stream[0], "-o", tmp_path / "annotated", *flags)

        result = CliRunner().invoke(cli, ["rebuild", str(tmp_path / "annotated"), *flags])

        assert result.exit_code == 69
        assert "holds originals already. Name another redis_namespace" in result.output

    def test_neither_is_one_that_was_used_since_it_was_rebuilt(
        self, redis_url: str, stream: list[Path], tmp_path: Path
    ) -> None:
        flags = redis_flags(redis_url, "used")
        call("run", stream[0], "-o", tmp_path / "annotated")
        call("rebuild", tmp_path / "annotated", *flags)
        call("rebuild", tmp_path / "annotated", *flags)
        call("run", stream[1], "-o", tmp_path / "more", *flags)

        result = CliRunner().invoke(cli, ["rebuild", str(tmp_path / "annotated"), *flags])

        assert "holds originals already" in result.output

    def test_a_rebuild_that_is_cut_short_anywhere_and_made_again_is_whole(
        self, redis_url: str, stream: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        annotated, second = tmp_path / "annotated.jsonl", tmp_path / "second.annotated.jsonl"
        call("run", stream[0], "-o", annotated)
        flags = redis_flags(redis_url, "new")
        monkeypatch.setattr("stream_dedup.stream.rebuild.BATCH", 50)
        for step in ("_write_records", "_write_entries"):
            for batch in (0, 3):
                with monkeypatch.context() as patch:
                    patch.setattr(Registrar, step, failing_after(getattr(Registrar, step), batch))
                    result = CliRunner().invoke(cli, ["rebuild", str(annotated), *flags])
                    assert isinstance(result.exception, KilledError)

        call("rebuild", annotated, *flags)
        call("run", stream[1], "-o", second, *flags)

        assert second.read_bytes() == undisturbed(stream, tmp_path)
        settings = Settings(redis_url=redis_url, redis_namespace="new", partitions=8)
        found = audit(settings)
        assert found.violations == []
        assert found.unknown_entries == 0

    def test_another_source_is_refused(self, redis_url: str) -> None:
        index = RedisIndex.connect(Settings(redis_url=redis_url))
        progress = Progress(index.store)
        progress.start("file a.parquet")

        with pytest.raises(
            ServiceError, match=r"rebuilt from file a\.parquet, not file b\.parquet"
        ):
            progress.start("file b.parquet")
        index.close()


class KilledError(Exception):
    """Stands for kill -9."""


def failing_after(write: Callable[..., None], batches: int) -> Callable[..., None]:
    done = iter(range(batches + 1))

    def fail(*arguments: Any) -> None:
        if next(done) == batches:
            raise KilledError
        write(*arguments)

    return fail


class TestRegister:
    def test_a_document_that_was_published_twice_gets_one_claim(self, redis_url: str) -> None:
        settings = Settings(redis_url=redis_url)
        documents = [
            Document(n, f"text number {n} of some that differ", source=str(n)) for n in "ab"
        ]
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            index = deduplicator.index
            assert isinstance(index, RedisIndex)
            target = RedisRebuilding(index)
            target.start("a test")
            batch = deduplicator.prepare([*documents, *documents])

            first = target.register(batch, past(4))
            again = target.register(batch, past(4))

        assert (first, again) == (2, 0)
        assert audit(settings).originals == 2

    def test_what_was_decided_earlier_is_earlier_whatever_partition_it_is_read_from(
        self, redis_url: str
    ) -> None:
        settings = Settings(redis_url=redis_url)
        texts = ["one text of the two here", "another that is not alike at all"]
        documents = [Document(n, text, source=str(n)) for n, text in enumerate(texts)]
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            index = deduplicator.index
            assert isinstance(index, RedisIndex)
            target = RedisRebuilding(index)
            target.start("a test")
            batch = deduplicator.prepare(documents)

            moments = np.array([1_700_000_000_500, 1_700_000_000_000])
            target.register(batch, Past(moments, np.array([0, 1])))

            (read,) = index.read_originals()
        assert read.ids == [1, 0]

    def test_it_is_the_same_on_every_index(self, url: str) -> None:
        settings = Settings(redis_url=url)
        documents = [Document(one.id, one.text) for one in generate(SHAPE)]
        with Deduplicator() as memory:
            expected = memory.decide(documents)
            originals = list(memory.index.read_originals())
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            for batch in originals:
                deduplicator.index.register(batch)

            assert deduplicator.decide(documents) == expected


def past(count: int) -> Past:
    return Past(np.zeros(count, np.int64), np.zeros(count, np.int64))


class TestParquet:
    def test_originals_go_round(self, url: str, stream: list[Path], tmp_path: Path) -> None:
        state, back = tmp_path / "state.db", tmp_path / "back.db"
        one, other, second = (tmp_path / name for name in ("one", "other", "second"))
        call("run", stream[0], "-o", tmp_path / "unused", "--state", state)
        flags = redis_flags(url, "imported")

        call("export", one, "--state", state)
        call("import", one, *flags)
        call("export", other, *flags)
        call("import", other, "--state", back)
        call("run", stream[1], "-o", second, "--state", back)

        assert one.read_bytes() == other.read_bytes()
        assert second.read_bytes() == undisturbed(stream, tmp_path)

    def test_another_configuration_is_refused(self, stream: list[Path], tmp_path: Path) -> None:
        state, file = tmp_path / "state.db", tmp_path / "originals.parquet"
        call("run", stream[0], "-o", tmp_path / "unused", "--state", state)
        call("export", file, "--state", state)

        flags = ["--threshold", "0.7", "--state", str(tmp_path / "other.db")]
        result = CliRunner().invoke(cli, ["import", str(file), *flags])

        assert result.exit_code == ConfigurationMismatch.exit_code
        assert "threshold was 0.8, is 0.7" in result.output
        assert not (tmp_path / "other.db").exists()

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes").write_text("no Parquet")

        result = CliRunner().invoke(
            cli, ["import", str(tmp_path / "notes"), "--state", str(tmp_path / "new.db")]
        )

        assert result.exit_code == 65
        assert "Name a file that stream-dedup export wrote." in result.output

    def test_an_index_is_read_range_by_range(self, redis_url: str) -> None:
        settings = Settings(redis_url=redis_url)
        documents = [Document(one.id, one.text) for one in generate(SHAPE)]
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            deduplicator.decide(documents)
            index = deduplicator.index
            assert isinstance(index, RedisIndex)
            whole = ids(index.read_originals())

            parts = ids(reassemble(index.reader(), index.records, size=50))

        assert whole == parts
        assert len(whole) == len(set(whole))


def ids(batches: Iterator[IndexBatch]) -> list[object]:
    return [one for batch in batches for one in batch.ids]


def test_memory_that_runs_out_is_told() -> None:
    rng = random.Random(1)
    texts = [" ".join(str(rng.random()) for _ in range(30)) for _ in range(5_000)]
    documents = [Document(number, text) for number, text in enumerate(texts)]

    with RedisServer(extra=("--maxmemory", "3mb")) as server:
        settings = Settings(redis_url=server.url)
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            batch = deduplicator.prepare(documents)
            with pytest.raises(ServiceError, match="out of memory: raise maxmemory"):
                deduplicator.index.register(batch)
