"""What the image is built with is locked, and fits what the project asks for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "ops" / "deploy"
LOCKS = [DEPLOY / "requirements.lock", DEPLOY / "build.lock"]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = ("confluent", "oauth", "serve")
#: As the image has it: Python 3.12 on Linux.
IMAGE = {"python_version": "3.12", "python_full_version": "3.12.0", "sys_platform": "linux"}
#: Private attributes of objects that are a library's, and the files that use them.
FOREIGN = re.compile(
    r"(?:consumer|_coordinator|producer|connection|histogram|metric|record|made|_consumer)"
    r"\.(_[a-z]\w+)"
)
PRIVATE = {
    "bulk.py _sock",  # redis
    "http.py _name",  # prometheus-client, as the next two
    "metrics.py _buckets",
    "metrics.py _labelnames",
    "metrics.py _sum",
    "metrics.py _upper_bounds",
    "kafka.py _coordinator",  # kafka-python, as all below
    "kafka_clients.py _sender",
    "kafka_records.py _fetcher",
    "kafka_records.py _headers",
    "kafka_records.py _limit",
}


class Locked(NamedTuple):
    """An entry of a lock file."""

    version: str
    hashes: list[str]


def locked(path: Path) -> dict[str, Locked]:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            match = re.fullmatch(
                r"([a-z0-9-]+)==([^\s;]+)((?: +--hash=sha256:[0-9a-f]{64})+)", line
            )
            assert match is not None, line
            found[match[1]] = Locked(match[2], match[3].split())
    return found


def wanted(path: Path) -> list[Requirement]:
    if path.name == "build.lock":
        return [Requirement(one) for one in PYPROJECT["build-system"]["requires"]]
    return project(EXTRAS)


def needs(name: str, extras: set[str]) -> set[str]:
    """Return what an installed library needs, in the image."""
    found = [Requirement(line) for line in metadata.requires(name) or []]
    return {
        canonicalize_name(one.name)
        for one in found
        if one.marker is None
        or any(one.marker.evaluate({**IMAGE, "extra": extra}) for extra in {"", *extras})
    }


def project(extras: Iterable[str]) -> list[Requirement]:
    """Return what the project asks for, with extras."""
    asked = PYPROJECT["project"]
    lists = [asked["dependencies"], *(asked["optional-dependencies"][name] for name in extras)]
    return [Requirement(one) for each in lists for one in each]


class TestBounds:
    ALL = project(PYPROJECT["project"]["optional-dependencies"])

    @pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
    def test_every_dependency_has_a_lowest_and_a_highest_version(self, one: Requirement) -> None:
        assert sorted(bound.operator for bound in one.specifier) == ["<", ">="]

    def test_the_tools_ask_for_the_same_versions(self) -> None:
        bounds = {one.name: one.specifier for one in self.ALL}
        tools = [one for one in PYPROJECT["dependency-groups"]["dev"] if isinstance(one, str)]

        shared = [one for one in map(Requirement, tools) if one.name in bounds]
        assert len(shared) > 5
        assert [one for one in shared if one.specifier != bounds[one.name]] == []

    def test_what_is_installed_lies_within(self) -> None:
        wrong = [
            str(one)
            for one in self.ALL
            if not one.specifier.contains(metadata.version(one.name), prereleases=True)
        ]
        assert wrong == []

    def test_private_parts_of_libraries_are_used_where_bounds_are_narrow(self) -> None:
        """A new use of somebody's private part needs a look at the bounds: it is listed here."""
        used = {
            f"{path.relative_to(ROOT).parts[-1]} {match[1]}"
            for folder in ("stream_dedup", "workers")
            for path in (ROOT / folder).rglob("*.py")
            for match in FOREIGN.finditer(path.read_text(encoding="utf-8"))
        }
        assert used == PRIVATE

    def test_ci_runs_the_lowest_versions(self) -> None:
        assert "\nmake test-lowest " in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
class TestLock:
    def test_every_entry_is_one_version_with_hashes(self, path: Path) -> None:
        entries = locked(path)

        assert entries
        assert all(len(entry.hashes) == len(set(entry.hashes)) for entry in entries.values())

    def test_it_has_what_the_project_asks_for(self, path: Path) -> None:
        entries = locked(path)

        missing = [
            str(one)
            for one in wanted(path)
            if (entry := entries.get(canonicalize_name(one.name))) is None
            or not one.specifier.contains(entry.version)
        ]

        assert missing == [], "make lock"

    def test_it_has_what_these_need_in_turn(self, path: Path) -> None:
        entries = locked(path)
        extras = {str(canonicalize_name(one.name)): one.extras for one in wanted(path)}
        installed = {
            str(canonicalize_name(one.name)): one.version for one in metadata.distributions()
        }

        # What another version than the locked one needs says nothing about the lock.
        same = [name for name, entry in entries.items() if installed.get(name) == entry.version]
        missing = {
            name: lacking
            for name in same
            if (lacking := needs(name, extras.get(name, set())) - set(entries))
        }

        assert missing == {}, "make lock"

    def test_it_names_no_place_to_take_them_from(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")

        assert "://" not in text
        assert "--index-url" not in text
        assert "--find-links" not in text


def test_the_bill_of_materials_has_all_that_is_locked(tmp_path: Path) -> None:
    (recipe,) = re.findall(
        r"^\t\$\(BIN\)/(cyclonedx-py .*?)$",
        (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", ""),
        re.MULTILINE,
    )
    output = tmp_path / "sbom.json"
    command = recipe.replace("dist/sbom.json", str(output)).split()

    subprocess.run(
        [Path(sys.executable).with_name(command[0]), *command[1:]],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )

    bill = json.loads(output.read_text())
    components = {one["name"]: one for one in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "stream-dedup"
    assert {name: one["version"] for name, one in components.items()} == {
        name: entry.version for name, entry in locked(LOCKS[0]).items()
    }
    assert all(one["externalReferences"][0]["hashes"] for one in components.values())
