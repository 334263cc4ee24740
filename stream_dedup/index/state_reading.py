"""A state file that is only read, and stays as it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stream_dedup.errors import StateError


class Reading:
    """Opens a state file for reading, and sees whether it has changed meanwhile.

    A run that has the file open has a log beside it, and so has one that was killed. Without a log
    a reader can do without SQLite's locks, for which it would make files of its own.
    """

    def __init__(self, path: Path) -> None:
        """Look at the file.

        Raises:
            StateError: there is none.
        """
        self._path = path
        self._before = self._stands()

    def connect(self) -> sqlite3.Connection:
        """Open the file.

        Raises:
            sqlite3.Error: it cannot be opened.
        """
        mode = "mode=ro" if self._before[0] else "immutable=1"
        place = f"{self._path.absolute().as_uri()}?{mode}"
        return sqlite3.connect(place, timeout=2.0, isolation_level=None, uri=True)

    def check(self) -> None:
        """See that nobody has written the file since.

        Raises:
            StateError: somebody has.
        """
        if self._stands() != self._before:
            msg = f"{self._path} is in use by another process. Wait for it, or use another file."
            raise StateError(msg)

    def _stands(self) -> tuple[bool, int, int]:
        """Return whether there is a log beside the file, and when and how large it was written."""
        try:
            stat = self._path.stat()
        except OSError as error:
            msg = f"{self._path} does not exist. Make it with stream-dedup run --state."
            raise StateError(msg) from error
        log = self._path.with_name(self._path.name + "-wal")
        return log.exists(), stat.st_mtime_ns, stat.st_size
