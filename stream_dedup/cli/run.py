"""``stream-dedup run``: annotate files of documents, without a server."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from stream_dedup.cli.options import inputs_argument, settings_options
from stream_dedup.cli.shadow_run import ShadowRun, in_sentences
from stream_dedup.deduplicator import Deduplicator, Stages
from stream_dedup.settings import Settings
from stream_dedup.stream.collector import calm
from stream_dedup.stream.embedded import Here, Pool, Run, Summary
from stream_dedup.stream.files import CHUNK_LINES, STANDARD, Chunk, open_output, read_chunks
from stream_dedup.stream.lines import JsonLines, TextLines, line_bytes
from stream_dedup.stream.stages import LineFormat, LineStages

_EPILOG = """\b
Examples:
  stream-dedup run posts.jsonl -o annotated.jsonl
  stream-dedup run monday.jsonl.gz tuesday.jsonl.gz --threshold 0.9 -o annotated.jsonl.zst
  cat posts.jsonl | stream-dedup run - --state originals.db > annotated.jsonl
  stream-dedup run posts.jsonl.gz --jobs 2 -o annotated.jsonl
  stream-dedup run titles.txt --format text --shingle char:5 --method simhash
  stream-dedup run backlog.jsonl --redis-url redis://10.0.0.1:6379 -o annotated.jsonl
  stream-dedup run posts.jsonl --shadow looser.toml --shadow-samples to-label.jsonl -o out.jsonl

\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
  65  a line is not a document (see --dead-letters), or a file cannot be read
  69  Redis is out of reach, or refuses
  70  a process of --jobs has ended
  73  the state file cannot be used
  78  the state file, or the index in Redis, was made with other fingerprint settings
"""


@click.command(epilog=_EPILOG)
@inputs_argument("inputs", "INPUT...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=STANDARD,
    help="File to write; .gz and .zst are compressed. Without it, standard output.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that keeps the originals between runs; made if it does not exist.",
)
@click.option(
    "--redis",
    is_flag=True,
    help="Keep the originals in Redis, one node or a Cluster, shared with all workers and runs "
    "there, at redis_url; a --redis-url implies it.",
)
@click.option(
    "--dead-letters",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for lines that are no documents; without it the first of them ends the run.",
)
@click.option(
    "--format",
    "line_format",
    type=click.Choice(["jsonl", "text"]),
    default="jsonl",
    show_default=True,
    help="What a line is: a JSON object, or the text itself.",
)
@click.option(
    "--shadow-state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The same as --state, for the originals of the shadow.",
)
@click.option(
    "--shadow-samples",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for pairs to label, sampled from what the shadow decides otherwise.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary and no progress bar.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the summary as JSON: to standard output with -o, else to standard error.",
)
@settings_options("input", "fingerprint", "forgetting", "redis", "run", "shadow")
@click.pass_context
def run(
    context: click.Context,
    *,
    inputs: tuple[Path, ...],
    output: Path,
    state: Path | None,
    redis: bool,
    dead_letters: Path | None,
    line_format: str,
    shadow_state: Path | None,
    shadow_samples: Path | None,
    quiet: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Decide every document of some files and write it back, annotated.

    INPUT is a file of JSON lines (plain, gzip or zstd), or - for standard input. Each line is
    written back in order, unchanged but for a `dedup` object with the status (original,
    exact_duplicate or near_duplicate), the id of its duplicate group and the id of its original.
    A run with --state or --redis may be killed at any moment and made again: it gives the same
    annotations. With --shadow, a second configuration decides beside this one, and the differences
    are told.
    """
    redis = redis or context.get_parameter_source("redis_url") is ParameterSource.COMMANDLINE
    if redis and (state is not None or shadow_state is not None):
        msg = "--state and --redis name two places for the originals. Name one."
        raise click.UsageError(msg)
    _refuse_the_same(
        {
            "--output": output,
            "--dead-letters": dead_letters,
            "--state": state,
            "--shadow-state": shadow_state,
            "--shadow-samples": shadow_samples,
        }
    )
    shadow = ShadowRun.of(settings, shadow_state, shadow_samples, in_redis=redis)
    aside = dead_letters is not None
    beside = None if shadow is None else shadow.settings
    make = partial(_stages, settings, line_format, set_aside=aside, shadow=beside)
    with ExitStack() as stack:
        jobs = settings.jobs or _cores()
        pool: Pool = Here(make()) if jobs == 1 else _job_pool(stack, jobs, make)
        deduplicator = stack.enter_context(_open(settings, state, redis=redis))
        write = stack.enter_context(open_output(output)).write
        set_aside = None
        if dead_letters is not None:
            set_aside = stack.enter_context(open_output(dead_letters)).write
        second = None
        if beside is not None:
            second = stack.enter_context(_open(beside, shadow_state, redis=redis)).index
        job = Run(deduplicator.index, pool, write, set_aside, settings, shadow=second)
        progress = stack.enter_context(_progress(inputs, shown=not quiet and sys.stderr.isatty()))
        calm(CHUNK_LINES)
        job.annotate(_all_chunks(inputs, line_bytes(settings), progress))
        summary = job.summary(deduplicator.configuration)
    told, sentences = msgspec.structs.asdict(summary), _sentences(summary)
    if shadow is not None:
        told["shadow"] = found = shadow.end(job.comparison, inputs, make())
        sentences += "\n" + in_sentences(found)
    if as_json:
        click.echo(msgspec.json.encode(told), err=output == STANDARD)
    elif not quiet:
        click.echo(sentences, err=True)


