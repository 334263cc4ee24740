"""Runs the page until SIGTERM: opens the window, begins to read, and serves."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_dedup import __version__
from stream_dedup.errors import SettingsError
from stream_dedup.http_limits import bind
from stream_dedup.review.guard import Guard
from stream_dedup.review.ingestion import Ingestion
from stream_dedup.review.labelling import Labelling
from stream_dedup.review.reading.source import Source
from stream_dedup.review.site import Ask, Site, make_site
from stream_dedup.review.window import Window
from stream_dedup.secrets import secret_of
from stream_dedup.serve.listening import run_until_stopped
from stream_dedup.settings import Settings
from stream_dedup.tokens import is_open

log = logging.getLogger(__name__)


def review(settings: Settings, source: Source, ask: Ask | None = None) -> None:
    """Serve the page until SIGTERM or SIGINT.

    Args:
        settings: the settings.
        source: what is shown.
        ask: asks an index about texts; None without one.

    Raises:
        SettingsError: the address cannot be bound or needs a token, or the token cannot be read.
        StateError: the file of the window cannot be used.
    """
    token = secret_of(settings, "review_token")
    if is_open(settings.review_host, token):
        msg = (
            f"Others can reach {settings.review_host}, and there is no token. Set "
            "review_token_file, or leave review_host out."
        )
        raise SettingsError(msg)
    with (
        bind(settings.review_host, settings.review_port, "review") as listener,
        _window(settings) as window,
    ):
        ingestion = Ingestion(window, source)
        guard = Guard(token, settings.review_names)
        labelling = Labelling(settings, window)
        site = Site(settings, window, guard, ingestion=ingestion, ask=ask, labels=labelling)
        ingestion.start()
        labelling.start()
        try:
            host, port = listener.getsockname()[:2]
            log.info(
                "stream-dedup %(version)s serves the review page on http://%(host)s:%(port)d",
                {"version": __version__, "host": host, "port": port},
            )
            run_until_stopped(make_site(site), listener)
        finally:
            labelling.close()
            ingestion.stop()
    log.info("stopped")


@contextmanager
def _window(settings: Settings) -> Iterator[Window]:
    """Open the window: the file that is set, or a temporary one."""
    with tempfile.TemporaryDirectory(prefix="stream-dedup-review-") as folder:
        path = settings.review_file or Path(folder) / "window.db"
        window = Window.open(path, settings.review_window)
        try:
            yield window
        finally:
            window.close()
