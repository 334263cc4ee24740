"""A day of documents to look at: news that many take over, and what nobody repeats.

The stories are the originals of examples/documents.jsonl, each taken over by many; the rest is
generated. Both are spread over a day as people write, with stories that break all at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dedup.generate import StreamShape, generate

EXAMPLES = Path(__file__).parents[1] / "examples"
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
_DAY = 86_400.0
#: How busy each hour of the day is.
_HOURS = np.array(
    [3, 2, 2, 2, 3, 5, 9, 14, 18, 20, 19, 18, 17, 18, 18, 17, 16, 17, 18, 16, 13, 10, 7, 5]
)
#: Copies of the most repeated story; the n-th has this many divided by n.
_MOST_COPIES = 900
#: Hours within which half of a story's copies come.
_HALF = 1.2
_SHAPE = StreamShape(
    documents=14_000, duplicate_share=0.3, words=90, edits=4, resemblance=0.7, language="mixed"
)
#: A story of the examples, as somebody else would tell it.
EDITED = (
    "Harbour bridge to close for ten weekends. The city's oldest river crossing will be shut"
    " to cars from Friday evening to Monday morning on ten weekends this spring, the roads"
    " office said on Tuesday. Engineers found rust in 14 of the 62 hangers during a routine"
    " inspection in autumn and want to replace them before the summer traffic begins. Cyclists"
    " and pedestrians can keep using the eastern walkway, and ferries will run every twenty"
    " minutes instead of every hour. Shopkeepers on the north bank fear for their trade and"
    " have asked the council for help with parking fees while the work goes on."
)
_SITES = (
    "mirror.example", "portal.example", "gazette.example", "forum.example", "news.example",
    "shop.example", "ticker.example", "anzeiger.example", "diario.example", "weather.example",
    "markets.example", "sinmun.example", "ribao.example", "shinbun.example", "gorod.example",
    "khao.example", "akhbar.example", "samachar.example", "radio.example", "bulletin.example",
)  # fmt: skip


class Story(NamedTuple):
    """An original that many take over."""

    id: str
    text: str


def documents(seed: int = 3) -> Iterator[bytes]:
    """Yield the lines of the day, in order of time.

    Args:
        seed: of all that is drawn.
    """
    random = np.random.default_rng(seed)
    rest = list(generate(_SHAPE))
    dated = list(zip(_moments(len(rest), random), rest, strict=True))
    lines = [(at, one.id, one.text) for at, one in dated]
    for rank, story in enumerate(stories(), start=1):
        lines += _taken_over(story, _MOST_COPIES // rank, random)
    lines.sort()
    sites = random.choice(len(_SITES), size=len(lines), p=_zipf(len(_SITES)))
    for (seconds, name, text), site in zip(lines, sites, strict=True):
        at = BEGIN + timedelta(seconds=seconds)
        source = _SITES[site]
        yield json.dumps(
            {
                "id": name,
                "text": text,
                "source": source,
                "url": f"https://{source}/{name}",
                "time": at.isoformat(),
            },
            ensure_ascii=False,
        ).encode()


def stories() -> list[Story]:
    """Return the originals of the examples that are long enough to be taken over."""
    lines = (EXAMPLES / "documents.jsonl").read_text("utf-8").splitlines()
    known = {row["id"]: row["text"] for row in map(json.loads, lines)}
    truth = (line.split("\t") for line in (EXAMPLES / "truth.tsv").read_text().splitlines())
    originals = [name for name, status, _ in truth if status == "original"]
    return [Story(name, known[name]) for name in originals if len(known[name]) > 60]


def _moments(count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return seconds of the day, in order, as busy as its hours are."""
    cumulated = np.concatenate(([0.0], np.cumsum(_HOURS) / _HOURS.sum()))
    hours = np.interp(np.sort(random.random(count)), cumulated, np.arange(len(cumulated)))
    moments: NDArray[np.float64] = hours * 3600
    return moments


def _taken_over(
    story: Story, copies: int, random: np.random.Generator
) -> list[tuple[float, str, str]]:
    """Return a story and its copies: time in seconds, id and text."""
    begin = float(_moments(1, random)[0]) * 0.9
    after = begin + np.sort(random.exponential(_HALF * 3600 / np.log(2), size=copies))
    lines = [(begin, story.id, story.text)]
    for number, at in enumerate(after[after < _DAY], start=1):
        lines.append((float(at), f"{story.id}-{number:03}", _edited(story.text, random)))
    return lines


def _edited(text: str, random: np.random.Generator) -> str:
    """Return a text as others would take it over: as it is, or with something changed."""
    sentences = re.split(r"(?<=[.!?。।]) *", text)
    match int(random.integers(8)):
        case 0 | 1 | 2:
            return text
        case 3:
            return re.sub(
                r"[1-9]\d*", lambda one: str(int(one[0]) + int(random.integers(1, 4))), text
            )
        case 4:
            return f"{text} ({random.choice(_SITES)})"
        case 5:
            return f"Update: {text}"
        case 6 if len(sentences) > 4:
            del sentences[int(random.integers(1, len(sentences)))]
            return " ".join(sentences)
        case _:
            words = text.split(" ")
            place = int(random.integers(len(words)))
            return " ".join([*words[:place], words[-1 - place], *words[place + 1 :]])


def _zipf(count: int) -> NDArray[np.float64]:
    shares = 1 / np.arange(2, count + 2)
    whole: NDArray[np.float64] = shares / shares.sum()
    return whole
