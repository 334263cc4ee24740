"""Toxiproxy: proxies that delay, break, swallow or throttle connections when told to."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import NamedTuple

from tests.services.errors import ServiceError
from tests.services.process import Process, free_ports
from tests.services.service import Service, listens, scratch_directory

#: Built by ``make services`` through the Go module proxy.
PROGRAM = Path(__file__).parents[2] / ".services" / "toxiproxy" / "server"


class Toxic(NamedTuple):
    """Something bad for a connection.

    Attributes:
        kind: Toxiproxy's name for it.
        attributes: its parameters.
    """

    kind: str
    attributes: dict[str, int]


class Toxiproxy(Service):
    """The program with all of its proxies; it must run before the first is added."""

    name = "Toxiproxy"

    def __init__(self) -> None:
        if not PROGRAM.is_file():
            msg = f"There is no Toxiproxy in {PROGRAM.parent}; run `make services`."
            raise ServiceError(msg)
        self._port = free_ports(1)[0]
        place = ["-host", "127.0.0.1", "-port", str(self._port)]
        self._runner = Process([str(PROGRAM), *place], scratch_directory("toxiproxy") / "log")

    def is_ready(self) -> bool:
        """Whether it can be told what to do."""
        return listens(self._port)

    def add(self, name: str, port: int, upstream: int) -> None:
        """Add a proxy.

        Args:
            name: what it is called.
            port: where it listens.
            upstream: the port that it passes connections on to.
        """
        places = {"listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream}"}
        self._call("POST", "proxies", {"name": name, **places, "enabled": True})

    def poison(self, name: str, toxic: Toxic) -> None:
        """Make connections bad from now on, those that stand too, in both directions."""
        for stream in ("upstream", "downstream"):
            body = {"name": stream, "type": toxic.kind, "stream": stream}
            path = f"proxies/{name}/toxics"
            self._call("POST", path, {**body, "attributes": toxic.attributes})

    def cure(self, name: str) -> None:
        """Make them good again."""
        for stream in ("upstream", "downstream"):
            self._call("DELETE", f"proxies/{name}/toxics/{stream}", None)

    def _call(self, method: str, path: str, body: object) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()
