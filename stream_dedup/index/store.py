"""The index in Redis: where it is, what it is made for, and the calls about all of it.

Calls about documents are made in rounds (see ``rounds``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.errors import ConfigurationMismatch
from stream_dedup.index.candidates import Bound
from stream_dedup.index.connection import Client, reporting_errors
from stream_dedup.index.description import Described, mismatch
from stream_dedup.index.expiry import NEVER
from stream_dedup.index.functions import CLAIMS
from stream_dedup.index.keys import Layout
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
        #: Called after each round of calls that was carried out: a batch may take many.
        self.progress: Callable[[], None] = lambda: None
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

    def enter(self, configuration: str, described: str = "{}") -> tuple[int, float]:
        """Load the functions, check or write the index's description.

        Args:
            configuration: version of the fingerprint configuration.
            described: the settings behind it (see ``description``).

        Returns:
            a worker number, and the server's Unix time.

        Raises:
            ConfigurationMismatch: the index was built with other settings.
            ServiceError: Redis is out of reach or refuses.
        """
        layout = self.layout.describe()
        with reporting_errors():
            CLAIMS.load(self.client)
            stands = self._ask("enter", configuration, layout)
            stored = [value.decode() for value in stands[:2]]
            if stored == [configuration, layout]:
                self.client.hsetnx(self.layout.index_key, "settings", described)
                return int(stands[2]), float(stands[3])
            settings: Any = self.client.hget(self.layout.index_key, "settings")
        built = Described(stored[0], stored[1], settings.decode() if settings else None)
        now = Described(configuration, layout, described)
        raise ConfigurationMismatch(mismatch(self.layout.namespace, built, now))

    def advance(self, watermark: float | None = None) -> tuple[float, float]:
        """Move the watermark forward, or only ask for it.

        Returns:
            the watermark that stands, and the server's Unix time.
        """
        with reporting_errors():
            stands, now = self._ask("advance", "" if watermark is None else repr(watermark))
        return float(stands or NEVER), float(now)

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
            return bool(self._ask("turn", repr(interval), repr(patience)))

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def _ask(self, function: str, *arguments: str | int) -> Any:
        """Call a function on the index's own key."""
        name = f"{CLAIMS.name}_{function}"
        return self.client.fcall(name, 1, self.layout.index_key, *arguments)
