"""Decimals as the float64 that is nearest to each: Arrow's own cast is off by a bit for many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

#: Whole numbers up to here, and powers of ten up to this one, are float64 without rounding.
_EXACT_WHOLE, _EXACT_POWER = 2**53, 22


def round_decimals(array: pa.Array) -> pa.Array:
    """Decimals as float64; other values as they are."""
    if not pa.types.is_decimal(array.type):
        return array
    if pa.types.is_decimal128(array.type) and 0 <= array.type.scale <= _EXACT_POWER:
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        whole = _find_whole(array, is_null)
        if whole is not None:
            # Both numbers are exact, so that the quotient is the nearest there is.
            return pa.array(whole / 10.0**array.type.scale, mask=is_null)
    return array.cast(pa.string()).cast(pa.float64())


def _find_whole(array: pa.Array, is_null: np.ndarray) -> np.ndarray | None:
    """The digits of each value as a whole number; None if float64 cannot hold one of them."""
    halves = np.frombuffer(array.buffers()[1] or b"", np.int64)
    first, last = 2 * array.offset, 2 * (array.offset + len(array))
    low, high = halves[first:last:2], halves[first + 1 : last : 2]
    is_exact = (high == low >> 63) & (low <= _EXACT_WHOLE) & (low >= -_EXACT_WHOLE)
    return low if np.all(is_exact | is_null) else None