def _refuse_the_same(written: Mapping[str, Path | None]) -> None:
    """Refuse to write two things into one file, of which one would be lost."""
    flags: dict[Path, str] = {}
    for flag, path in written.items():
        if path is not None and (other := flags.setdefault(path.resolve(), flag)) != flag:
            msg = f"{other} and {flag} name the same file. Name two."
            raise click.UsageError(msg)


def _open(settings: Settings, state: Path | None, *, redis: bool) -> Deduplicator:
    if not redis:
        return Deduplicator(settings, state=state, resumes=True)
    # Imported here because a run on files does without the client.
    from stream_dedup.index.progress import Progress  # noqa: PLC0415
    from stream_dedup.index.redis import RedisIndex  # noqa: PLC0415

    index = RedisIndex.connect(settings)
    try:
        Progress(index.store).refuse_unfinished()
    except BaseException:
        index.close()
        raise
    return Deduplicator(settings, index=index)


def _stages(
    settings: Settings, line_format: str, *, set_aside: bool, shadow: Settings | None = None
) -> LineStages:
    is_text = line_format == "text"
    lines: LineFormat = TextLines(settings) if is_text else JsonLines(settings, room=0)
    beside = None if shadow is None else Stages(shadow)
    return LineStages(Stages(settings), lines, set_aside=set_aside, shadow=beside)


def _job_pool(stack: ExitStack, jobs: int, make: Callable[[], LineStages]) -> Pool:
    # Imported here because one process does without it.
    from stream_dedup.stream.jobs import JobPool  # noqa: PLC0415

    return stack.enter_context(JobPool(jobs, make, [__name__]))


def _cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _all_chunks(
    inputs: tuple[Path, ...], most: int, progress: Callable[[int], None]
) -> Iterator[Chunk]:
    occurrences: Counter[Path] = Counter()
    done = 0
    for path in inputs:
        resolved = path if path == STANDARD else path.resolve()
        advance = partial(_advance, progress, done)
        yield from read_chunks(path, occurrences[resolved], most, advance)
        occurrences[resolved] += 1
        done += 0 if path == STANDARD else path.stat().st_size


def _advance(progress: Callable[[int], None], before: int, read: int) -> None:
    progress(before + read)


@contextmanager
def _progress(inputs: tuple[Path, ...], *, shown: bool) -> Iterator[Callable[[int], None]]:
    if not shown:
        yield lambda _read: None
        return
    # Imported here because a pipe does without it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    total = None if STANDARD in inputs else sum(path.stat().st_size for path in inputs)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda read: bar.update(task, completed=read)


def _sentences(summary: Summary) -> str:
    documents, rate = summary.documents, summary.documents_per_second
    lines = [f"{documents:,} documents in {summary.seconds:.1f} s ({rate:,} a second)"]
    for name in ("originals", "exact_duplicates", "near_duplicates"):
        count = getattr(summary, name)
        share = count / max(documents, 1)
        lines.append(f"{count:>12,}  {share:7.2%}  {name.replace('_', ' ')}")
    if summary.dead_letters:
        lines.append(f"{summary.dead_letters:>12,}           lines set aside")
    if summary.tombstones:
        lines.append(f"{summary.tombstones:>12,}           tombstones")
    if summary.late:
        lines.append(
            f"{summary.late:>12,}           documents later than --lateness, whose originals may "
            f"have expired"
        )
    if summary.largest_groups:
        lines.append("largest groups:")
    lines += [
        f"{group.documents:>12,}  documents, original {group.original_id}"
        for group in summary.largest_groups
    ]
    return "\n".join(lines)
