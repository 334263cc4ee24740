"""Runs of equal rows."""

from __future__ import annotations

import numpy as np
import pytest

from stream_dedup.runs import begins_of_runs


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[]], []),
        ([[], []], []),
        ([[7]], [True]),
        ([[1, 1, 2, 2, 1]], [True, False, True, False, True]),
        ([[1, 1, 1, 2], [5, 5, 6, 6]], [True, False, True, True]),
        ([[1, 1, 1], [5, 5, 5], [0, 0, 1]], [True, False, True]),
    ],
)
def test_a_run_begins_where_some_column_changes(
    columns: list[list[int]], expected: list[bool]
) -> None:
    assert begins_of_runs(*(np.array(one, np.int64) for one in columns)).tolist() == expected
