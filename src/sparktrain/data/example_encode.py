"""Columns of Arrow data as serialized tf.train.Examples, many rows at once.

Each column becomes an array of entries, one for each row, empty where the value is null; the
entries of a row behind one another are its Features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktrain.data import varints
from sparktrain.data.example_scan import BYTES, FLOAT, INT64


def encode_examples(names: Sequence[str], columns: Sequence[pa.Array], num_rows: int) -> pa.Array:
    """One serialized Example for each row, as an array of large_binary."""
    entries = [encode_entries(name, column) for name, column in zip(names, columns, strict=True)]
    if not entries:
        return pa.array([b"\x0a\x00"] * num_rows, pa.large_binary())
    features = join(entries)
    return join([pa.scalar(b"\x0a", pa.large_binary()), size_prefixes(features), features])


def encode_entries(name: str, column: pa.Array) -> pa.Array:
    """The entries of one column, of lists or of single values, of the three kinds' own types."""
    if not pa.types.is_list(column.type):
        column = _as_lists(column)
    kind, bodies = _encode_bodies(column)
    # From the inside out: list, Feature, value of the entry, entry.
    lists = join(
        [pa.scalar(bytes([kind << 3 | 2]), pa.large_binary()), size_prefixes(bodies), bodies]
    )
    raw = name.encode()
    key = b"\x0a" + bytes(varints.encode(np.array([len(raw)]))[0]) + raw + b"\x12"
    inner = join([pa.scalar(key, pa.large_binary()), size_prefixes(lists), lists])
    entries = join([pa.scalar(b"\x0a", pa.large_binary()), size_prefixes(inner), inner])
    if column.null_count:
        entries = pc.if_else(column.is_valid(), entries, pa.scalar(b"", pa.large_binary()))
    return entries


def join(parts: Sequence[Any]) -> pa.Array:
    """Bytes of several arrays, put together row by row."""
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def size_prefixes(array: pa.Array) -> pa.Array:
    """For each row the size of its bytes, as a varint."""
    data, sizes = varints.encode(np.diff(_offsets(array)))
    return _from_sizes(data, sizes)


def _offsets(array: pa.Array) -> Any:
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    found = np.frombuffer(array.buffers()[1], kind)
    return found[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _from_sizes(data: Any, sizes: Any) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _as_lists(column: pa.Array) -> pa.ListArray:
    """Single values as lists of one, null as null."""
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(is_valid, out=offsets[1:])
    lists = pa.ListArray.from_arrays(pa.array(offsets), column.drop_null())
    if column.null_count:
        lists = pa.ListArray.from_arrays(
            pa.array(offsets), column.drop_null(), mask=pa.array(~is_valid)
        )
    return lists


def _encode_bodies(lists: pa.ListArray) -> tuple[int, pa.Array]:
    """The kind, and the body of each row's list."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    counts = np.diff(offsets)
    element = values.type
    if pa.types.is_floating(element):
        data = np.ascontiguousarray(values.to_numpy(), "<f4").view(np.uint8)
        return FLOAT, _pack(_from_sizes(data, counts * 4))
    if pa.types.is_integer(element):
        data, sizes = varints.encode(values.to_numpy())
        ends = np.concatenate([[0], np.cumsum(sizes)])[np.cumsum(counts)] if len(counts) else counts
        return INT64, _pack(_from_sizes(data, np.diff(ends, prepend=0)))
    values = values.cast(pa.large_binary())
    items = join([pa.scalar(b"\x0a", pa.large_binary()), size_prefixes(values), values])
    places = _offsets(items)
    ends = places[np.cumsum(counts)] if len(counts) else counts
    data = np.frombuffer(items.buffers()[2] or b"", np.uint8)[places[0] : places[-1]]
    return BYTES, _from_sizes(data, np.diff(ends - places[0], prepend=0))


def _pack(payloads: pa.Array) -> pa.Array:
    """Numbers as one field; no field for an empty list."""
    packed = join([pa.scalar(b"\x0a", pa.large_binary()), size_prefixes(payloads), payloads])
    is_empty = pa.array(np.diff(_offsets(payloads)) == 0)
    if pc.any(is_empty).as_py():
        packed = pc.if_else(is_empty, pa.scalar(b"", pa.large_binary()), packed)
    return packed
