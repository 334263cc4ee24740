"""``stream-dedup worker`` whose processes also tell how many objects the collector tracks.

Nobody can ask that from outside. It is written to a file for each process, in the folder that the
environment variable ``WATCHED_FOLDER`` names.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from unittest import mock

from stream_dedup_workers import annotate
from stream_dedup_workers.pulse import Pulse
from stream_dedup_workers.supervisor import Supervisor

from stream_dedup.cli.main import main as program
from stream_dedup.settings import Settings

FOLDER_VARIABLE = "WATCHED_FOLDER"
#: Seconds between two counts.
INTERVAL = 10.0


def objects_file(folder: Path, pid: int) -> Path:
    """Return where a process writes how many objects it has."""
    return folder / f"{pid}.objects"


def run(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Be a worker process, and count."""
    threading.Thread(target=_count, daemon=True, name="count").start()
    annotate.run(settings, instance, number, pulse)


def _count() -> None:
    file = objects_file(Path(os.environ[FOLDER_VARIABLE]), os.getpid())
    while True:
        file.write_text(str(len(gc.get_objects())))
        time.sleep(INTERVAL)


def main() -> None:
    """Run ``stream-dedup`` with the arguments that this is given."""
    with mock.patch.dict(Supervisor.__init__.__kwdefaults__, target=run):
        program()


if __name__ == "__main__":
    main()
