"""Annotated documents for the browser: the examples, a large group, and hostile ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stream_dedup.generate import StreamShape, generate

_PROGRAM = Path(sys.executable).with_name("stream-dedup")
EXAMPLES = Path(__file__).parents[2] / "examples" / "documents.jsonl"

#: Sets a property of the window wherever it is run.
_RUN = "window.executed = (window.executed || 0) + 1"
MARKUP = f"<script>{_RUN}</script><img src=x onerror='{_RUN}'><svg onload='{_RUN}'></svg>"
#: Would show what follows it from right to left, far beyond its own place.
OVERRIDE = "\u202e\u2066\u202e evil.exe \u202e"
HEBREW = (
    "הספרייה העירונית תפתח מחר בשעה תשע בבוקר את האולם החדש לקוראים צעירים, לאחר שנתיים של עבודות."
)
ARABIC = (
    "تفتح المكتبة العامة غدا في الساعة التاسعة صباحا قاعة القراءة"
    " الجديدة للأطفال بعد عامين من العمل."
)
LONG_WORD = "w" * 1_000_000
_HOSTILE = {
    "markup": f"{MARKUP} A notice that everyone may read about new opening hours. {MARKUP}",
    "override": f"{OVERRIDE} A notice about the hours of the office. {OVERRIDE}",
    "hebrew": HEBREW,
    "arabic": ARABIC,
    "long": LONG_WORD,
    "nul": "Before the zero \x00 and after it, a sentence of several words. \x00\x01\x1b[31m",
    "template": "{{ 7 * 7 }} ${7 * 7} {% raw %} <% 7 * 7 %> in a sentence of ten words or so",
}
#: What each copy of them adds, and where it would lead.
_COPIES = (
    ("", f"javascript:{_RUN}"),
    (" Read it again.", f'https://a.example/"><script>{_RUN}</script>'),
    ("", f"data:text/html,<script>{_RUN}</script>"),
)

Row = Mapping[str, object]


def annotated(rows: Iterable[Row], folder: Path, name: str = "annotated.jsonl") -> Path:
    """Decide documents with the program, and return the annotated file."""
    given, made = folder / f"given-{name}", folder / name
    given.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    command = [str(_PROGRAM), "run", str(given), "--output", str(made), "--quiet"]
    command += ["--max-document-bytes", str(4 << 20)]  # one is larger than the default allows
    subprocess.run(command, check=True, timeout=60)
    return made


def examples() -> list[Row]:
    """Return the documents of the examples."""
    return [json.loads(line) for line in EXAMPLES.read_text("utf-8").splitlines()]


def ordinary() -> list[Row]:
    """Return the examples, generated documents, and one large group."""
    documents = examples()
    shape = StreamShape(
        documents=200, viral=1, viral_copies=129, words=60, edits=2, resemblance=0.75, rate=0.01
    )
    for made in generate(shape):
        site = f"site{len(documents) % 7}.example"
        url = f"https://{site}/{made.id}"
        documents.append(
            {"id": made.id, "text": made.text, "time": made.time, "source": site, "url": url}
        )
    return documents


def hostile() -> list[Row]:
    """Return documents that would run scripts or leave their boxes: three of each kind."""
    start = datetime(2026, 3, 2, 8, tzinfo=UTC)
    return [
        {
            "id": f"{MARKUP if kind == 'markup' else kind}-{copy}",
            "text": text + ending,
            "source": f"{MARKUP}{OVERRIDE}",
            "url": link,
            "time": (start + timedelta(minutes=copy)).isoformat(),
        }
        for kind, text in _HOSTILE.items()
        for copy, (ending, link) in enumerate(_COPIES, start=1)
    ]
