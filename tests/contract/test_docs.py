"""The documentation builds, and says nothing that the program does not know."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stream_dedup.cli.main import cli
from stream_dedup.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "ops/*.md", "workers/*.md", "schemas/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # tells of what was, too
)
_COMMAND = re.compile(r"(?<![\w./-])stream-dedup ([a-z][a-z-]*)((?: [^\n`|;#&)]*)?)")
_TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)


def _commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command that a page names, with the flags it gives to it."""
    text = page.read_text().replace("\\\n", " ")
    for name, rest in _COMMAND.findall(text):
        try:
            words = shlex.split(rest)
        except ValueError:  # the text of an example has a quote of its own
            words = rest.split()
        yield name, [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]


def _flags(command: click.Command) -> set[str]:
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            flags |= _flags(found)
    return flags | {"--help"}


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]

    done = subprocess.run(
        [*build, "-c", "docs", "-d", str(tmp_path / "trees"), ".", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "docs" / "index.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_flags_are_known(page: Path) -> None:
    context = click.Context(cli)
    for name, flags in _commands(page):
        command = cli.get_command(context, name)
        assert command is not None, f"stream-dedup {name}"
        assert not set(flags) - _flags(command), f"stream-dedup {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_in_examples_are_known(page: Path) -> None:
    for block in _TOML.findall(page.read_text()):
        assert set(tomllib.loads(block)) <= set(Settings.model_fields), block


def test_every_command_is_documented() -> None:
    named = {name for page in PAGES for name, _ in _commands(page)}

    assert set(cli.list_commands(click.Context(cli))) <= named
