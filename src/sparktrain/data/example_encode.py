"""Columns of Arrow data as serialized Examples and SequenceExamples, many rows at once.

What a row is made of is first only counted: from the sizes of the values follow all the sizes
that protobuf writes before them, from the inside out. Then all pieces of all rows are put
together in one go, so that every value is copied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktrain.data import varints
from sparktrain.data.example_parse import BYTES, FLOAT, INT64

_NOTHING = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True)
class Pieces:
    """Bytes of many rows: arrays of large_binary, or scalars for all rows, one behind the other."""

    parts: tuple[Any, ...]
    #: Of all parts together, for each row.
    sizes: Any

    def join(self) -> pa.Array:
        """One array of large_binary."""
        size = len(self.sizes)
        if not any(isinstance(part, pa.Array) for part in self.parts):
            whole = b"".join(part.as_py() for part in self.parts)
            return pa.repeat(pa.scalar(whole, pa.large_binary()), size)
        return pc.binary_join_element_wise(*self.parts, _NOTHING)


def encode_examples(names: Sequence[str], columns: Sequence[pa.Array], num_rows: int) -> Pieces:
    """One serialized Example for each row."""
    entries = [_encode_entries(*column) for column in zip(names, columns, strict=True)]
    return _wrap(_chain(entries, num_rows), [b"\x0a"])


def encode_sequences(names: Sequence[str], columns: Sequence[pa.Array], num_rows: int) -> Pieces:
    """One serialized SequenceExample for each row: lists of lists are its feature lists."""
    context, lists = [], []
    for name, column in zip(names, columns, strict=True):
        if is_nested(column.type):
            lists.append(_encode_list_entries(name, column))
        else:
            context.append(_encode_entries(name, column))
    both = [
        _wrap(_chain(context, num_rows), [b"\x0a"]),
        _wrap(_chain(lists, num_rows), [b"\x12"]),
    ]
    return _chain(both, num_rows)


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_list(kind.value_type))


def from_offsets(data: Any, offsets: Any) -> pa.Array:
    """The bytes between offsets, as an array that shares them."""
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    places = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, places, buffer])


def offsets_of(array: pa.Array) -> Any:
    """Where each value begins and ends in the data of an array of binary or large_binary."""
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    found = np.frombuffer(buffer, kind)
    return found[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _chain(several: Iterable[Pieces], num_rows: int) -> Pieces:
    parts: list[Any] = []
    sizes = np.zeros(num_rows, np.int64)
    for one in several:
        parts += one.parts
        sizes += one.sizes
    return Pieces(tuple(parts), sizes)


def _encode_entries(name: str, column: pa.Array) -> Pieces:
    """The entry of each row in the map of features; none where the value is null."""
    kind, bodies, is_there = _encode_lists(column)
    return _wrap(bodies, [b"\x0a", _key(name) + b"\x12", bytes([kind << 3 | 2])], is_there)


def _encode_list_entries(name: str, column: pa.ListArray) -> Pieces:
    """The entry of each row in the map of feature lists; none where the value is null."""
    counts, inner, is_there = _flatten(column)
    kind, bodies, is_inner_there = _encode_lists(inner)
    # A list that is null is a Feature without a kind.
    features = _wrap(bodies, [bytes([kind << 3 | 2])], is_inner_there)
    items = _wrap(features, [b"\x0a"])
    return _wrap(_group(items, counts), [b"\x0a", _key(name) + b"\x12"], is_there)


def _key(name: str) -> bytes:
    raw = name.encode()
    return b"\x0a" + bytes(varints.encode(np.array([len(raw)]))[0]) + raw


def _encode_lists(column: pa.Array) -> tuple[int, Pieces, Any]:
    """The kind, the body of each row's list, and which rows have one (None: all)."""
    is_list = pa.types.is_list(column.type)
    if is_list:
        counts, values, is_there = _flatten(column)
    elif column.null_count:
        is_there = column.is_valid().to_numpy(zero_copy_only=False)
        counts, values = is_there.astype(np.int64), column.drop_null()
    else:
        counts, values, is_there = np.ones(len(column), np.int64), column, None
    if pa.types.is_floating(values.type):
        numbers = np.ascontiguousarray(values.to_numpy(), "<f4")
        offsets = _cumulate(counts) * 4
        payload = Pieces((from_offsets(numbers, offsets),), counts * 4)
        return FLOAT, _wrap(payload, [b"\x0a"], is_there), is_there
    if pa.types.is_integer(values.type):
        data, sizes = varints.encode(values.to_numpy())
        offsets = _cumulate(sizes)[_cumulate(counts)]
        payload = Pieces((from_offsets(data, offsets),), np.diff(offsets))
        return INT64, _wrap(payload, [b"\x0a"], is_there), is_there
    array = values.cast(pa.large_binary())
    items = _wrap(Pieces((array,), np.diff(offsets_of(array))), [b"\x0a"])
    if not is_list and is_there is None:
        return BYTES, items, is_there
    return BYTES, _group(items, counts), is_there


