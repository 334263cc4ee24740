"""Damaged files: refused with a sentence, or read as if nothing had happened; nothing between."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.cli.main import cli
from stream_dedup.errors import (
    ConfigurationMismatch,
    InputError,
    SettingsError,
    StateError,
    StreamDedupError,
)
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.frequencies import read_frequencies
from stream_dedup.index import parquet
from stream_dedup.index.parquet import read_originals, write_originals
from stream_dedup.index.state_rows import pack
from stream_dedup.query import open_state
from stream_dedup.settings_sources import load_settings, load_shadow
from stream_dedup.types import Measure, VerifyBy

#: What a damaged file may be refused by; any other error is a defect.
REFUSED = (StateError, SettingsError, InputError, ConfigurationMismatch)
SETTINGS = Settings(threshold=0.5)
DOCUMENTS = [
    Document(n if n % 2 else f"ä{n}", " ".join(f"{n % 25}.{m}" for m in range(9)), n)
    for n in range(40)
]
SPECIES = ("state", "parquet", "frequencies", "boilerplate", "toml")

Answer = Any


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an undamaged file of each kind, by its name."""
    folder = tmp_path_factory.mktemp("whole")
    with Deduplicator(SETTINGS, state=folder / "state") as deduplicator:
        for start in range(0, len(DOCUMENTS), 8):
            deduplicator.decide(DOCUMENTS[start : start + 8])
        deduplicator.forget([1, "ä2"])
        found = deduplicator.index.read_originals()
        write_originals(folder / "parquet", found, deduplicator.fingerprinter)
    (folder / "toml").write_text('threshold = 0.5\nshingle = "word:3"\n')
    lines = [f'{{"text": "menu\\nabout us\\npage {n}", "site": "a"}}' for n in range(30)]
    (folder / "in.jsonl").write_text("\n".join(lines))
    source = str(folder / "in.jsonl")
    for kind in ("frequencies", "boilerplate"):
        command = ["learn", kind, source, "-o", str(folder / kind)]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
    return folder


def read_state(path: Path) -> Answer:
    """Read the originals, and decide some documents on them."""
    with Deduplicator(SETTINGS, state=path) as deduplicator:
        held = [pack(batch, keeps_ranks=True) for batch in deduplicator.index.read_originals()]
        return held, [d.original_id for d in deduplicator.decide(DOCUMENTS)]


def query_state(path: Path) -> Answer:
    index = open_state(SETTINGS, path)
    return [pack(batch, keeps_ranks=True) for batch in index.read_originals()]


def read_parquet(path: Path) -> Answer:
    fingerprinter = Fingerprinter(SETTINGS)
    return [pack(batch, keeps_ranks=True) for batch in read_originals(path, fingerprinter)]


def read_boilerplate(path: Path) -> Answer:
    settings = Settings(clean="boilerplate", boilerplate_file=path)
    return Fingerprinter(settings).configuration


def read_shadow(path: Path) -> Answer:
    return load_shadow(SETTINGS, path, in_redis=False)


def read_config(path: Path) -> Answer:
    return load_settings(config=path)


READERS: dict[str, list[Callable[[Path], Answer]]] = {
    "state": [read_state, query_state],
    "parquet": [read_parquet],
    "frequencies": [lambda path: read_frequencies(path).digest()],
    "boilerplate": [read_boilerplate],
    "toml": [read_shadow, read_config],
}


