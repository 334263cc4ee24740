"""``stream-dedup learn``: the group of commands that learn something from documents."""

from __future__ import annotations

import click

from stream_dedup.cli.learn_boilerplate import boilerplate
from stream_dedup.cli.learn_frequencies import frequencies

_EPILOG = """\b
Examples:
  stream-dedup learn boilerplate posts.jsonl --origin-field site -o boilerplate.bin
  stream-dedup learn frequencies posts.jsonl -o posts.freq
  stream-dedup learn frequencies --help
"""


@click.group(epilog=_EPILOG)
def learn() -> None:
    """Learn from documents what other commands then use."""


learn.add_command(boilerplate)
learn.add_command(frequencies)
