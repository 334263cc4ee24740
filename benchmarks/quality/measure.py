"""All methods on one file: ours, and the peers' in their own environment."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from benchmarks.peers import ask
from benchmarks.processes import one_cpu
from benchmarks.quality.sources import Source
from benchmarks.report import Row, Table, columns, progress
from stream_dedup.evaluate.documents import Corpus, read_corpus
from stream_dedup.evaluate.join import Pairs, resembling_pairs
from stream_dedup.evaluate.lists import read_reference
from stream_dedup.evaluate.measures import Intervals
from stream_dedup.evaluate.pipeline import decide_all
from stream_dedup.evaluate.reference import ReferenceTruth
from stream_dedup.evaluate.request import ACCEPT_BELOW, sets_of
from stream_dedup.evaluate.sets import Rows, ShingleSets
from stream_dedup.evaluate.truth import GroupTruth, Report
from stream_dedup.settings import Settings
from stream_dedup.types import Method

#: Our methods, by name: how their settings differ from the defaults.
OURS: dict[str, dict[str, Any]] = {
    "minhash": {},
    "minhash, classic": {"minhash": "classic"},
    "minhash, exact": {"verify_by": "shingles"},
    "simhash": {"method": Method.SIMHASH},
    "simhash, once": {"method": Method.SIMHASH, "weights": "one"},
    "simhash, 128 bits": {"method": Method.SIMHASH, "simhash_bits": 128, "hamming": 6, "blocks": 8},
    "fused": {"method": Method.FUSED},
}
#: Listed reference pairs of at least this resemblance should be found.
LISTED = 0.85

_GROUP_COLUMNS = columns(
    "method",
    "duplicates|,.0f",
    "pairs precision|.4f",
    "pairs recall|.4f",
    "pairs F1|.4f",
    "interval",
    "document accuracy|.4f",
    "ARI|.4f",
    "B-cubed F1|.4f",
    "CPU s|.2f",
)
_REFERENCE_COLUMNS = columns(
    "method",
    "duplicates|,.0f",
    "precision|.4f",
    "recall of documents|.4f",
    "interval",
    "recall of pairs|.4f",
    "chains|,.0f",
    f"listed pairs from {LISTED}|.4f",
    "B-cubed F1|.4f",
    "CPU s|.2f",
)


class Decided(NamedTuple):
    """What a method decided, and the CPU time that it took for it."""

    method: str
    originals: Rows
    cpu: float
    version: str = ""


class Material(NamedTuple):
    """A file's documents and truths."""

    corpus: Corpus
    sets: ShingleSets
    pairs: Pairs
    listed: Pairs | None


def measure_file(
    source: Source, peers: Sequence[str], limit: int | None
) -> tuple[Table, dict[str, str]]:
    """Measure a file; return its table and the peers' versions."""
    settings = Settings(shingle=source.shingle)
    material = _material(source, settings, limit)
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for decided in _decide(material.corpus, settings, peers):
        versions |= {decided.method: decided.version} if decided.version else {}
        row = _group_row if material.corpus.groups is not None else _reference_row
        rows.append(row(decided, material))
    by_groups = material.corpus.groups is not None
    note = f"{len(material.corpus.documents):,} documents, shingles {source.shingle}; " + (
        "gold groups." if by_groups else f"exact resemblance from {settings.threshold:g}."
    )
    shown = _GROUP_COLUMNS if by_groups else _REFERENCE_COLUMNS
    return Table(source.name, note, shown, rows), versions


def _material(source: Source, settings: Settings, limit: int | None) -> Material:
    corpus = read_corpus([source.path], settings, source.group_field)
    if limit is not None:
        corpus = corpus.take(np.arange(min(limit, len(corpus.documents))))
    sets = sets_of(corpus, settings, source.shingle)
    listed = None
    if source.reference is not None and limit is None:
        listed = read_reference(source.reference, corpus, sets, LISTED)
    return Material(corpus, sets, resembling_pairs(sets, settings.threshold), listed)


def _decide(corpus: Corpus, settings: Settings, peers: Sequence[str]) -> Iterator[Decided]:
    for name, update in OURS.items():
        progress(name)
        with one_cpu():
            began = time.process_time()
            own = Settings.model_validate(settings.model_dump() | update)
            originals = decide_all(own, corpus.documents)
            yield Decided(f"ours: {name}", originals, time.process_time() - began)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "documents.jsonl"
        texts = ({"text": document.text} for document in corpus.documents)
        path.write_bytes(b"".join(msgspec.json.encode(text) + b"\n" for text in texts))
        for peer in peers:
            figure = ask(peer, "decide", path, "--shingle", settings.shingle)
            if figure is None:
                continue
            pairs = enumerate(figure.attached)
            originals = np.array([at if to is None else to for at, to in pairs], np.int64)
            yield Decided(peer, originals, figure.cpu, figure.version)


def _group_row(decided: Decided, material: Material) -> Row:
    assert material.corpus.groups is not None
    report = GroupTruth(material.corpus.groups).score(decided.originals, Intervals())
    pairs = report["pairs"]
    return [
        decided.method,
        _duplicates(report),
        pairs["precision"],
        pairs["recall"],
        pairs["f1"],
        _interval(pairs["f1_interval"]),
        report["documents"]["accuracy"],
        report["groups"]["ari"],
        report["groups"]["bcubed_f1"],
        decided.cpu,
    ]


def _reference_row(decided: Decided, material: Material) -> Row:
    accept = material.pairs.threshold - ACCEPT_BELOW
    truth = ReferenceTruth(material.pairs, material.sets, accept)
    report = truth.score(decided.originals, Intervals())
    return [
        decided.method,
        _duplicates(report),
        report["documents"]["precision"],
        report["documents"]["recall"],
        _interval(report["documents"]["recall_interval"]),
        report["pairs"]["recall"],
        report["counts"]["chains"],
        _listed_recall(decided.originals, material.listed),
        report["groups"]["bcubed_f1"],
        decided.cpu,
    ]


def _duplicates(report: Report) -> int:
    counts: dict[str, Any] = report["counts"]
    return int(counts["documents"] - counts["originals"])


def _listed_recall(originals: Rows, listed: Pairs | None) -> float | None:
    """Return the share of the listed pairs that are in one duplicate group."""
    if listed is None or not len(listed.earlier):
        return None
    return float((originals[listed.earlier] == originals[listed.later]).mean())


def _interval(bounds: list[float] | None) -> str:
    return "–" if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"
