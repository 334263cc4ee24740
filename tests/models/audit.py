"""Reads a whole Redis index and checks by brute force what must hold of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from stream_dedup import Settings
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.connection import connect, nodes_of
from stream_dedup.index.records import Record, decode_record


class Contents(NamedTuple):
    """What an index holds.

    Attributes:
        fates: fate byte of each claim.
        records: record of each claim that is not void.
        entries: for each claim, the (key, score) that it stands under.
    """

    fates: dict[bytes, bytes]
    records: dict[bytes, Record]
    entries: dict[bytes, set[tuple[bytes, float]]]


def read_index(settings: Settings) -> Contents:
    """Read every key of the index's namespace."""
    width = Fingerprinter(settings).method.sketch_bytes
    contents = Contents({}, {}, defaultdict(set))
    with closing(connect(settings)) as client:
        for node in nodes_of(client):
            _read_node(node, f"{settings.redis_namespace}:{{*", width, contents)
    return contents


def _read_node(node: Any, pattern: str, width: int, contents: Contents) -> None:
    for key in node.scan_iter(match=pattern, count=1000):
        kind = key.rpartition(b"}:")[2][:1]
        if kind == b"c":
            for claim, value in node.hgetall(key).items():
                contents.fates[claim] = value[:1]
                if value[:1] != b"V":
                    contents.records[claim] = decode_record(value[1:], width)
        elif kind == b"t":
            members = node.zrange(key, 0, -1, withscores=True)
            for claim, score in members:
                contents.entries[claim].add((key, score))


def audit(settings: Settings) -> Iterator[str]:
    """Yield each violation of I1 (no two originals near) and I4 (an original in all tables)."""
    method = Fingerprinter(settings).method
    contents = read_index(settings)
    sharing: dict[tuple[bytes, float], list[bytes]] = defaultdict(list)
    for claim, fate in contents.fates.items():
        if fate == b"O":
            places = contents.entries[claim]
            if len(places) != len(method.prefix_bits):
                yield f"I4: original {claim.hex()} stands under {len(places)} keys"
            for place in places:
                sharing[place].append(claim)
    pairs = {pair for claims in sharing.values() for pair in combinations(sorted(claims), 2)}
    for one, other in sorted(pairs):
        left, right = (contents.records[claim] for claim in (one, other))
        sketches = (np.frombuffer(record.sketch, np.uint8)[None] for record in (left, right))
        if method.compare(*sketches)[1][0]:
            yield f"I1: originals {left.document_id} and {right.document_id} are near"
