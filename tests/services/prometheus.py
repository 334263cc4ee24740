"""A Prometheus server, and promtool to check its files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.services.process import Process, find_program, free_ports
from tests.services.service import Service, scratch_directory


class Prometheus(Service):
    """A local server that scrapes what ``config`` (the text of a prometheus.yml) says."""

    name = "Prometheus"

    def __init__(self, config: str) -> None:
        directory = scratch_directory("prometheus")
        file = directory / "prometheus.yml"
        file.write_text(config)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        self.url = f"http://{address}"
        command = [find_program("prometheus"), f"--config.file={file}"]
        command += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={address}"]
        self._runner = Process(command, directory / "log")

    def is_ready(self) -> bool:
        """Whether the server has loaded its data and takes queries."""
        try:
            with urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except (URLError, ConnectionError, TimeoutError):
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate ``expression`` now and return the series found."""
        return self._ask("query", query=expression)

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> list[dict[str, Any]]:
        """Evaluate ``expression`` every ``step`` seconds from ``start`` to ``end`` (Unix time)."""
        return self._ask("query_range", query=expression, start=start, end=end, step=step)

    def _ask(self, what: str, **question: object) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/api/v1/{what}?{urlencode(question)}", timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result


def promtool(
    *arguments: str | Path, stdin: Path = Path(os.devnull)
) -> subprocess.CompletedProcess[str]:
    """Run promtool and return what it said; its output is in ``stdout``."""
    with stdin.open() as given:
        return subprocess.run(
            [find_program("promtool"), *map(str, arguments)],
            check=False,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
