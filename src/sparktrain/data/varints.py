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
    more = (found & np.uint64(0x80)) != 0
    if not more.any():
        return values, at + 1
    sizes = np.ones(len(at), np.int64)
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
    if not len(left):
        return sizes
    largest = int(left.max())
    for number in range(1, MAX_BYTES):
        limit = 1 << (7 * number)
        if largest < limit:
            break
        sizes += left >= np.uint64(limit)
    return sizes


def encode(values: Any) -> tuple[Any, Any]:
    """The bytes of all numbers, one behind the other, and the size of each."""
    sizes = sizes_of(values)
    if not len(sizes):
        return np.zeros(0, np.uint8), sizes
    longest = int(sizes.max())
    table = encode_alike(values, longest)
    if int(sizes.min()) == longest:
        return table.reshape(-1), sizes
    # What is behind the last byte of a shorter one goes, and its last byte ends it.
    places = np.arange(longest)
    table[places == sizes[:, None] - 1] &= 0x7F
    return table[places < sizes[:, None]], sizes


def encode_alike(values: Any, size: int) -> Any:
    """A row of bytes for each number, all of this size, which is not too small for any."""
    left = np.ascontiguousarray(values, np.int64).view(np.uint64)
    table = np.empty((len(left), size), np.uint8)
    for number in range(size):
        table[:, number] = (left >> np.uint64(7 * number)).astype(np.uint8)
    table[:, :-1] |= 0x80
    table[:, -1] &= 0x7F
    return table
