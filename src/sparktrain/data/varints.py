"""Protobuf's whole numbers of varying length, read and written for many rows at once.

Seven bits in each byte, lowest first; the high bit says that another byte follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Bytes behind the data that may be looked at: the longest varint, and a word.
PADDING = 16
MAX_BYTES = 10


def words_of(data: Any) -> Any:
    """The eight bytes from each byte on, as one number. Needs PADDING behind the data."""
    return np.ndarray((max(len(data) - 7, 0),), "<u8", data, strides=(1,))


def read(words: Any, at: Any) -> tuple[Any, Any]:
    """The short varints (of up to four bytes, as lengths are) at these places.

    Returns the values and where the bytes behind them are. A longer one gives the value -1.
    """
    found = words[at]
    values = (found & np.uint64(0x7F)).astype(np.int64)
    sizes = np.ones(len(at), np.int64)
    more = (found & np.uint64(0x80)) != 0
    for number in range(1, 4):
        if not more.any():
            return values, at + sizes
        group = (found >> np.uint64(8 * number)) & np.uint64(0xFF)
        part = (group & np.uint64(0x7F)).astype(np.int64) << (7 * number)
        values = np.where(more, values | part, values)
        sizes += more
        more &= (group & np.uint64(0x80)) != 0
    values[more] = -1
    return values, at + sizes


def decode(data: Any) -> tuple[Any, Any, Any]:
    """All varints of an array of bytes, as int64, the place behind each, and which are too long.

    One that is cut off at the end of the data is left out.
    """
    ends = np.flatnonzero(data < 0x80) + 1
    if not len(ends):
        return np.zeros(0, np.int64), ends, np.zeros(0, bool)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1]
    sizes = ends - starts
    longest = int(sizes.max())
    values = (data[starts] & 0x7F).astype(np.uint64)
    for number in range(1, min(longest, MAX_BYTES)):
        rows = np.flatnonzero(sizes > number)
        group = (data[starts[rows] + number] & 0x7F).astype(np.uint64)
        values[rows] |= group << np.uint64(7 * number)
    return values.view(np.int64), ends, sizes > MAX_BYTES


def sizes_of(values: Any) -> Any:
    """How many bytes each number takes."""
    left = np.ascontiguousarray(values, np.int64).view(np.uint64)
    sizes = np.ones(len(left), np.int64)
    for number in range(1, MAX_BYTES):
        is_longer = left >= np.uint64(1 << (7 * number))
        if not is_longer.any():
            break
        sizes += is_longer
    return sizes


def encode(values: Any) -> tuple[Any, Any]:
    """The bytes of all numbers, one behind the other, and the size of each."""
    left = np.ascontiguousarray(values, np.int64).view(np.uint64)
    sizes = sizes_of(values)
    ends = np.cumsum(sizes)
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - sizes
    for number in range(int(sizes.max()) if len(sizes) else 0):
        rows = np.flatnonzero(sizes > number)
        group = (left[rows] >> np.uint64(7 * number)).astype(np.uint8) & 0x7F
        group |= np.where(sizes[rows] > number + 1, 0x80, 0).astype(np.uint8)
        data[starts[rows] + number] = group
    return data, sizes
