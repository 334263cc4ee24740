"""The window: its counts are those of what it holds, whatever came and went."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.errors import StateError
from stream_dedup.review.seen import Seen
from stream_dedup.review.tally import RECENT
from stream_dedup.review.window import Window
from stream_dedup.types import Status

MINUTE = 60_000
STATUSES = list(Status)


def seen(number: int, group: int = 0, status: Status = Status.ORIGINAL, **more: object) -> Seen:
    fields = {"at": number * MINUTE, "text": f"text {number}", **more}
    return Seen(number, f"{group:024x}", group, status, "minhash", "0" * 16, **fields)  # type: ignore[arg-type]


documents = st.builds(
    seen,
    st.integers(0, 9),
    st.integers(0, 3),
    st.sampled_from(STATUSES),
    at=st.integers(-2 * MINUTE, 200 * MINUTE),
    similarity=st.none() | st.floats(0, 1),
    hamming_distance=st.none() | st.integers(0, 2),
    source=st.sampled_from(["", "a", "b", "\0", "🙂"]),
    text=st.none() | st.text(max_size=3) | st.just("long " * 1000),
)
steps = st.lists(st.lists(documents, max_size=8) | st.integers(0, 9), max_size=12)


def rows(database: sqlite3.Connection, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in database.execute(query)]


def check(window: Window, held: list[tuple[int, Seen]]) -> None:
    """Hold everything that is counted against a count of the documents themselves."""
    code = {status: number for number, status in enumerate(STATUSES)}
    with window.reader() as database:
        stored = rows(database, "SELECT row, at, source FROM documents ORDER BY row")
        assert stored == [(row, one.at, one.source) for row, one in held]
        for name, group in _groups(held).items():
            found = database.execute("SELECT * FROM groups WHERE duplicate_id = ?", [name])
            assert tuple(found.fetchone())[:7] == (name, *group)
        (groups,) = database.execute("SELECT count(*) FROM groups").fetchone()
        assert groups == len(_groups(held))
        minutes = Counter((one.at // MINUTE, code[one.status]) for _, one in held)
        assert rows(database, "SELECT * FROM minutes") == _sorted(minutes)
        bins = Counter(
            (int(one.similarity * 100 + 1e-9), code[one.status])
            for _, one in held
            if one.similarity is not None and one.status is not Status.ORIGINAL
        )
        assert rows(database, "SELECT * FROM similarities") == _sorted(bins)
        for table, minutes_each in (("hours", 60), ("days", 1440)):
            slots = Counter((one.at // MINUTE // minutes_each, code[one.status]) for _, one in held)
            assert rows(database, f"SELECT * FROM {table}") == _sorted(slots)
        distances = Counter(
            (one.hamming_distance, code[one.status])
            for _, one in held
            if one.similarity is None
            and one.hamming_distance is not None
            and one.status is not Status.ORIGINAL
        )
        assert rows(database, "SELECT * FROM distances") == _sorted(distances)
        sources = Counter(one.source for _, one in held if one.source)
        copies = Counter(one.source for _, one in held if one.status is not Status.ORIGINAL)
        found_sources = rows(database, "SELECT * FROM sources")
        assert sorted(found_sources) == sorted((s, n, copies[s]) for s, n in sources.items())
        recent = "SELECT duplicate_id, sum(documents) FROM growth GROUP BY 1"
        counted = "SELECT duplicate_id, recent FROM groups WHERE recent"
        assert rows(database, recent) == rows(database, counted)
        assert database.execute("SELECT min(documents) FROM growth").fetchone()[0] != 0
    for row, one in held:
        assert window.text(row) == (one.text or "")


def _groups(held: list[tuple[int, Seen]]) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for name in {one.duplicate_id for _, one in held}:
        own = [(row, one) for row, one in held if one.duplicate_id == name]
        counts = Counter(one.status for _, one in own)
        originals = [row for row, one in own if one.status is Status.ORIGINAL]
        times = [one.at for _, one in own]
        found[name] = (
            max(originals, default=None),
            len(own),
            counts[Status.EXACT_DUPLICATE],
            counts[Status.NEAR_DUPLICATE],
            min(times),
            max(times),
        )
    return found


def _sorted(counts: Counter[tuple[int, int]]) -> list[tuple[int, int, int]]:
    return sorted((*key, count) for key, count in counts.items())


@settings(max_examples=60, deadline=None)
@given(steps)
def test_counts_are_those_of_what_is_held(steps: list[list[Seen] | int]) -> None:
    held: list[tuple[int, Seen]] = []
    last = 0
    with TemporaryDirectory() as folder:
        path = Path(folder) / "window.db"
        window = Window.open(path, 10)
        for step in steps:
            if isinstance(step, int):
                window.add([], forgotten=[(0, step)])
                held = [(row, one) for row, one in held if one.id != step]
            else:
                window.add(step)
                held = [*held, *enumerate(step, last + 1)][-10:]
                last += len(step)
        check(window, held)
        window.close()
        again = Window.open(path, 10)
        check(again, held)
        again.close()


def test_growth_is_that_of_the_last_hour(tmp_path: Path) -> None:
    window = Window.open(tmp_path / "window.db", 100)

    def recent() -> dict[str, int]:
        with window.reader() as database:
            return dict(rows(database, "SELECT duplicate_id, recent FROM groups"))  # type: ignore[arg-type]

    copies = [seen(n, n % 2, Status.EXACT_DUPLICATE) for n in range(10)]
    window.add([seen(0), *copies])
    assert list(recent().values()) == [5, 5]
    window.add([seen(RECENT + 3, 2)])
    assert list(recent().values()) == [2 + 1, 3, 0]
    window.close()


def test_ids_of_two_types_are_two(tmp_path: Path) -> None:
    window = Window.open(tmp_path / "window.db", 100)
    window.add([seen(5), seen(6)._replace(id="5")])

    window.add([seen(7)], forgotten=[(0, "5"), (1, 7)])

    with window.reader() as database:
        assert rows(database, "SELECT id FROM documents") == [("5",)]
    window.close()


def test_what_is_added_with_facts_is_all_or_nothing(tmp_path: Path) -> None:
    window = Window.open(tmp_path / "window.db", 100)
    window.add([seen(1)], {"offsets": {"0": 7}})

    with pytest.raises(TypeError):
        window.add([seen(2)], {"offsets": object()})
    window.add([seen(3)])

    assert window.facts() == {"offsets": {"0": 7}}
    with window.reader() as database:
        assert rows(database, "SELECT id FROM documents") == [("1",), ("3",)]
    window.close()


def test_a_query_that_takes_too_long_is_interrupted(tmp_path: Path) -> None:
    window = Window.open(tmp_path / "window.db", 100)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"

    with pytest.raises(sqlite3.OperationalError, match="interrupted"), window.reader(0.05) as one:
        one.execute(endless).fetchall()

    assert window.facts() == {}
    with pytest.raises(sqlite3.OperationalError), window.reader() as one:
        one.execute("DELETE FROM documents")
    window.close()


def test_a_window_has_one_writer_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    path = tmp_path / "window.db"
    window = Window.open(path, 100)
    window.add([seen(1)])

    assert {one.stat().st_mode & 0o077 for one in tmp_path.iterdir()} == {0}
    with pytest.raises(StateError, match="in use"):
        Window.open(path, 100)
    window.close()
    Window.open(path, 100).close()


def test_what_was_forgotten_does_not_stand_in_free_pages(tmp_path: Path) -> None:
    path = tmp_path / "window.db"
    window = Window.open(path, 100)
    window.add([seen(1, text="a secret that must go"), seen(2)])
    window.add([], forgotten=[(0, 1)])
    window.close()

    assert b"a secret" not in b"".join(one.read_bytes() for one in tmp_path.iterdir())


def test_another_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (a)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(StateError, match="another database"):
        Window.open(path, 100)
    assert path.read_bytes() == before

    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StateError, match="cannot be used"):
        Window.open(path, 100)
