"""``stream-dedup top``: the workers' figures in a terminal, live."""

from __future__ import annotations

import sys
import time
from functools import partial

import click
import msgspec
from rich.console import Console

from stream_dedup.cli.options import settings_options
from stream_dedup.errors import ServiceError, SettingsError
from stream_dedup.secrets import secret_of
from stream_dedup.setting_types import parse_duration
from stream_dedup.settings import Settings
from stream_dedup.top.monitor import Monitor, View
from stream_dedup.top.screen import watch
from stream_dedup.top.sources import Endpoints, Prometheus, Source
from stream_dedup.top.view import draw

_EPILOG = """\b
Examples:
  stream-dedup top
  stream-dedup top worker-1:9464 worker-2:9464
  stream-dedup top --prometheus http://prometheus:9090
  stream-dedup top --once
  stream-dedup top --json | jq .figures.lag.records

\b
Keys: q, Escape or Ctrl-C ends.

\b
Exit codes:
  0   ended
  2   an address is none, or a setting is wrong
  69  --once: nothing answers

Nothing is asked but the metrics; what the workers do not tell is shown as -.
"""

#: Lines of a view that is not on a terminal.
_LINES = 24


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    try:
        found = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not isinstance(found, float) or not 0.2 <= found <= 3600:
        msg = "an interval is from 200ms to 1h"
        raise click.BadParameter(msg)
    return found


@click.command("top", epilog=_EPILOG)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--prometheus", metavar="URL", help="Ask a Prometheus that scrapes the workers, not these."
)
@click.option(
    "--interval",
    default="2s",
    show_default=True,
    callback=_seconds,
    help="Time between two looks.",
)
@click.option("--once", is_flag=True, help="Print one view as text and end; so it is in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as a JSON line each time.")
@settings_options(also=("http_host", "http_port", "http_token_file"))
def top(
    *,
    urls: tuple[str, ...],
    prometheus: str | None,
    interval: float,
    once: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Watch workers: rates, lag, outcomes, latencies, stages, the index, and what goes wrong.

    URL is the address of a worker's metrics, such as worker-1:9464; any number of them are shown
    together. Without one it is that of http_host and http_port. Rates, shares and latencies are
    over the last ten seconds, from Prometheus over two minutes. Where the metrics want a token, set
    http_token_file or the environment variable of http_token.
    """
    token = partial(secret_of, settings, "http_token")
    token()  # a file that cannot be read is told at once
    if prometheus and urls:
        msg = "Both worker addresses and --prometheus are given. Leave one of them out."
        raise SettingsError(msg)
    source: Source
    if prometheus:
        source = Prometheus(prometheus, token)
    else:
        source = Endpoints(
            urls or [f"{_bracketed(settings.http_host)}:{settings.http_port}"], token
        )
    monitor = Monitor(source)
    console = Console(highlight=False)
    if as_json:
        _print_lines(monitor, interval, once=once)
    elif once or not sys.stdout.isatty():
        view = _first(monitor, interval)
        console.print(draw(view, width=console.width, height=_height(console), now=time.time()))
    else:
        watch(monitor, console, interval)


def _first(monitor: Monitor, interval: float) -> View:
    """Look until there is a change to show.

    Raises:
        ServiceError: nothing answers.
    """
    view = monitor.look()
    if view.answering and not view.figures.seconds:
        time.sleep(interval)
        view = monitor.look()
    if not view.answering:
        name, problem = next(iter(view.problems.items()))
        msg = f"{name}: {problem} Start a worker, or name the address of its metrics."
        raise ServiceError(msg)
    return view


def _print_lines(monitor: Monitor, interval: float, *, once: bool) -> None:
    """Print figures until interrupted, each time that there are some."""
    view = _first(monitor, interval) if once else monitor.look()
    while True:
        line = {"time": time.time(), **view._asdict()}
        del line["curve"]
        click.echo(msgspec.json.encode(line))
        if once:
            return
        time.sleep(interval)
        view = monitor.look()


def _height(console: Console) -> int:
    return console.height if console.is_terminal else _LINES


def _bracketed(host: str) -> str:
    """Write a host as it is in an address; one that stands for all of them is this machine."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"[{host}]" if ":" in host else host
