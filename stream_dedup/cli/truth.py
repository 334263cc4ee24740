"""Flags that say what decisions are held to, for the commands that evaluate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stream_dedup.cli.options import inputs_argument
from stream_dedup.evaluate.measures import Intervals
from stream_dedup.evaluate.request import KINDS, Request

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)
_SHARE = click.FloatRange(0, 1)

documents_argument = inputs_argument("documents", "DOCS...")

seed_option = click.option(
    "--random-seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of everything that is drawn; the same seed gives the same figures.",
)

_OPTIONS = [
    click.option(
        "--truth",
        "kind",
        type=click.Choice(KINDS),
        help="What decisions are held to. Without it, what the other flags give, else reference.",
    ),
    click.option(
        "--group-field",
        help="JSON field with the gold group; a.b is field b of object a. With --truth groups "
        "alone, one of group, cluster and truth.group.",
    ),
    click.option(
        "--pairs",
        type=_FILE,
        help="Labelled pairs: lines of id, id, label (1 or 0) with tabs, or those of `sample`.",
    ),
    click.option(
        "--reference", type=_FILE, help="Reference saved before, instead of a new exact join."
    ),
    click.option(
        "--save-reference",
        type=_NEW_FILE,
        help="File to save the reference to: id, earlier_id, resemblance; .gz and .zst too.",
    ),
    click.option(
        "--reference-threshold",
        type=click.FloatRange(0, 1, min_open=True),
        help="Exact resemblance from which a pair should be found. Without it, the threshold.",
    ),
    click.option(
        "--reference-shingle", help="Shingle of the exact resemblance. Without it, the setting."
    ),
    click.option(
        "--accept",
        type=_SHARE,
        help="Exact resemblance from which a found pair is right. Without it, .05 less than that "
        "of the reference.",
    ),
    click.option(
        "--confidence",
        type=click.FloatRange(0.5, 1, max_open=True),
        default=0.95,
        show_default=True,
        help="Coverage of the confidence intervals.",
    ),
    click.option(
        "--resamples",
        type=click.IntRange(0, 100_000),
        default=1000,
        show_default=True,
        help="Bootstrap resamples; 0 leaves these intervals out.",
    ),
    seed_option,
]


def truth_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags; it gets a ready ``request`` and ``how`` argument."""

    @functools.wraps(command)
    def run(*args: Any, confidence: float, resamples: int, random_seed: int, **values: Any) -> Any:
        request = Request(**{name: values.pop(name) for name in Request._fields})
        how = Intervals(confidence, resamples, random_seed)
        return command(*args, request=request, how=how, **values)

    wrapped: Callable[..., Any] = run
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
