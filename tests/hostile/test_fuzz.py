"""The harnesses on generated input: with hypothesis, and for a few seconds under atheris."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_dedup.settings import Settings
from tests.hostile import harnesses
from tests.hostile.harnesses import HARNESSES, seeds

ROOT = Path(__file__).parents[2]
#: Where atheris has wheels; the dependency group ``fuzz`` says the same.
FUZZED = (sys.platform, platform.machine()) == ("linux", "x86_64") and sys.version_info < (3, 15)
ATHERIS_SECONDS = 5


def patiently(examples: int) -> settings:
    """Ask for so many examples, however long each takes."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


NAMES = ["text", "id", "at", "rank", "origin", "dedup", "documents", "explain", "time"]
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=40),
    st.sampled_from([2**64, -(2**63) - 1, 1e308, "1e400", "\ud800", "\0", "2026-01-01T24:00"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=5)), inner, max_size=4),
    ),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=5)), VALUES)


SEEDS = {name: sorted(seeds(name)) for name in HARNESSES}


@st.composite
def mutated(draw: st.DrawFn, name: str) -> bytes:
    """Make a seed, or an object, into something that is almost it."""
    known = st.sampled_from(SEEDS[name])
    made = OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=draw(st.booleans())))
    data = draw(st.one_of(known, made.map(lambda text: text.encode("utf-8", "surrogatepass"))))
    for _ in range(draw(st.integers(0, 3))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 3))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + length :]
    return data


@pytest.mark.parametrize("name", HARNESSES)
def test_the_seeds(name: str) -> None:
    for seed in seeds(name):
        HARNESSES[name](seed)


@patiently(300)
@given(mutated("decoder"))
def test_messages(value: bytes) -> None:
    harnesses.decoder(value)
    harnesses.splice(value)


@patiently(400)
@given(st.text(st.characters(), max_size=60))
def test_texts(text: str) -> None:
    harnesses.normaliser(text.encode("utf-8", "surrogatepass"))


@patiently(60)
@given(*(st.text(st.characters(), max_size=6) for _ in range(3)))
def test_repeated_texts(before: str, unit: str, after: str) -> None:
    parts = (part.replace("\n", "") for part in (before, unit, after))
    harnesses.growing("\n".join(parts).encode("utf-8", "replace"))


@patiently(40)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(Settings.model_fields)), LEAVES), min_size=1, max_size=3
    ),
    st.booleans(),
)
def test_settings(given_: list[tuple[str, Any]], quoted: bool) -> None:
    lines = [f"{name} = {json.dumps(v) if quoted else v}" for name, v in given_]
    harnesses.settings("\n".join(lines).encode("utf-8", "replace"))


@patiently(100)
@given(mutated("http"))
def test_requests(body: bytes) -> None:
    harnesses.http(body)


@pytest.mark.skipif(not FUZZED, reason="atheris has no wheel for this machine")
@pytest.mark.parametrize("name", HARNESSES)
def test_under_atheris(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hostile.fuzz", name, str(ATHERIS_SECONDS)]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'workers'}", "PATH": ""},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "stat::number_of_executed_units" in done.stderr
