"""Labelled pairs and their documents, as ``stream-dedup evaluate`` and ``tune`` read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stream_dedup.evaluate.lists import SamplePair
from stream_dedup.review.export import MARK, csv_line
from stream_dedup.review.label_types import Label, Pair, consensus
from stream_dedup.review.pairs import Side
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId

Labelled = Sequence[tuple[Pair, Mapping[str, Label]]]


class ExportedPair(SamplePair, frozen=True):
    """A line of labelled pairs: one of ``stream-dedup sample``, and who said what.

    Attributes:
        labels: what each labeller said: duplicate, not or unsure.
    """

    labels: dict[str, str]


def exported_pairs(labelled: Labelled, sizes: Mapping[str, float]) -> list[ExportedPair]:
    """Return the lines of labelled pairs.

    The label is what most say, null where as many say one as the other. The similarity is the score
    that decided: minus the Hamming distance where that does.

    Args:
        labelled: the pairs and their labels.
        sizes: pairs that each stratum stands for, by its name.
    """
    names = _names(labelled)
    found = []
    for pair, labels in labelled:
        votes = Counter(labels.values())
        found.append(
            ExportedPair(
                id=names[_key(pair.left)],
                other_id=names[_key(pair.right)],
                similarity=pair.score,
                stratum=pair.stratum,
                stratum_pairs=round(sizes.get(pair.stratum, 0)),
                label=consensus(votes[Label.DUPLICATE], votes[Label.NOT]),
                text=pair.left.text,
                other_text=pair.right.text,
                labels={name: label.name.lower() for name, label in labels.items()},
            )
        )
    return found


def exported_documents(labelled: Labelled, settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield the documents of the pairs, each once, in the order in which they came.

    Their fields have the names that the settings read them by.
    """
    for side in _documents(labelled):
        fields: dict[str, Any] = {
            settings.id_field: msgspec.json.decode(side.id),
            settings.text_field: side.text,
        }
        if settings.time_field is not None:
            fields[settings.time_field] = side.at / 1000
        if settings.origin_field is not None:
            fields[settings.origin_field] = side.source
        yield fields


def json_lines(values: Iterable[Any]) -> Iterator[bytes]:
    """Yield values as JSON lines."""
    encode = msgspec.json.Encoder().encode
    for value in values:
        yield encode(value) + b"\n"


def csv_lines(pairs: Iterable[ExportedPair]) -> Iterator[bytes]:
    """Yield pairs as a table for spreadsheets (see ``export.as_csv``)."""
    fields = [name for name in ExportedPair.__struct_fields__ if name != "labels"]
    yield (MARK + csv_line([*fields, "labels"])).encode()
    for pair in pairs:
        labels = "; ".join(f"{name}: {label}" for name, label in pair.labels.items())
        values = [getattr(pair, name) for name in fields]
        yield csv_line(["" if one is None else str(one) for one in [*values, labels]]).encode()


def _key(side: Side) -> tuple[str, str]:
    return side.id, side.text


def _documents(labelled: Labelled) -> list[Side]:
    sides = {_key(side): side for pair, _ in labelled for side in (pair.left, pair.right)}
    return sorted(sides.values(), key=lambda side: side.row)


def _names(labelled: Labelled) -> dict[tuple[str, str], DocumentId]:
    """Return what each document is called in lists of pairs: ``id#2`` is the second of an id."""
    seen: Counter[str] = Counter()
    names: dict[tuple[str, str], DocumentId] = {}
    for side in _documents(labelled):
        identity = msgspec.json.decode(side.id, type=DocumentId)
        seen[str(identity)] += 1
        count = seen[str(identity)]
        names[_key(side)] = identity if count == 1 else f"{identity}#{count}"
    return names
