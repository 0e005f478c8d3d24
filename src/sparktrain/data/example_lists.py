"""The values in the lists of features, for many rows at once.

A list's body is, for numbers, one field with all of them packed; for bytes, a field for each.
Bodies that are written otherwise, which the format allows, are read one by one.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data import varints
from sparktrain.data.example_parse import (
    BYTES,
    FLOAT,
    INT64,
    MalformedError,
    fields,
    read_varint,
)
from sparktrain.data.record_blocks import Block

#: With fewer rows than that, going through items in step costs more than one by one.
_FEW_ROWS = 8
#: By the size of a varint: the bits that say whether a byte follows, and what they must be.
_MARKS = np.array([sum(0x80 << 8 * n for n in range(size)) for size in range(7)], np.uint64)
_EXPECTED = np.array([sum(0x80 << 8 * n for n in range(size - 1)) for size in range(7)], np.uint64)


def read_lists(block: Block, kind: int, starts: Any, ends: Any) -> tuple[pa.ListArray, Any]:
    """The values of each row, and which rows are malformed, as a mask: they have none."""
    if kind == BYTES:
        found, is_odd = _read_bytes(block, starts, ends)
    else:
        found, is_odd = _read_packed(block, kind, starts, ends)
    malformed = np.zeros(len(starts), bool)
    odd = np.flatnonzero(is_odd)
    if not len(odd):
        return found, malformed
    alone: list[list[Any]] = []
    for row in odd:
        try:
            alone.append(parse_list(kind, bytes(block.data[starts[row] : ends[row]])))
        except MalformedError:
            malformed[row] = True
            alone.append([])
    places = np.arange(len(starts))
    places[odd] = len(starts) + np.arange(len(odd))
    both = pa.concat_arrays([found, pa.array(alone, found.type)])
    return both.take(pa.array(places)), malformed


def read_single(block: Block, kind: int, starts: Any, ends: Any) -> pa.Array | None:
    """The values where each of the lists has one small number; None if any has not."""
    words = varints.words_of(block.data)
    found, sizes = words[starts], ends - starts - 2
    if kind == FLOAT:
        if (sizes != 4).any() or ((found & np.uint64(0xFFFF)) != 0x040A).any():
            return None
        return pa.array((found >> np.uint64(16)).astype("<u4").view("<f4"))
    if kind != INT64 or not len(sizes) or int(sizes.min()) < 1 or int(sizes.max()) > 6:
        return None
    head = np.uint64(0x0A) | (sizes.astype(np.uint64) << np.uint64(8))
    rest = found >> np.uint64(16)
    is_plain = ((found & np.uint64(0xFFFF)) == head) & ((rest & _MARKS[sizes]) == _EXPECTED[sizes])
    if not is_plain.all():
        return None
    values = rest & np.uint64(0x7F)
    for number in range(1, int(sizes.max())):
        part = (rest >> np.uint64(8 * number)) & np.uint64(0x7F)
        values |= np.where(sizes > number, part << np.uint64(7 * number), np.uint64(0))
    return pa.array(values.view(np.int64))


def gather(data: Any, starts: Any, ends: Any) -> pa.BinaryArray:
    """The bytes between places that go up, as an array."""
    if not len(starts):
        return pa.array([], pa.binary())
    # Every second one of the pieces that these places cut the data into.
    is_large = len(data) > np.iinfo(np.int32).max
    places = np.empty(2 * len(starts), np.int64 if is_large else np.int32)
    places[0::2], places[1::2] = starts, ends
    pieces = pa.Array.from_buffers(
        pa.large_binary() if is_large else pa.binary(),
        len(places) - 1,
        [None, pa.py_buffer(places), pa.py_buffer(data)],
    )
    return pieces.take(pa.array(np.arange(0, len(places), 2)))


def make_lists(counts: Any, values: pa.Array) -> pa.ListArray:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _read_packed(block: Block, kind: int, starts: Any, ends: Any) -> tuple[pa.ListArray, Any]:
    data, is_full = block.data, starts < ends
    size, first = varints.read(varints.words_of(data), starts + 1)
    is_plain = is_full & (data[starts] == 0x0A) & (size >= 0) & (first + size == ends)
    if kind == FLOAT:
        is_plain &= size % 4 == 0
    else:
        is_plain &= (size == 0) | (data[np.maximum(ends, 1) - 1] < 0x80)
    is_odd = is_full & ~is_plain
    first = np.where(is_plain, first, ends)
    gathered = gather(data, first, ends)
    flat = np.frombuffer(gathered.buffers()[2] or b"", np.uint8)
    last = np.cumsum(ends - first)
    flat = flat[: int(last[-1]) if len(last) else 0]
    if kind == FLOAT:
        return make_lists((ends - first) // 4, pa.array(flat.view("<f4"))), is_odd
    values, places, is_long = varints.decode(flat)
    counts = np.diff(np.searchsorted(places, last, "right"), prepend=0)
    if is_long.any():
        is_odd[np.searchsorted(last, places[is_long], "left")] = True
    return make_lists(counts, pa.array(values)), is_odd


def _read_bytes(block: Block, starts: Any, ends: Any) -> tuple[pa.ListArray, Any]:
    owners, first, last, is_odd = walk(block, starts, ends)
    counts = np.bincount(owners, minlength=len(starts))
    return make_lists(counts, gather(block.data, first, last).cast(pa.binary())), is_odd


def walk(block: Block, starts: Any, ends: Any) -> tuple[Any, Any, Any, Any]:
    """The items of each row, all of them fields with the number 1 that have a size.

    Returns which row each item belongs to, where it begins and ends, in their order, and which
    rows are written otherwise, or are too few to go on in step, as a mask: they have no items.
    """
    data, words = block.data, varints.words_of(block.data)
    is_odd = np.zeros(len(starts), bool)
    rows = np.flatnonzero(starts < ends)
    at = starts[rows]
    found: list[tuple[Any, Any, Any]] = []
    while len(rows):
        if found and len(rows) < _FEW_ROWS:
            is_odd[rows] = True
            break
        size, first = varints.read(words, at + 1)
        last = first + size
        is_plain = (data[at] == 0x0A) & (size >= 0) & (last <= ends[rows])
        if not is_plain.all():
            is_odd[rows[~is_plain]] = True
            rows, first, last = rows[is_plain], first[is_plain], last[is_plain]
        found.append((rows, first, last))
        is_left = last < ends[rows]
        rows, at = rows[is_left], last[is_left]
    if not found:
        none = np.zeros(0, np.int64)
        return none, none, none, is_odd
    owners, first, last = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if len(found) > 1:
        order = np.argsort(owners, kind="stable")
        owners, first, last = owners[order], first[order], last[order]
    if is_odd.any():
        kept = ~is_odd[owners]
        owners, first, last = owners[kept], first[kept], last[kept]
    return owners, first, last, is_odd


def walk_alone(block: Block, start: int, end: int) -> list[tuple[int, int]]:
    """The same for one row, however it is written; raises MalformedError."""
    body = bytes(block.data[start:end])
    return [
        (start + first, start + last)
        for number, first, last in fields(body, 0, len(body))
        if number == 1
    ]


def parse_list(kind: int, body: bytes) -> list[Any]:
    """The values of one list, however it is written; raises MalformedError."""
    values: list[Any] = []
    at, end = 0, len(body)
    while at < end:
        tag, at = read_varint(body, at, end)
        wire = tag & 7
        if wire == 0:
            number, at = read_varint(body, at, end)
            if tag >> 3 == 1 and kind == INT64:
                values.append(_signed(number))
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, at = read_varint(body, at, end)
        if size is None or size > end - at:
            raise MalformedError(f"a list has a field of type {wire} that is cut off or unknown")
        if tag >> 3 == 1:
            values += _parse_field(kind, wire, body[at : at + size])
        at += size
    return values


def _parse_field(kind: int, wire: int, data: bytes) -> list[Any]:
    if kind == BYTES and wire == 2:
        return [data]
    if kind == FLOAT and (wire == 5 or (wire == 2 and len(data) % 4 == 0)):
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if kind == INT64 and wire == 2:
        values, at = [], 0
        while at < len(data):
            number, at = read_varint(data, at, len(data))
            values.append(_signed(number))
        return values
    raise MalformedError(f"a list of kind {kind} has a field of type {wire}")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
