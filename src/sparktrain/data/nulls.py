"""Rows with a null, also where it is inside of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def has_nulls(array: pa.Array) -> bool:
    """Whether a value is null, or one inside of it."""
    while True:
        if array.null_count:
            return True
        if not _is_list(array.type):
            return False
        array = array.flatten()


def find_nulls(array: pa.Array) -> np.ndarray[Any, Any]:
    """For each row whether it is null, or has one inside."""
    found: np.ndarray[Any, Any] = array.is_null().to_numpy(zero_copy_only=False)
    if not _is_list(array.type):
        return found
    there = array.drop_null()
    inside = find_nulls(there.flatten())
    if inside.any():
        rows = np.flatnonzero(~found)
        found = found.copy()  # Arrow's own memory is not written to
        found[np.repeat(rows, pc.list_value_length(there).to_numpy())[inside]] = True
    return found


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
