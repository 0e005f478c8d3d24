"""Memory that TensorFlow uses as it is. Other memory of numpy's it copies, and some twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

#: What the address of a tensor's values is a multiple of.
_ALIGNMENT = 64


def make_aligned(shape: Sequence[int], dtype: Any) -> Any:
    """An array whose values are to be written yet."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    whole = np.empty(size + _ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % _ALIGNMENT
    return whole[start : start + size].view(kind).reshape(shape)


def align(array: Any, dtype: Any) -> Any:
    """The array in this type, as TensorFlow takes it: copied if need be."""
    kind = np.dtype(dtype)
    is_fit = array.flags.c_contiguous and array.flags.writeable and array.dtype == kind
    if is_fit and array.ctypes.data % _ALIGNMENT == 0:
        return array
    found = make_aligned(array.shape, kind)
    np.copyto(found, array, casting="unsafe")
    return found
