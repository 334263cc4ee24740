"""Puts the originals of an index in Redis together again, in order of registration.

A record does not hold its table keys: those stand as entries in sorted sets. Each is read once, and
both are laid aside in temporary files, one pair for each range of claim ids; then one range after
the other is read back, sorted and joined. So what is in memory at a time is one range (about
``RANGE`` originals) and, while records are read, 8 bytes for each claim of a sample. The temporary
files take about 17 bytes for each entry, and the records.

Workers may go on. What is registered after the records were read is left out, and so is an original
whose entries went meanwhile.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.index.audit_reading import Reader, set_number
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.keys import Layout
from stream_dedup.index.progress import count_originals
from stream_dedup.index.records import Record, RecordFormat

#: Originals of one range, about.
RANGE = 50_000
#: Originals yielded at a time.
_YIELDED = 1024
#: Claims of the sample that tells the ranges, for each of them.
_SAMPLED = 64
#: Records or sorted sets worked on at a time.
_PAGE = 4096
#: Ranges at most, each of which keeps two files open.
_RANGES = 200

_LENGTH = struct.Struct("<8sI")
_ENTRY = np.dtype([("claim", ">u8"), ("key", "<u8"), ("table", "u1")])

Claims = npt.NDArray[np.uint64]


def reassemble(reader: Reader, form: RecordFormat, size: int = RANGE) -> Iterator[IndexBatch]:
    """Yield all originals, in order of registration.

    Args:
        reader: reads the index.
        form: what its records hold.
        size: originals of one range.

    Raises:
        ServiceError: Redis is out of reach.
    """
    originals = count_originals(reader.client, reader.layout)
    count = min(max(1, -(-originals // size)), _RANGES)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stream-dedup-")))
        bounds = _Records(folder).split(reader.records(), count)
        _split_entries(reader, folder, bounds)
        for number in range(len(bounds) + 1):
            yield from _Range(folder, number, reader.layout, form).batches()


class _Records:
    """Lays the records of originals aside, first as they come, then by range."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def split(self, records: Iterable[tuple[bytes, bytes]], count: int) -> Claims:
        """Write a file for each range; return the first claim of each range but the first."""
        whole = self._folder / "records"
        sample = _Sample(count * _SAMPLED)
        with whole.open("wb") as file:
            for claim, value in records:
                if value[:1] == b"O":
                    file.write(_LENGTH.pack(claim, len(value) - 1) + value[1:])
                    sample.add(int.from_bytes(claim, "big"))
        bounds = sample.quantiles(count)
        with ExitStack() as stack:
            files = _open_files(stack, self._folder, "records", len(bounds) + 1)
            with whole.open("rb") as file:
                for head, record in _read_records(file):
                    number = np.uint64(int.from_bytes(head[:8], "big"))
                    place = int(np.searchsorted(bounds, number, "right"))
                    files[place].write(head + record)
        whole.unlink()
        return bounds


class _Sample:
    """A sample of numbers, evenly over all that came: every one, then every second, ..."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._numbers: list[int] = []
        self._step = 1
        self._came = 0

    def add(self, number: int) -> None:
        if self._came % self._step == 0:
            self._numbers.append(number)
            if len(self._numbers) >= 2 * self._size:
                self._numbers = self._numbers[::2]
                self._step *= 2
        self._came += 1

    def quantiles(self, parts: int) -> Claims:
        """Return what splits the numbers into about equal parts."""
        numbers = np.sort(np.array(self._numbers, np.uint64))
        places = np.arange(1, parts) * len(numbers) // parts
        return np.unique(numbers[places]) if len(numbers) else numbers


def _split_entries(reader: Reader, folder: Path, bounds: Claims) -> None:
    layout = reader.layout
    shifts = [max(0, bits - layout.set_bits) for bits in layout.prefix_bits]
    sets = reader.sets()
    with ExitStack() as stack:
        files = _open_files(stack, folder, "entries", len(bounds) + 1)
        while page := list(islice(sets, _PAGE)):
            entries = _entries(page, shifts)
            places = np.searchsorted(bounds, entries["claim"].astype(np.uint64), "right")
            order = np.argsort(places, kind="stable")
            ends = np.searchsorted(places[order], np.arange(len(files) + 1))
            for place, file in enumerate(files):
                file.write(entries[order[ends[place] : ends[place + 1]]].tobytes())


def _entries(sets: list[tuple[bytes, dict[bytes, float]]], shifts: list[int]) -> npt.NDArray[Any]:
    numbers = np.array([(*set_number(key), len(found)) for key, found in sets], np.int64)
    tables, names, sizes = numbers.T
    entries = np.empty(int(sizes.sum()), _ENTRY)
    members = b"".join(claim for _, found in sets for claim in found)
    scores = np.array([score for _, found in sets for score in found.values()], np.uint64)
    entries["claim"] = np.frombuffer(members, ">u8")
    entries["table"] = np.repeat(tables, sizes)
    high = names.astype(np.uint64) << np.array(shifts, np.uint64)[tables]
    entries["key"] = np.repeat(high, sizes) | scores
    return entries


class _Original(NamedTuple):
    claim: int
    record: Record


class _Range:
    """The originals whose claims lie between two others, read back and joined."""

    def __init__(self, folder: Path, number: int, layout: Layout, form: RecordFormat) -> None:
        self._form = form
        with (folder / f"records{number}").open("rb") as file:
            found = {
                int.from_bytes(head[:8], "big"): form.decode(record)
                for head, record in _read_records(file)
            }
        self._originals = [_Original(claim, found[claim]) for claim in sorted(found)]
        self._keys = np.zeros((len(found), len(layout.prefix_bits)), np.uint64)
        self._whole = self._join(np.fromfile(folder / f"entries{number}", _ENTRY))

    def batches(self) -> Iterator[IndexBatch]:
        """Yield the originals in order."""
        rows = np.flatnonzero(self._whole)
        for start in range(0, len(rows), _YIELDED):
            yield self._batch(rows[start : start + _YIELDED])

    def _join(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Fill in the table keys; say which originals have all of them."""
        claims = np.array([one.claim for one in self._originals], np.uint64)
        if not len(claims):
            return np.zeros(0, np.bool_)
        owners = entries["claim"].astype(np.uint64)
        at = np.minimum(np.searchsorted(claims, owners), len(claims) - 1)
        mine = np.flatnonzero(claims[at] == owners)
        present = np.zeros(self._keys.shape, np.bool_)
        rows, tables = at[mine], entries["table"][mine]
        present[rows, tables] = True
        self._keys[rows, tables] = entries["key"][mine]
        return np.asarray(present.all(axis=1))

    def _batch(self, rows: npt.NDArray[np.int64]) -> IndexBatch:
        records = [self._originals[row].record for row in rows.tolist()]
        evidence = self._form.evidence(records)
        prints = Fingerprints(
            np.zeros(len(rows), np.bool_),
            [record.digest for record in records],
            self._keys[rows],
            evidence.sketches,
            evidence.payloads,
        )
        return IndexBatch(
            [record.document_id for record in records],
            np.array([record.identity for record in records], np.uint64),
            np.array([record.time for record in records], np.float64),
            prints,
            np.array([record.rank for record in records], np.float64),
        )


def _open_files(stack: ExitStack, folder: Path, name: str, count: int) -> list[IO[bytes]]:
    return [stack.enter_context((folder / f"{name}{n}").open("wb")) for n in range(count)]


def _read_records(file: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    while head := file.read(_LENGTH.size):
        yield head, file.read(_LENGTH.unpack(head)[1])
