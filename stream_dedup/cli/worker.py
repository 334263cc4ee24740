"""``stream-dedup worker``: exactly once from Kafka to Kafka."""

from __future__ import annotations

import click

from stream_dedup.cli.options import settings_options
from stream_dedup.settings import Settings

_EPILOG = """\b
Examples:
  stream-dedup worker --kafka-bootstrap kafka:9092 --redis-url redis://redis:6379/0
  stream-dedup worker --config worker.toml --processes 4 --http-host 0.0.0.0
  stream-dedup worker --config worker.toml --shadow looser.toml --shadow-topic documents.shadow
  curl http://127.0.0.1:9464/readyz

\b
Exit codes:
  0   stopped by SIGTERM or SIGINT
  2   a setting is missing or out of range, or the HTTP address cannot be bound
  69  Kafka or Redis is out of reach, or not set up as needed
  78  the index was built with another fingerprint configuration

SIGTERM and SIGINT: each worker process finishes the batch in hand, commits it and leaves the
group; what has not ended after 25 s is killed, which loses and doubles nothing.
"""


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Log JSON objects: --log-format json.")
@settings_options("fingerprint", "forgetting", "redis", "kafka", "worker", "input", "shadow")
def worker(*, as_json: bool, settings: Settings) -> None:
    """Annotate a Kafka topic, exactly once.

    Reads documents from the input topic, decides each one with the Redis index, and publishes it
    with its annotation to the output topic, in one transaction with the input offset. Messages
    that cannot be decided go to the dead-letter topic with a reason.

    Kafka, Redis, the topics and the index are checked first; a worker process that dies later or
    stalls is started again. /metrics, /healthz and /readyz are served while it runs.
    """
    # Imported here because every other command does without Kafka, Redis and a HTTP server.
    from stream_dedup_workers.supervisor import Supervisor  # noqa: PLC0415

    if as_json:
        settings = settings.model_copy(update={"log_format": "json"})
    click.get_current_context().exit(Supervisor(settings).run())
