"""Originals as a Parquet file: one row each, in order of registration.

    id               string, as a number is spelled where id_is_integer says so
    id_is_integer    bool
    duplicate_id     string, name of the duplicate group; it follows from id and digest
    identity         uint64, the same for the same source and id
    time             double, event time, seconds since the epoch
    digest           16 bytes, xxh3-128 of the normalised text
    keys             list of uint64, one table key for each table
    evidence         bytes, what verification compares: the sketch, or the payload
    rank             double, null where ranks are not kept

The schema's metadata hold the configuration version and the settings behind it (see
``description``), the file's metadata a hash of each row group, which is checked before the group is
used; a file of an earlier version has none. Needs pyarrow, an optional dependency: who uses this
module imports it late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import xxhash

from stream_dedup.errors import ConfigurationMismatch, InputError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Fingerprints
from stream_dedup.index.base import IndexBatch, duplicate_id
from stream_dedup.index.description import describe, sentence
from stream_dedup.index.state_rows import pack
from stream_dedup.replacing import remedy, replacing

#: Originals of one row group: what is in memory at a time.
ROWS = 16_384
#: Bytes of their evidence from which on it has fewer.
_EVIDENCE_BYTES = 64 << 20
#: What a row group may have that is read: many times what is written, also by earlier versions.
_MOST_ROWS, _MOST_BYTES = 8 * ROWS, 2 << 30

_CONFIGURATION = b"stream_dedup.configuration"
_SETTINGS = b"stream_dedup.settings"
_GROUPS = b"stream_dedup.row_groups"


def write_originals(path: Path, batches: Iterable[IndexBatch], fingerprinter: Fingerprinter) -> int:
    """Write originals into a new file; return how many.

    The file appears under its name only when everything has been written.

    Raises:
        InputError: it cannot be written.
        ServiceError: from ``batches``.
    """
    schema, count = _schema(fingerprinter), 0
    hashes: list[str] = []
    try:
        with (
            replacing(path) as partial,
            partial.open("wb") as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for some in _groups(batches):
                columns = [_columns(batch) for batch in some]
                parts = [pa.table(one, schema=schema) for one in columns]
                table = pa.concat_tables(parts)
                writer.write_table(table, row_group_size=len(table))
                count += len(table)
                hashes.append(_hash(_batch(table, fingerprinter)))
            writer.add_key_value_metadata({_GROUPS: ",".join(hashes).encode()})
    except OSError as error:
        msg = f"{path} cannot be written: {error}. {remedy(error)}"
        raise InputError(msg) from error
    return count


def read_originals(path: Path, fingerprinter: Fingerprinter) -> Iterator[IndexBatch]:
    """Yield the originals of a file, a row group at a time.

    Raises:
        ConfigurationMismatch: they are of another configuration.
        InputError: the file cannot be read, or is none of ours.
    """
    try:
        with pq.ParquetFile(path) as file:
            _check(path, file.schema_arrow, fingerprinter)
            hashes = _hashes(file)
            for number in range(file.num_row_groups):
                _check_size(file.metadata.row_group(number))
                batch = _batch(file.read_row_group(number), fingerprinter)
                if hashes is not None and _hash(batch) != hashes[number]:
                    raise _damaged(path)
                yield batch
    except (OSError, pa.ArrowException, ValueError, MemoryError) as error:
        msg = f"{path} cannot be read: {error}. Name a file that stream-dedup export wrote."
        raise InputError(msg) from error


def _check_size(group: Any) -> None:
    """See that a row group unpacks to no more than memory holds.

    Raises:
        ValueError: it does.
    """
    if group.num_rows > _MOST_ROWS or group.total_byte_size > _MOST_BYTES:
        msg = "it unpacks to more than an export does"
        raise ValueError(msg)


def _hash(batch: IndexBatch) -> str:
    return xxhash.xxh3_64_hexdigest(pack(batch, keeps_ranks=True))


def _hashes(file: Any) -> list[str] | None:
    """Return the hash of each row group; None for a file of an earlier version.

    Raises:
        ValueError: there are not as many as there are row groups.
    """
    stored = (file.metadata.metadata or {}).get(_GROUPS)
    if stored is None:
        return None
    hashes = [one for one in stored.decode().split(",") if one]
    if len(hashes) != file.num_row_groups:
        msg = "it is damaged"
        raise ValueError(msg)
    return hashes


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged. Export the originals again.")


def _schema(fingerprinter: Fingerprinter) -> Any:
    width = fingerprinter.verifier.sketch_bytes
    fields = [
        ("id", pa.string()),
        ("id_is_integer", pa.bool_()),
        ("duplicate_id", pa.string()),
        ("identity", pa.uint64()),
        ("time", pa.float64()),
        ("digest", pa.binary(16)),
        ("keys", pa.list_(pa.uint64(), len(fingerprinter.method.prefix_bits))),
        ("evidence", pa.binary(width) if width else pa.binary()),
        ("rank", pa.float64()),
    ]
    metadata = {
        _CONFIGURATION: fingerprinter.index_version.encode(),
        _SETTINGS: describe(fingerprinter.described).encode(),
    }
    return pa.schema(fields, metadata=metadata)


def _check(path: Path, schema: Any, fingerprinter: Fingerprinter) -> None:
    metadata: dict[bytes, bytes] = schema.metadata or {}
    configuration = metadata.get(_CONFIGURATION, b"").decode()
    if not configuration:
        msg = f"{path} holds no originals. Name a file that stream-dedup export wrote."
        raise InputError(msg)
    if configuration != fingerprinter.index_version:
        stored = metadata.get(_SETTINGS, b"{}").decode()
        msg = (
            f"{path} holds originals of other fingerprint settings (configuration "
            f"{configuration}, now {fingerprinter.index_version})."
            f"{sentence(stored, describe(fingerprinter.described))} Import with the settings that "
            f"it was exported with."
        )
        raise ConfigurationMismatch(msg)
    if not schema.equals(_schema(fingerprinter)):
        msg = (
            f"{path} has other columns than an export. Name a file that stream-dedup export wrote."
        )
        raise InputError(msg)


def _groups(batches: Iterable[IndexBatch]) -> Iterator[list[IndexBatch]]:
    """Put batches together into row groups."""
    group: list[IndexBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += len(batch)
        size += sum(map(len, batch.prints.payloads))
        if rows >= ROWS or size >= _EVIDENCE_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _columns(batch: IndexBatch) -> dict[str, Any]:
    prints = batch.prints
    tables, width = prints.keys.shape[1], prints.sketches.shape[1]
    evidence = pa.array(prints.payloads, pa.binary())
    if width:
        sketches = pa.py_buffer(np.ascontiguousarray(prints.sketches))
        evidence = pa.Array.from_buffers(pa.binary(width), len(batch), [None, sketches])
    ranks = np.where(np.isinf(batch.ranks), np.nan, batch.ranks)
    return {
        "id": [str(one) for one in batch.ids],
        "id_is_integer": [isinstance(one, int) for one in batch.ids],
        "duplicate_id": list(map(duplicate_id, batch.ids, prints.digests)),
        "identity": pa.array(batch.identities),
        "time": pa.array(batch.times),
        "digest": pa.array(prints.digests, pa.binary(16)),
        "keys": pa.FixedSizeListArray.from_arrays(pa.array(prints.keys.reshape(-1)), tables),
        "evidence": evidence,
        "rank": pa.array(ranks, from_pandas=True),
    }


def _batch(table: Any, fingerprinter: Fingerprinter) -> IndexBatch:
    columns = {name: table[name] for name in table.column_names}
    count = len(table)
    integers = columns["id_is_integer"].to_pylist()
    ids = [
        int(one) if integer else one
        for one, integer in zip(columns["id"].to_pylist(), integers, strict=True)
    ]
    width = fingerprinter.verifier.sketch_bytes
    keys = columns["keys"].combine_chunks().flatten().to_numpy()
    evidence = columns["evidence"].to_pylist()
    prints = Fingerprints(
        np.zeros(count, np.bool_),
        columns["digest"].to_pylist(),
        keys.reshape(count, -1),
        np.frombuffer(b"".join(evidence) if width else b"", np.uint8).reshape(count, width),
        () if width else evidence,
    )
    ranks = columns["rank"].to_numpy()
    return IndexBatch(
        ids,
        columns["identity"].to_numpy(),
        columns["time"].to_numpy(),
        prints,
        np.where(np.isnan(ranks), np.inf, ranks),
    )
