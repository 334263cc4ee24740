"""The health check of the image."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stream_dedup_workers import healthcheck
from stream_dedup_workers.http import StatusServer

from tests.services.process import free_ports


class Program:
    """What a worker answers."""

    def __init__(self, directory: str) -> None:
        self.problem = ""
        self.server = StatusServer(
            "127.0.0.1", 0, directory, healthy=lambda: "", ready=lambda: self.problem
        )
        self.server.start()


@pytest.fixture
def program(tmp_path: object) -> Iterator[Program]:
    found = Program(str(tmp_path))
    yield found
    found.server.close()


def test_a_program_that_is_ready_is_healthy(program: Program) -> None:
    assert healthcheck.main([str(program.server.port)]) == 0


def test_one_that_is_not_says_why(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    program.problem = "worker-0 has not joined the group."

    assert healthcheck.main([str(program.server.port)]) == 1
    assert capsys.readouterr().out == "worker-0 has not joined the group.\n"


def test_one_that_does_not_answer_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)

    assert healthcheck.main([str(port)]) == 1
    assert f"No answer on port {port}" in capsys.readouterr().out


def test_the_port_is_that_of_the_worker_unless_it_is_given(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(healthcheck.PORT_VARIABLE, str(program.server.port))

    assert healthcheck.main([]) == 0