def _flatten(column: pa.ListArray) -> tuple[Any, pa.Array, Any]:
    """How many values each row has, all of them, and which rows are not null (None: all)."""
    if not column.null_count:
        offsets = column.offsets.to_numpy().astype(np.int64)
        values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
        return np.diff(offsets), values, None
    counts = pc.fill_null(column.value_lengths(), 0).to_numpy().astype(np.int64)
    return counts, column.flatten(), column.is_valid().to_numpy(zero_copy_only=False)


def _group(items: Pieces, counts: Any) -> Pieces:
    """Several items one behind the other as the bytes of one row."""
    joined = items.join()
    offsets = offsets_of(joined)[_cumulate(counts)]
    return Pieces((from_offsets(joined.buffers()[2] or b"", offsets),), np.diff(offsets))


def _cumulate(counts: Any) -> Any:
    """Offsets of pieces of these sizes."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _wrap(inner: Pieces, prefixes: Sequence[bytes], is_there: Any = None) -> Pieces:
    """Puts before each row's bytes the prefixes, each with the size of all that follows it.

    Rows that are not there get none of it, and have no bytes themselves.
    """
    rest = inner.sizes
    fields = []
    for prefix in reversed(prefixes):
        widths = varints.sizes_of(rest)
        fields.append((prefix, rest, widths))
        rest = rest + widths + len(prefix)
    fields.reverse()
    if is_there is not None:
        rest = np.where(is_there, rest, 0)
    return Pieces((_make_headers(fields, inner.sizes, rest - inner.sizes), *inner.parts), rest)


def _make_headers(fields: Sequence[tuple[bytes, Any, Any]], inner: Any, sizes: Any) -> Any:
    """Prefixes and sizes as one piece."""
    if not len(sizes):
        return pa.array([], pa.large_binary())
    shortest, longest = int(sizes.min()), int(sizes.max())
    if shortest == longest:
        if not longest or int(inner.min()) == int(inner.max()):
            whole = _fill(fields, np.zeros(1, np.int64)).tobytes() if longest else b""
            return pa.scalar(whole, pa.large_binary())
        return from_offsets(_fill(fields, slice(None)), np.arange(len(sizes) + 1) * longest)
    # The larger a row, the longer its sizes: rows whose headers are as long are alike.
    parts, rows = [], []
    for size in np.unique(sizes):
        alike = np.flatnonzero(sizes == size)
        rows.append(alike)
        data = _fill(fields, alike) if size else b""
        parts.append(from_offsets(data, np.arange(len(alike) + 1) * size))
    places = np.empty(len(sizes), np.int64)
    places[np.concatenate(rows)] = np.arange(len(sizes))
    return pa.concat_arrays(parts).take(pa.array(places))


def _fill(fields: Sequence[tuple[bytes, Any, Any]], rows: Any) -> Any:
    """The headers of these rows, whose sizes are of the same widths, as a table of bytes."""
    columns = [(prefix, sizes[rows], int(widths[rows][0])) for prefix, sizes, widths in fields]
    total = sum(len(prefix) + width for prefix, _, width in columns)
    table = np.empty((len(columns[0][1]), total), np.uint8)
    at = 0
    for prefix, sizes, width in columns:
        table[:, at : at + len(prefix)] = np.frombuffer(prefix, np.uint8)
        at += len(prefix)
        table[:, at : at + width] = varints.encode_alike(sizes, width)
        at += width
    return table