def cut(content: bytes, number: int) -> Iterator[bytes]:
    """Yield the content cut off in so many places, at its ends in more of them."""
    size = len(content)
    places = {0, *range(1, 20), *range(size - 20, size), *range(0, size, max(size // number, 1))}
    for place in sorted(place for place in places if 0 <= place < size):
        yield content[:place]


def flipped(content: bytes, number: int) -> Iterator[bytes]:
    """Yield the content with one flipped bit, so many times; then with more of them."""
    chance = random.Random(len(content))
    for round_ in range(number):
        damaged = bytearray(content)
        for _ in range(1 if round_ < number * 3 // 4 else chance.randint(2, 50)):
            # Headers and footers are small, and there is most to go wrong in them.
            within = min(len(content), chance.choice((200, 5000, len(content))))
            place = chance.randrange(within)
            damaged[place if chance.random() < 0.6 else -place - 1] ^= 1 << chance.randrange(8)
        yield bytes(damaged)


def tried(read: Callable[[Path], Answer], path: Path, content: bytes) -> Answer | None:
    """Read damaged content; return the answer, or None when it is refused as it should be."""
    for old in path.parent.iterdir():
        old.unlink()
    path.write_bytes(content)
    try:
        return read(path)
    except REFUSED as error:
        check(error, path)
        return None


def check(error: StreamDedupError, path: Path) -> None:
    # A wrong setting is told by its name, in one sentence.
    assert isinstance(error, SettingsError) or str(path) in str(error)
    assert str(error).endswith(".")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder / "file"


#: A setting may be changed into another valid one, which nobody can tell from what was meant.
SEALED = [(kind, read) for kind in SPECIES[:4] for read in READERS[kind]]
ALL = [(kind, read) for kind in SPECIES for read in READERS[kind]]


@pytest.mark.parametrize(("kind", "read"), SEALED)
def test_damage_is_told_or_does_no_harm(
    whole: Path, scratch: Path, kind: str, read: Callable[[Path], Answer]
) -> None:
    content = (whole / kind).read_bytes()
    right = tried(read, scratch, content)
    assert right is not None

    for damages in (cut(content, 60), flipped(content, 300)):
        for damaged in damages:
            found = tried(read, scratch, damaged)
            assert found is None or found == right


@pytest.mark.parametrize("read", READERS["toml"])
def test_damaged_settings_are_settings_or_refused(
    whole: Path, scratch: Path, read: Callable[[Path], Answer]
) -> None:
    content = (whole / "toml").read_bytes()

    for damages in (cut(content, 30), flipped(content, 80)):
        for damaged in damages:
            found = tried(read, scratch, damaged)
            assert found is None or tomllib.loads(damaged.decode()) is not None


@pytest.mark.parametrize(("kind", "read"), ALL)
def test_a_file_of_another_kind_is_refused(
    whole: Path, scratch: Path, kind: str, read: Callable[[Path], Answer]
) -> None:
    others = [name for name in (*SPECIES, "in.jsonl") if name != kind]

    for other in others:
        assert tried(read, scratch, (whole / other).read_bytes()) is None
    assert tried(read, scratch, random.Random(1).randbytes(10_000)) is None
    if kind != "toml":  # an empty file of settings leaves all at their defaults
        assert tried(read, scratch, b"") is None


@pytest.mark.parametrize(("kind", "read"), ALL)
def test_a_folder_and_a_file_that_cannot_be_read_are_refused(
    tmp_path: Path, kind: str, read: Callable[[Path], Answer]
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path, loop):
        with pytest.raises(StreamDedupError):
            read(path)


def test_deeply_nested_settings_are_refused(scratch: Path) -> None:
    for read in READERS["toml"]:
        assert tried(read, scratch, b"a = " + b"[" * 5000) is None


@pytest.mark.parametrize(("limit", "value"), [("_MOST_ROWS", 10), ("_MOST_BYTES", 1000)])
def test_a_row_group_that_unpacks_to_too_much_is_refused_unread(
    whole: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(parquet, limit, value)  # that of today is gigabytes
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", None)

    with pytest.raises(InputError, match="unpacks to more than an export does"):
        read_parquet(whole / "parquet")


def test_evidence_bounds_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_EVIDENCE_BYTES", 1)
    settings = Settings(threshold=0.5, verify_by=VerifyBy.TEXT, measure=Measure.LCS)
    with Deduplicator(settings) as deduplicator:
        deduplicator.decide(DOCUMENTS)
        (batch,) = deduplicator.index.read_originals()
        single = [batch.rows(range(row, row + 1)) for row in (0, 1)]
        assert write_originals(tmp_path / "file", single, deduplicator.fingerprinter) == 2

    with pq.ParquetFile(tmp_path / "file") as file:
        assert file.num_row_groups == 2


class TestStateFiles:
    def test_a_row_that_was_lost_or_moved_is_missed(self, whole: Path, tmp_path: Path) -> None:
        path = tmp_path / "state"
        damages = [
            "DELETE FROM originals WHERE batch = 2",
            "UPDATE originals SET batch = 99 WHERE batch = 1",
            "INSERT INTO changes SELECT batch, columns FROM originals LIMIT 1",
            "INSERT OR REPLACE INTO meta VALUES ('watermark', '9e9')",
            "DELETE FROM meta WHERE name = 'settings'",
            "DELETE FROM meta WHERE name = 'seal'",
            "INSERT INTO meta VALUES ('more', '')",
        ]
        for damage in damages:
            shutil.copy(whole / "state", path)
            database = sqlite3.connect(path, isolation_level=None)
            assert database.execute(damage).rowcount == 1
            database.close()

            with pytest.raises(StateError, match="is damaged"):
                Deduplicator(SETTINGS, state=path)

    def test_a_refused_file_stays_as_it_is(self, whole: Path, tmp_path: Path) -> None:
        path = tmp_path / "state"
        for content in (b"", (whole / "state").read_bytes()[:5000], b"x" * 5000):
            path.write_bytes(content)
            with pytest.raises(StateError):
                Deduplicator(SETTINGS, state=path)
            assert path.read_bytes() == content

    def test_the_command_line_tells_it_in_a_sentence(self, whole: Path, tmp_path: Path) -> None:
        path = tmp_path / "state"
        path.write_bytes(b"")

        done = CliRunner().invoke(
            cli, ["run", str(whole / "in.jsonl"), "-o", "-", "--state", str(path)]
        )

        assert done.exit_code == 73
        assert "is empty" in done.stderr
        assert "Traceback" not in done.stderr
