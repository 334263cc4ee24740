"""No data can become code: nothing is unpickled or evaluated that came from outside."""

from __future__ import annotations

import ast
import os
import pickle
import re
import sqlite3
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dedup import Deduplicator, Document, Settings, StreamDedupError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.frequencies import read_frequencies
from stream_dedup.index.parquet import read_originals
from stream_dedup.text import characters

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for folder in ("stream_dedup", "workers") for path in (ROOT / folder).rglob("*.py")
)

MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen"}

#: Batches go to the child processes of ``run --jobs`` through memory that has no name: only this
#: process and the one that it has started can write there, and nothing of it is kept.
ALLOWED = {("stream_dedup/stream/slots.py", "pickle")}


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from MODULES.intersection(name.name.split(".")[0] for name in names)
            case ast.ImportFrom(module=str(module)):
                yield from MODULES.intersection([module.split(".")[0]])
            case ast.Call(func=func, keywords=keywords):
                called = ast.unparse(func)
                if called in CALLS | LOADERS:
                    yield called
                for keyword in keywords:
                    if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False":
                        yield "allow_pickle"
                    if keyword.arg == "shell" and ast.unparse(keyword.value) != "False":
                        yield "shell"


def test_product_code_uses_nothing_that_runs_data() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), danger)
        for path in SOURCES
        for danger in dangers(ast.parse(path.read_text(encoding="utf-8")))
    }

    assert len(SOURCES) > 100
    assert found == ALLOWED


@pytest.mark.parametrize(
    ("line", "danger"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle"),
        ("eval('1')", "eval"),
        ("yaml.load(f)", "yaml.load"),
        ("np.load(f, allow_pickle=True)", "allow_pickle"),
        ("np.load(f, allow_pickle=x)", "allow_pickle"),
        ("subprocess.run(c, shell=True)", "shell"),
    ],
)
def test_they_would_be_found(line: str, danger: str) -> None:
    assert list(dangers(ast.parse(line))) == [danger]


def test_the_linter_looks_for_the_same() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    ignoring = {
        pattern
        for pattern, rules in lint["per-file-ignores"].items()
        if any(r[0] == "S" and r != "SIM" for r in rules)
    }
    silenced = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if re.search(r"noqa: S30\d", path.read_text(encoding="utf-8"))
    ]

    assert "S" in lint["select"]
    assert [rule for rule in lint["ignore"] if rule.startswith("S")] == []
    assert ignoring == {"tests/**", "benchmarks/**"}
    assert silenced == ["stream_dedup/stream/slots.py"]


class TestHostileFiles:
    @pytest.fixture
    def bomb(self, tmp_path: Path) -> Iterator[Bomb]:
        hit = tmp_path / "exploded"
        yield Bomb(hit)
        assert not hit.exists()

    def test_the_bomb_would_explode(self, tmp_path: Path) -> None:
        pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded")))

        assert (tmp_path / "exploded").is_dir()

    def test_an_npz_of_objects_is_refused(
        self, bomb: Bomb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "characters.npz"
        np.savez(path, fold_from=np.array([0]), fold_to=np.array([bomb], object))
        monkeypatch.setattr(characters, "_FILE", path)

        with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
            characters.characters.__wrapped__()

    def test_a_pickle_for_a_state_file_is_refused(self, bomb: Bomb, tmp_path: Path) -> None:
        path = tmp_path / "originals.db"
        path.write_bytes(pickle.dumps(bomb))

        with pytest.raises(StreamDedupError, match=r"originals\.db"):
            Deduplicator(state=path)

    @pytest.mark.parametrize(("table", "column"), [("originals", "columns"), ("changes", "change")])
    def test_a_pickle_in_a_state_file_is_refused(
        self, bomb: Bomb, tmp_path: Path, table: str, column: str
    ) -> None:
        path = tmp_path / "originals.db"
        with Deduplicator(state=path) as deduplicator:
            deduplicator.decide([Document("a", "a text of some words that is long enough")])
        with sqlite3.connect(path) as database:
            database.execute(f"DELETE FROM {table}")
            database.execute(f"INSERT INTO {table} VALUES (1, ?)", [pickle.dumps(bomb)])
        database.close()

        with (
            pytest.raises(StreamDedupError, match=r"originals\.db"),
            Deduplicator(state=path) as it,
        ):
            it.decide([Document("b", "a text")])

    def test_a_pickle_for_parquet_is_refused(self, bomb: Bomb, tmp_path: Path) -> None:
        path = tmp_path / "originals.parquet"
        path.write_bytes(pickle.dumps(bomb))

        with pytest.raises(StreamDedupError, match=r"originals\.parquet"):
            list(read_originals(path, Fingerprinter(Settings())))

    def test_a_pickle_for_frequencies_is_refused(self, bomb: Bomb, tmp_path: Path) -> None:
        path = tmp_path / "posts.freq"
        path.write_bytes(pickle.dumps(bomb))

        with pytest.raises(StreamDedupError, match=r"posts\.freq"):
            read_frequencies(path)

    def test_a_pickle_for_boilerplate_is_refused(self, bomb: Bomb, tmp_path: Path) -> None:
        path = tmp_path / "lines.bin"
        path.write_bytes(pickle.dumps(bomb))

        with pytest.raises(StreamDedupError, match=r"lines\.bin"):
            Fingerprinter(Settings(clean="boilerplate", boilerplate_file=path))
