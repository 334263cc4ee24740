"""A server as a Docker container."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache

from testcontainers.core.container import DockerContainer

from tests.services.errors import ServiceError

_ANSWER_SECONDS = 10.0
_STOP_SECONDS = 20


@cache
def docker_answers() -> bool:
    """Whether there is a Docker daemon to talk to, as ``make services`` asks it too."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(
            ["docker", "info"], check=False, capture_output=True, timeout=_ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


class Container:
    """One container; testcontainers removes it even when the tests are killed."""

    def __init__(
        self,
        image: str,
        ports: Sequence[int],
        environment: Mapping[str, str],
        command: Sequence[str] = (),
    ) -> None:
        # The same port inside and outside, so that a server may advertise its address.
        self._container = DockerContainer(image)
        for port in ports:
            self._container.with_bind_ports(port, port)
        self._container.with_envs(**environment)
        if command:
            self._container.with_command(list(command))
        self._created = False

    @property
    def is_alive(self) -> bool:
        """Whether the container runs (or is paused)."""
        if not self._created:
            return False
        self._container.reload()
        return self._container.status in {"created", "running", "paused", "restarting"}

    def start(self) -> None:
        """Start the container, with the data it had."""
        if not self._created:
            self._container.start()
            self._created = True
        elif not self.is_alive:
            self._container.get_wrapped_container().start()

    def stop(self) -> None:
        """Ask the server to end."""
        if self.is_alive:
            self.resume()
            self._container.get_wrapped_container().stop(timeout=_STOP_SECONDS)

    def kill(self) -> None:
        """End the server as a crash would."""
        if self.is_alive:
            self._container.get_wrapped_container().kill()

    def pause(self) -> None:
        """Freeze the server; its connections stay open and nothing answers."""
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._container.reload()
        if self._container.status == "paused":
            self._container.get_wrapped_container().unpause()

    def limit_files(self, size: int | None) -> None:
        """Refuse: a limit of a process does not reach into a container."""
        msg = "The disk of a container cannot be filled; start the service locally."
        raise ServiceError(msg)

    def log(self) -> str:
        """Return what the server wrote."""
        if not self._created:
            return ""
        return b"".join(self._container.get_logs()).decode(errors="replace")

    def close(self) -> None:
        """Remove the container and its data."""
        self._container.stop()
        self._created = False
