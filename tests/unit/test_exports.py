"""What the package shows to the outside."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import stream_dedup

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_all_names_are_the_public_ones() -> None:
    public = [
        name
        for name, value in vars(stream_dedup).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]

    assert sorted(stream_dedup.__all__) == sorted(public)


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]

    assert stream_dedup.__version__ == project["version"] == version("stream-dedup")


def test_types_are_shipped() -> None:
    assert Path(stream_dedup.__file__).with_name("py.typed").is_file()
