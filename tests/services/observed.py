"""Prometheus beside workers, and documents that give every panel of the dashboards something."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count, cycle
from pathlib import Path

from stream_dedup.generate import StreamShape, generate
from tests.services.prometheus import Prometheus
from tests.services.worker import Sent, Worker, document

#: As the compose file has it.
JOB = "stream-dedup"
#: One message in so many cannot be decided.
_POISON = 120
#: One in so many has a document forgotten.
_TOMBSTONE = 80
#: Differs from the default .8, so that the two configurations do not always agree.
_SHADOW = "threshold = 0.7\nredis_namespace = 'shadow'\n"


def shadow_file(folder: Path) -> str:
    """Write the settings of a shadow that differs, and return where they are."""
    path = folder / "shadow.toml"
    path.write_text(_SHADOW)
    return str(path)


def beside(workers: Sequence[Worker]) -> Prometheus:
    """Return a server, not started yet, that scrapes these workers every second."""
    targets = [f"127.0.0.1:{worker.flags['http-port']}" for worker in workers]
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": targets}]}],
    }
    return Prometheus(json.dumps(config))


def messages(documents: int, seed: int = 5) -> Iterator[Sent]:
    """Yield originals, exact and near copies, texts that differ by more, poison and tombstones.

    Args:
        documents: how many documents; the rest comes on top.
        seed: of the texts.
    """
    shape = StreamShape(
        documents=documents,
        duplicate_share=0.4,
        words=120,
        edits=4,
        resemblance=0.7,
        distance=500,
        seed=seed,
    )
    poison = cycle([Sent(b"not JSON"), Sent(b"{}"), Sent(b"\xff")])
    for number, made in zip(count(1), generate(shape), strict=False):
        key = made.id.encode()
        yield Sent(document(id=made.id, text=made.text), key)
        if number % _POISON == 0:
            yield next(poison)
        if number % _TOMBSTONE == 0:
            yield Sent(None, key)
