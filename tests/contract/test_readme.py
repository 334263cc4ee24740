"""What the README shows is what the program does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stream_dedup.cli.main import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the fenced blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("python")[0], {})

    assert capsys.readouterr().out.splitlines() == ["original a", "exact_duplicate a"]


def test_make_run_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    result = CliRunner().invoke(cli, ["run", "examples/documents.jsonl", "-o", "/dev/null"])

    # All but the first line, which tells the time.
    assert result.stderr.splitlines()[1:] == blocks("text")[0].splitlines()[1:]


def test_the_explanation_is_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, _, shown = blocks("text")[1].partition("\n")

    result = CliRunner().invoke(cli, shlex.split(command.removeprefix("$ stream-dedup ")))

    assert result.stdout == shown


def test_every_command_shown_exists() -> None:
    shown = set(re.findall(r"^stream-dedup ([a-z][a-z-]*)", "".join(blocks("sh")), re.MULTILINE))

    assert shown
    assert shown <= set(cli.list_commands(click.Context(cli)))
