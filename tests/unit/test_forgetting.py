"""The memory index and the state file: what is forgotten, what expires, and what a kill leaves."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from stream_dedup import Decision, Deduplicator, Document, Settings, Status
from stream_dedup.index import registry
from stream_dedup.index.memory import MemoryIndex

#: A window and a lateness of 100 s each.
WINDOW = Settings(window=100.0, lateness=100.0, threshold=0.5)


def text_of(rng: random.Random) -> str:
    return " ".join(f"w{rng.randrange(2000)}" for _ in range(30))


def stream(seed: int, count: int, *, step: float = 1.0, late: float = 0.0) -> list[Document]:
    """Draw documents in order of time, some of them copies of recent ones, some of copies."""
    rng = random.Random(seed)
    documents: list[Document] = []
    for number in range(count):
        text = text_of(rng)
        if documents and rng.random() < 0.6:
            words = rng.choice(documents[-150:]).text.split()
            for _ in range(rng.randrange(4)):
                words[rng.randrange(len(words))] = f"x{rng.randrange(9999)}"
            text = " ".join(words)
        time = 1000.0 + step * number - rng.uniform(0, late)
        documents.append(Document(rng.randrange(count), text, time, f"in:{number}"))
    return documents


def index_of(deduplicator: Deduplicator) -> MemoryIndex:
    assert isinstance(deduplicator.index, MemoryIndex)
    return deduplicator.index


def decided(
    deduplicator: Deduplicator, documents: Sequence[Document], size: int = 50
) -> list[Decision]:
    return [
        decision
        for start in range(0, len(documents), size)
        for decision in deduplicator.decide(documents[start : start + size])
    ]


class TestForget:
    def test_the_same_text_is_an_original_again(self) -> None:
        documents = [Document(name, "one text that comes again", source=name) for name in "abc"]
        with Deduplicator() as deduplicator:
            deduplicator.decide(documents[:2])

            assert deduplicator.forget(["b", "a", "a", "z"]) == [0, 1, 0, 0]
            assert deduplicator.forget(["a"]) == [0]
            again = deduplicator.decide(documents[2:])

        assert again[0].status is Status.ORIGINAL

    def test_the_id_1_is_not_the_id_one(self) -> None:
        with Deduplicator() as deduplicator:
            deduplicator.decide([Document(1, "text of a number"), Document("1", "some other one")])

            assert deduplicator.forget([1]) == [1]
            assert [len(one) for one in deduplicator.index.named([1, "1"])] == [0, 1]

    @pytest.mark.parametrize("closes", [True, False])
    def test_a_state_file_forgets_too(self, tmp_path: Path, *, closes: bool) -> None:
        path = tmp_path / "originals.db"
        names = ["secretive-name", *map(str, range(50))]
        documents = [Document(name, f"text of {name} alone", source=name) for name in names]
        deduplicator = Deduplicator(state=path)
        deduplicator.decide(documents)
        deduplicator.forget(["secretive-name", "7"])
        deduplicator.decide([Document("7", "another text of seven")])
        if not closes:
            index_of(deduplicator).abandon()
        deduplicator.close()

        with Deduplicator(state=path) as again:
            statuses = [decision.status for decision in again.decide(documents)]

        assert statuses.count(Status.ORIGINAL) == len(documents)
        with Deduplicator(state=path) as again:
            assert [len(one) for one in again.index.named(["secretive-name", "7"])] == [1, 2]

    def test_nothing_of_it_stays_in_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "originals.db"
        with Deduplicator(state=path) as deduplicator:
            deduplicator.decide([Document("secretive-name", "a text"), Document("b", "b text")])
        assert b"secretive-name" in path.read_bytes()

        with Deduplicator(state=path) as deduplicator:
            deduplicator.forget(["secretive-name"])

        assert b"secretive-name" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


class TestExpiry:
    @pytest.mark.parametrize("renew", [False, True])
    def test_memory_and_file_reach_a_plateau(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, renew: bool
    ) -> None:
        monkeypatch.setattr(registry, "_MIN_ROWS", 64)
        settings = WINDOW.model_copy(update={"renew": renew})
        path = tmp_path / "originals.db"
        rows, sizes = [], []
        documents = stream(1, 12_000, step=1 / 3)
        with Deduplicator(settings, state=path, resumes=True) as deduplicator:
            for start in range(0, len(documents), 100):
                deduplicator.decide(documents[start : start + 100])
                rows.append(len(index_of(deduplicator).originals))
                sizes.append(path.stat().st_size)
            alive = deduplicator.sweep().originals

        # 20 times window and lateness together; the second half must be no larger than the first.
        assert max(rows[60:]) <= 1.1 * max(rows[:60]) < 1_500
        assert max(sizes[60:]) <= 1.2 * max(sizes[:60])
        assert 100 < alive < 600
        assert path.stat().st_size < max(sizes)

    def test_a_document_that_comes_too_late_is_counted(self) -> None:
        with Deduplicator(WINDOW) as deduplicator:
            deduplicator.decide([Document(0, "a b c", 1000.0)])
            deduplicator.decide([Document(1, "d e f", 900.0), Document(2, "g h i", 899.0)])

            assert deduplicator.index.late == 1

    def test_the_watermark_outlives_the_run(self, tmp_path: Path) -> None:
        path = tmp_path / "originals.db"
        for time in (1000.0, 1201.0):
            with Deduplicator(WINDOW, state=path) as deduplicator:
                deduplicator.decide([Document(str(time), f"text of {time}", time)])

        with Deduplicator(WINDOW, state=path) as deduplicator:
            assert len(index_of(deduplicator)) == 1
            assert deduplicator.sweep() == (0, 0, 0, 1)

    def test_a_time_in_the_future_counts_as_little_ahead(self) -> None:
        with Deduplicator(WINDOW) as deduplicator:
            deduplicator.decide([Document(0, "a b c", 1000.0), Document(1, "d e f", 9e9)])

            assert deduplicator.sweep().expired == 1
            assert index_of(deduplicator).watermark < 9e9

    @pytest.mark.parametrize("renew", [False, True])
    def test_renewal_moves_the_end_of_an_original(self, *, renew: bool) -> None:
        settings = WINDOW.model_copy(update={"renew": renew})
        with Deduplicator(settings) as deduplicator:
            statuses = [
                deduplicator.decide([Document(time, "the same text", time, str(time))])[0].status
                for time in (1000, 1090, 1180, 1270)
            ]
            expired = deduplicator.sweep().expired

        assert (statuses.count(Status.ORIGINAL), expired) == ((1, 0) if renew else (2, 1))

    def test_renewals_are_kept(self, tmp_path: Path) -> None:
        settings = WINDOW.model_copy(update={"renew": True})
        statuses = []
        for time in (1000, 1090, 1180, 1270):
            with Deduplicator(settings, state=tmp_path / "originals.db") as deduplicator:
                document = Document(time, "the same text", time, str(time))
                statuses.append(deduplicator.decide([document])[0].status)

        assert statuses.count(Status.ORIGINAL) == 1


class Killed(Exception):  # noqa: N818 - what happens to a run
    """A run was killed."""


class TestKilled:
    @pytest.mark.parametrize("renew", [False, True])
    @pytest.mark.parametrize("seed", range(3))
    def test_what_is_made_again_gets_the_same_answers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, renew: bool
    ) -> None:
        """With documents that are late, originals that expire and some that are forgotten."""
        monkeypatch.setattr(registry, "_MIN_ROWS", 64)
        settings = WINDOW.model_copy(update={"renew": renew})
        rng = random.Random(seed)
        yesterday, today = stream(seed, 600, step=0.5), stream(99, 2_000, step=1.0, late=260.0)
        forgets = {rng.randrange(len(today) // 50): rng.randrange(2_000) for _ in range(40)}

        def run(path: Path, ends: int | None = None) -> list[Decision]:
            decisions: list[Decision] = []
            with Deduplicator(settings, state=path, resumes=True) as deduplicator:
                for batch, start in enumerate(range(0, len(today), 50)):
                    if batch == ends:
                        raise Killed
                    if batch in forgets:
                        deduplicator.forget([forgets[batch]])
                    decisions += deduplicator.decide(today[start : start + 50])
                assert deduplicator.index.late
            return decisions

        for name in ("calm.db", "killed.db"):
            with Deduplicator(settings, state=tmp_path / name) as deduplicator:
                decided(deduplicator, yesterday)
        expected = run(tmp_path / "calm.db")
        for ends in (rng.randrange(40), 39, rng.randrange(10)):
            with pytest.raises(Killed):
                run(tmp_path / "killed.db", ends)

        assert run(tmp_path / "killed.db") == expected
        assert originals(settings, tmp_path / "killed.db") == originals(
            settings, tmp_path / "calm.db"
        )

    def test_another_stream_goes_on_from_what_was_killed(self, tmp_path: Path) -> None:
        path = tmp_path / "originals.db"
        killed = Deduplicator(state=path, resumes=True)
        killed.decide([Document("a", "a text in both", source="1")])
        index_of(killed).abandon()
        killed.close()

        with Deduplicator(state=path, resumes=True) as deduplicator:
            (decision,) = deduplicator.decide([Document("b", "a text in both", source="2")])

        assert decision.status is Status.EXACT_DUPLICATE


def originals(settings: Settings, path: Path) -> list[object]:
    with Deduplicator(settings, state=path) as deduplicator:
        held = index_of(deduplicator).originals
        return [held.ids, held.times.tolist(), held.renewed.tolist(), held.digests.tolist()]


def test_a_file_of_the_first_version_still_opens(tmp_path: Path) -> None:
    path = tmp_path / "originals.db"
    documents = stream(5, 300)
    settings = Settings(threshold=0.5)
    with Deduplicator(settings, state=path) as deduplicator:
        first = decided(deduplicator, documents)
    database = sqlite3.connect(path)
    database.executescript(
        "DROP TABLE changes; DELETE FROM meta WHERE name NOT IN ('format', 'configuration');"
        "UPDATE meta SET value = '1' WHERE name = 'format';"
    )
    database.execute("INSERT INTO originals VALUES (999, x'9690c400c400c400c400c400')")
    database.commit()
    database.close()

    with Deduplicator(settings, state=path) as deduplicator:
        again = decided(deduplicator, documents)

    assert again == first
