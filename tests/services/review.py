"""``stream-dedup review`` as a process."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.services.http import get
from tests.services.process import Process, free_ports
from tests.services.service import Service

_PROGRAM = Path(sys.executable).with_name("stream-dedup")


class Review(Service):
    """The review page of an annotated file, on a port of its own."""

    name = "The review page"

    def __init__(
        self, source: Path, folder: Path, *arguments: str, reads_on: bool = False, **flags: str
    ) -> None:
        """Describe the server.

        Args:
            source: annotated file.
            folder: for its labels and its log.
            arguments: more for the command line.
            reads_on: it is ready before it has read everything.
            flags: more settings, such as ``review_window="1000"``.
        """
        self.port = free_ports(1)[0]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.labels = folder / "labels.db"
        given = {"review_port": str(self.port), "review_labels": str(self.labels)} | flags
        named = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        self._asked = "/healthz" if reads_on or "review_token_file" in flags else "/"
        command = [str(_PROGRAM), "review", str(source), *arguments, *named]
        self._runner = Process(command, folder / "review.log")

    def is_ready(self) -> bool:
        """Whether it has read what there is, and answers."""
        status, page = get(self.port, self._asked)
        return status == 200 and 'class="status reading"' not in page
