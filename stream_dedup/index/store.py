"""The index in Redis: where it is, what it is made for, and the calls about all of it.

Calls about documents are made in rounds (see ``rounds``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.errors import ConfigurationMismatch, ServiceError
from stream_dedup.index.candidates import Bound
from stream_dedup.index.clock import HybridClock, Incarnation
from stream_dedup.index.connection import Client, reporting_errors, target_of
from stream_dedup.index.description import Described, mismatch
from stream_dedup.index.expiry import NEVER
from stream_dedup.index.failures import Kind, count
from stream_dedup.index.functions import CLAIMS
from stream_dedup.index.keys import ClaimIds, Layout
from stream_dedup.settings import Settings

Numbers = npt.NDArray[np.int64]
Claims = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


class RedisStore:
    """The index in Redis."""

    def __init__(self, client: Client, layout: Layout, settings: Settings) -> None:
        self.client = client
        self.layout = layout
        self.bound = Bound(settings.max_candidates, len(layout.prefix_bits))
        self.replicas = settings.wait_replicas
        #: Originals in each partition, as of the last commit that this process made there.
        self.originals: dict[int, int] = {}
        self.wait_ms = int(settings.wait_timeout * 1000)
        #: Called after each step of a batch that brings its decisions nearer, of which it may take
        #: many; not for what may go on without an end.
        self.progress: Callable[[], None] = lambda: None
        self.clock = HybridClock()
        self.incarnation: Incarnation | None = None
        #: Whether the index began with this process.
        self.begins = False
        self._longest_attempt = settings.longest_attempt
        self._fence = b""
        width = f"S{layout.suffix_width}"
        self.probe_row = np.dtype(
            [("suffix", width), ("score", "S16"), ("claim", ">u8"), ("mode", "u1")]
        )
        self.page_row = np.dtype(
            [("suffix", width), ("score", "S16"), ("claim", ">u8"), ("after", ">u8")]
        )
        self.look_row = np.dtype([("suffix", width), ("score", "S16"), ("after", ">u8")])
        self.withdraw_row = np.dtype([("suffix", width), ("claim", ">u8")])
        self.note_row = np.dtype([("suffix", width), ("score", "S16"), ("claim", ">u8")])

    def enter(self, configuration: str, described: str = "{}") -> int:
        """Load the functions, check or write the index's description, begin an incarnation.

        Args:
            configuration: version of the fingerprint configuration.
            described: the settings behind it (see ``description``).

        Returns:
            a worker number.

        Raises:
            ConfigurationMismatch: the index was built with other settings.
            ServiceError: Redis is out of reach or refuses.
        """
        layout = self.layout.describe()
        incarnation = Incarnation(self.clock)
        entering = (configuration, layout, *self.clock.brought(), incarnation.token)
        with reporting_errors():
            CLAIMS.load(self.client)
            stands = self._ask("enter", *entering, lasting=True)
            stored = [value.decode() for value in stands[:2]]
            if stored == [configuration, layout]:
                self.client.hsetnx(self.layout.index_key, "settings", described)
                incarnation.number = int(stands[2])
                self.clock.see(int(stands[3]) / 1000)
                self.incarnation, self.begins = incarnation, bool(stands[4])
                return incarnation.number
            settings: Any = self.client.hget(self.layout.index_key, "settings")
        built = Described(stored[0], stored[1], settings.decode() if settings else None)
        now = Described(configuration, layout, described)
        raise ConfigurationMismatch(mismatch(self.layout.namespace, built, now))

    def advance(self, watermark: float | None = None) -> tuple[float, float]:
        """Move the watermark and the clock forward, or only ask for them.

        Returns:
            the watermark that stands, and the clock of the index, Unix time.

        Raises:
            LostWritesError: Redis does not know this worker any more.
            ServiceError: Redis is out of reach or refuses.
        """
        known = self.incarnation
        own = (known.number, known.token) if known else (0, b"")
        with reporting_errors():
            moved = "" if watermark is None else repr(watermark)
            stands, now = self._ask("advance", moved, *self.clock.brought(), *own)
        self.clock.see(int(now) / 1000)
        return float(stands or NEVER), self.clock.now()

    def keep_up(self) -> None:
        """Ask for the clock of the index, and whether it knows this worker, now and then."""
        if self.clock.is_due():
            self.advance()

    def saw_fence(self, fence: bytes) -> None:
        """Bring the clock in front of the fence of a partition, as far as claims are from it."""
        if fence > self._fence:
            self._fence = fence
            claim = int.from_bytes(fence, "big")
            self.clock.see(ClaimIds.time_of(claim) + self._longest_attempt)

    def forgot(self, count: int) -> None:
        """Count originals that were forgotten."""
        with reporting_errors():
            self._ask("forgot", count)

    def turn(self, interval: float, patience: float) -> bool:
        """Ask whether to sweep now.

        Args:
            interval: seconds from the beginning of one sweep to that of the next.
            patience: the same while nothing is forgotten.
        """
        with reporting_errors():
            return bool(self._ask("turn", repr(interval), repr(patience), *self.clock.brought()))

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def check_replicas(self, acknowledged: int) -> None:
        """Take the reply to WAIT.

        Raises:
            ServiceError: too few replicas have what was written.
        """
        if acknowledged < self.replicas:
            count(Kind.REPLICAS)
            msg = (
                f"Only {acknowledged} of {self.replicas} replicas have a write after "
                f"{self.wait_ms} ms. Check the replicas, or lower wait_replicas."
            )
            raise ServiceError(msg)

    def _ask(self, function: str, *arguments: str | bytes | int, lasting: bool = False) -> Any:
        """Call a function on the index's own key; ``lasting``: wait until replicas have it."""
        name, key = f"{CLAIMS.name}_{function}", self.layout.index_key
        if not (lasting and self.replicas):
            return self.client.fcall(name, 1, key, *arguments)
        # Together, so that WAIT comes on the connection that has written.
        pipeline, target = self.client.pipeline(transaction=False), target_of(self.client, key)
        pipeline.execute_command("FCALL", name, 1, key, *arguments, **target)
        pipeline.execute_command("WAIT", self.replicas, self.wait_ms, **target)
        reply, acknowledged = pipeline.execute()
        self.check_replicas(acknowledged)
        return reply
