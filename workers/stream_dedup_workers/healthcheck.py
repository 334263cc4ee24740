"""``python -m stream_dedup_workers.healthcheck [PORT]``: is the program in this container ready?

For the health check of the image. It imports nothing but a little of the standard library, because
it runs every few seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException

#: Where the port of the worker is set, and what it is otherwise.
PORT_VARIABLE = "STREAM_DEDUP_HTTP_PORT"
DEFAULT_PORT = "9464"
TIMEOUT_SECONDS = 4


def main(arguments: Sequence[str]) -> int:
    """Ask /readyz on this machine; return the exit code: 0 if ready, else 1."""
    port = arguments[0] if arguments else os.environ.get(PORT_VARIABLE, DEFAULT_PORT)
    connection = HTTPConnection("127.0.0.1", int(port), timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        said = answer.read(200).decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        sys.stdout.write(f"No answer on port {port}: {error}.\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{said}\n")
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
