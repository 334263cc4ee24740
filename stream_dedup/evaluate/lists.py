"""Files of pairs: labelled pairs, and a saved reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stream_dedup.errors import InputError
from stream_dedup.evaluate.documents import Corpus
from stream_dedup.evaluate.join import Pairs
from stream_dedup.evaluate.sets import ShingleSets, first_equals
from stream_dedup.evaluate.truth import LabelledPair
from stream_dedup.stream.files import Line, open_output, read_lines
from stream_dedup.types import DocumentId

_LABELS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_THRESHOLD = re.compile(rb"threshold=([0-9.]+)")
_HEADER = b"id\t"
#: Most bytes of a line, which may have the texts of two documents.
_MOST_BYTES = 1 << 26
_UNFIT = re.compile(r"[\t\r\n]|^#")


class SamplePair(msgspec.Struct, frozen=True):
    """A pair to label, one line of a sample.

    Attributes:
        id: id of the earlier document.
        other_id: id of the later one.
        similarity: exact resemblance.
        stratum: the stratum that it was drawn from.
        stratum_pairs: pairs that the stratum has in all.
        label: 1 for duplicates, 0 for others; null until somebody has looked.
        text: text of the earlier document.
        other_text: text of the later one.
    """

    id: DocumentId
    other_id: DocumentId
    similarity: float
    stratum: str
    stratum_pairs: int
    label: int | None
    text: str
    other_text: str


class _Labelled(msgspec.Struct):
    """What is read of a line of a labelled sample."""

    id: DocumentId
    other_id: DocumentId
    label: int | bool | str | None = None
    stratum: str = ""
    stratum_pairs: int = 0


def read_labels(path: Path, corpus: Corpus) -> list[LabelledPair]:
    """Read labelled pairs: lines of id, id, label with tabs between, or those of a sample.

    Labels are 1 or 0 (true, false, yes and no will do); pairs without one are left out, as are
    lines that begin with ``#`` and a first line of names.

    Raises:
        InputError: the file cannot be read, has no labelled pair, or names an unknown document.
    """
    find = _finder(corpus)
    decode = msgspec.json.Decoder(_Labelled).decode
    pairs = []
    for line in _data_lines(path):
        try:
            fields = decode(line.value) if line.value.startswith(b"{") else _columns(line)
        except msgspec.DecodeError as error:
            msg = f"{line.name} is not a labelled pair: {error}. Correct the line."
            raise InputError(msg) from error
        if fields.label is not None and fields.label != "":
            left, right = find(fields.id, line), find(fields.other_id, line)
            label = _label(fields.label, line)
            pairs.append(LabelledPair(left, right, label, fields.stratum, fields.stratum_pairs))
    if not pairs:
        msg = f"{path} has no labelled pair. Give pairs a label, 1 for duplicates and 0 for others."
        raise InputError(msg)
    return pairs


def read_reference(path: Path, corpus: Corpus, sets: ShingleSets, threshold: float) -> Pairs:
    """Read a saved reference: lines of id, earlier id and resemblance with tabs between.

    Raises:
        InputError: the file cannot be read, names an unknown document, or was made at a higher
            threshold than is wanted.
    """
    find = _finder(corpus)
    rows: dict[tuple[int, int], float] = {}
    leaders = first_equals(sets)
    for line in _data_lines(path, lambda comment: _check_threshold(path, comment, threshold)):
        fields = _columns(line)
        try:
            resemblance = float(str(fields.label))
        except ValueError as error:
            msg = f"{line.name} has no resemblance in its third column. Correct the line."
            raise InputError(msg) from error
        ends = [int(leaders[find(name, line)]) for name in (fields.id, fields.other_id)]
        if ends[0] != ends[1] and resemblance >= threshold:
            rows[min(ends), max(ends)] = resemblance
    ordered = sorted(rows)
    columns = np.array(ordered, np.int64).reshape(-1, 2).T
    exact = np.array([rows[pair] for pair in ordered], np.float64)
    return Pairs(leaders, columns[0], columns[1], exact, threshold)


def save_reference(path: Path, corpus: Corpus, pairs: Pairs, shingle: str) -> None:
    """Write a reference, the pairs of equal shingle sets only to the first of them.

    Raises:
        InputError: the file cannot be written, or an id cannot stand in it.
    """
    names = corpus.names()
    if unfit := next((name for name in names if _UNFIT.search(name)), None):
        msg = (
            f"The id {unfit!r} cannot stand in a list (it has a tab, a line break, or # in front). "
            "Give the document a simpler id."
        )
        raise InputError(msg)
    with open_output(path) as output:
        head = f"# threshold={pairs.threshold:g} shingle={shingle} documents={len(names)}\n"
        output.write(f"{head}id\tearlier_id\tresemblance\n".encode())
        for position, leader in enumerate(pairs.leaders.tolist()):
            if 0 <= leader < position:
                output.write(f"{names[position]}\t{names[leader]}\t1\n".encode())
        columns = (pairs.earlier.tolist(), pairs.later.tolist(), pairs.resemblance.tolist())
        for earlier, later, exact in zip(*columns, strict=True):
            output.write(f"{names[later]}\t{names[earlier]}\t{exact!r}\n".encode())


def _check_threshold(path: Path, comment: bytes, threshold: float) -> None:
    match = _THRESHOLD.search(comment)
    if match and float(match[1]) > threshold:
        msg = (
            f"{path} has pairs from {float(match[1]):g} on, but {threshold:g} is wanted. Raise "
            "--reference-threshold, or make it anew with --save-reference."
        )
        raise InputError(msg)


def _data_lines(
    path: Path, comment: Callable[[bytes], object] = lambda _comment: None
) -> Iterator[Line]:
    for line in read_lines(path, 0, _MOST_BYTES):
        if len(line.value) > _MOST_BYTES:
            msg = f"{line.name} has more than {_MOST_BYTES} bytes. Shorten the line."
            raise InputError(msg)
        if line.value.startswith(b"#"):
            comment(line.value)
        elif not line.value.startswith(_HEADER):
            yield line


def _columns(line: Line) -> _Labelled:
    columns = line.value.decode(errors="replace").split("\t")
    if len(columns) < 3:
        msg = f"{line.name} has not three columns with tabs between. Correct the line."
        raise InputError(msg)
    return _Labelled(columns[0], columns[1], columns[2].strip())


def _label(value: Any, line: Line) -> bool:
    label = _LABELS.get(str(int(value) if isinstance(value, bool) else value).lower())
    if label is None:
        msg = f"{line.name} has the label {value!r}. Write 1 for duplicates and 0 for others."
        raise InputError(msg)
    return label


def _finder(corpus: Corpus) -> Callable[[DocumentId, Line], int]:
    positions = corpus.positions()

    def find(document_id: DocumentId, line: Line) -> int:
        position = positions.get(str(document_id))
        if position is None:
            msg = (
                f"{line.name} names {document_id!r}, which no document has as its id. Give the "
                "documents that the pairs were made of."
            )
            raise InputError(msg)
        return position

    return find
