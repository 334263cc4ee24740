"""``python -m tests.hostile.fuzz HARNESS [SECONDS]``: one harness under atheris.

Begins with the catalogue, keeps in ``.fuzz/HARNESS`` what reached new branches, and in
``.fuzz/crash-*`` what raised an error; mended, that belongs into the catalogue or a test.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

with atheris.instrument_imports(include=["stream_dedup"]):
    from tests.hostile.harnesses import HARNESSES, seeds

FOLDER = Path(".fuzz")


def main() -> None:
    """Fuzz until the time is over; ends with an error at the first defect."""
    name, seconds = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
    logging.disable()
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    flags = [
        f"-max_total_time={seconds}",
        "-max_len=8192",
        "-timeout=20",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        f"-artifact_prefix={FOLDER}/",
    ]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], HARNESSES[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
