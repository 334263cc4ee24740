"""The document ids of a whole index, checked in an audit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from stream_dedup.index.audit_reading import Known, Rows, set_number
from stream_dedup.index.keys import ID_BITS, Layout


class Ids(NamedTuple):
    """What stands under document ids.

    Attributes:
        entries: claims that stand there, whatever they are.
        missing: rows of originals that do not stand under their own.
    """

    entries: int
    missing: Rows


def check_ids(
    sets: Iterable[tuple[bytes, dict[bytes, float]]], known: Known, layout: Layout
) -> Ids:
    """Take in the sorted sets of document ids."""
    own = layout.id_keys(known.ids)
    missing = np.zeros(len(own), np.bool_)
    missing[known.originals] = True
    score_bits = max(0, ID_BITS - layout.set_bits)
    entries = 0
    for key, members in sets:
        entries += len(members)
        rows = known.find(np.frombuffer(b"".join(members), ">u8").astype(np.uint64))
        scores = np.array(list(members.values()), np.uint64)
        found = np.uint64(set_number(key)[1] << score_bits) | scores
        mine = rows >= 0
        right = own[rows[mine]] == found[mine]
        missing[rows[mine][right]] = False
    return Ids(entries, np.flatnonzero(missing))
