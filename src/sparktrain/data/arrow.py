"""From Spark's record batches to stored blocks.

A block is a record batch in which nothing is left to decide: nulls are filled, lengths are
checked, dense columns are fixed-size lists of their values. It is made once, by the agent, so
that a bad row is found where it comes in; the trainer only looks at its buffers (views.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktrain.data.decimals import round_decimals
from sparktrain.data.faults import Place
from sparktrain.data.schema import MASK_SUFFIX, Column

_STORED: dict[str, pa.DataType] = {
    # One byte each: Arrow's own booleans are bits, which numpy cannot look at.
    "bool": pa.uint8(),
    "string": pa.large_binary(),
    **{
        name: getattr(pa, name)()
        for name in ("uint8", "int8", "int16", "int32", "int64", "float32", "float64")
    },
}


def stored_schema(columns: Sequence[Column]) -> pa.Schema:
    """The schema of the blocks of a table."""
    fields = []
    for column in columns:
        kind = _STORED[column.dtype]
        if column.shape and column.is_dense:
            kind = pa.list_(kind, column.size)
        elif column.shape:
            for _ in range(column.depth):
                kind = pa.large_list(kind)
        fields.append(pa.field(column.name, kind, nullable=False))
        if column.is_masked:
            fields.append(pa.field(column.name + MASK_SUFFIX, pa.uint8(), nullable=False))
    return pa.schema(fields)


def dense_bytes(columns: Sequence[Column]) -> int:
    """What a row takes in a block, without what varies."""
    fixed = [column for column in columns if column.is_dense and column.dtype != "string"]
    return sum(column.size * int(_STORED[column.dtype].bit_width) // 8 for column in fixed)


def cut_batch(
    batch: pa.RecordBatch, columns: Sequence[Column], max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Pieces whose blocks are at most so large; of a row that is larger, that row alone."""
    if batch.num_rows == 0:
        return
    # Rows may be larger in a block than they came: padded, or bits that become bytes.
    row_bytes = max(batch.nbytes / batch.num_rows, dense_bytes(columns), 1)
    step = max(int(max_bytes / row_bytes), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def make_block(batch: pa.RecordBatch, columns: Sequence[Column], place: Place) -> pa.RecordBatch:
    """The block of a record batch; raises BadRowError."""
    arrays = []
    for column in columns:
        array = batch.column(column.name)
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if column.is_masked:
            mask = array.is_null().cast(pa.uint8())
        if column.kind == "image":
            arrays.append(_store_images(array, column, place))
        elif column.shape:
            arrays.append(_store_lists(array, column, place))
        else:
            arrays.append(_store_values(_fill(array, column, place), column))
        if column.is_masked:
            arrays.append(mask)
    return pa.RecordBatch.from_arrays(arrays, schema=stored_schema(columns))


def _fill(array: pa.Array, column: Column, place: Place) -> pa.Array:
    """Without nulls: filled, or refused with the row of the first one."""
    array = round_decimals(array)
    if array.null_count == 0:
        return array
    if column.fill is None:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise place.refuse(column, row, "is null", _null_advice(column, place))
    return array.fill_null(cast_fill(column.fill, array.type))


def _null_advice(column: Column, place: Place) -> str:
    if place.is_scored:
        return (
            f"Give fill={{{column.name!r}: ...}}, or filter such rows; predict() takes nulls='null'"
            " as well, for no answer."
        )
    return f"Give fill={{{column.name!r}: ...}} or mask=[{column.name!r}], or filter such rows."


def cast_fill(fill: Any, kind: pa.DataType) -> pa.Scalar:
    """What stands for null, as the schema has checked it, in the type of the column."""
    if pa.types.is_date(kind):
        return pa.scalar(int(fill), pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(int(fill), pa.int64()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(bool(fill), kind)
    return pa.scalar(fill, kind)


def _store_values(array: pa.Array, column: Column) -> pa.Array:
    """Values without nulls in the type they are stored in."""
    kind = _STORED[column.dtype]
    if array.type == kind:
        return array
    if pa.types.is_date(array.type):
        return array.cast(pa.int32())
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", array.type.tz), safe=False).view(pa.int64())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return array.cast(pa.large_string()).view(pa.large_binary())
    return array.cast(kind, safe=False)


def _store_lists(array: pa.Array, column: Column, place: Place) -> pa.Array:
    """Arrays, vectors and bytes with a shape."""
    if column.kind == "binary" and column.depth == 0:
        if column.fill is not None:
            column = replace(column, fill=column.fill or bytes(column.size))
        filled = _fill(array, column, place)
        lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False)
        _check_lengths(lengths, column.size, column, place, "bytes")
        return _to_fixed(pa.array(_bytes_of(filled), pa.uint8()), column.size)
    is_empty = np.zeros(0, bool)
    if array.null_count:
        if column.fill is None:
            _fill(array, column, place)
        is_empty = array.is_null().to_numpy(zero_copy_only=False)
    if column.is_dense:
        return _store_dense(array, column, place, is_empty)
    return _store_ragged(array, column, place)


def _store_dense(
    array: pa.Array, column: Column, place: Place, is_empty: np.ndarray[Any, Any]
) -> pa.Array:
    levels = _levels(column)
    values, rows = array, np.arange(len(array))
    if is_empty.any():
        values, rows = array.filter(pa.array(~is_empty)), np.flatnonzero(~is_empty)
    num_rows = len(values)
    if column.pad is not None:
        values, rows = _pad(values, levels, column, place, rows)
    else:
        for position, expected in enumerate(levels):
            values = _flat_level(values, expected, column, place, rows, position)
            if position + 1 < len(levels) or values.null_count:  # else nobody asks for them
                rows = np.repeat(rows, expected)
    stored = _store_values(_fill_inner(values, column, place, rows), column)
    if is_empty.any():
        fill = int(column.fill) if isinstance(column.fill, bool) else column.fill
        index = np.full((len(array), column.size), len(stored))
        index[~is_empty] = np.arange(len(stored)).reshape(num_rows, column.size)
        stored = _take_or(stored, index.ravel(), pa.scalar(fill, stored.type))
    return _to_fixed(stored, column.size)


def _levels(column: Column) -> list[int]:
    """The length of each array level: the last takes what is left of the shape."""
    depth = max(column.depth, 1)
    lengths = [int(length or 0) for length in column.shape]
    last = int(np.prod(lengths[depth - 1 :]))
    return [*lengths[: depth - 1], last]


def _flat_level(
    array: pa.Array,
    expected: int,
    column: Column,
    place: Place,
    rows: np.ndarray[Any, Any],
    level: int,
) -> pa.Array:
    if array.null_count:
        row = int(rows[np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]])
        raise place.refuse(column, row, "has a null inside", "Filter or fill such rows first.")
    _check_lengths(_lengths(array), expected, column, place, "values", rows, level)
    return array.flatten()


def _lengths(array: pa.Array) -> np.ndarray[Any, Any]:
    """Of each list; 0 for null."""
    lengths: np.ndarray[Any, Any] = pc.list_value_length(array).fill_null(0).to_numpy()
    return lengths


def _check_lengths(
    lengths: np.ndarray[Any, Any],
    expected: int,
    column: Column,
    place: Place,
    what: str,
    rows: np.ndarray[Any, Any] | None = None,
    level: int = 0,
) -> None:
    wrong = np.flatnonzero(lengths != expected)
    if not len(wrong):
        return
    first = int(wrong[0])
    row = first if rows is None else int(rows[first])
    where = f" at depth {level + 1}" if level else ""
    varying = f"{column.name!r}: {(None,) * column.depth}"
    if place.is_scored:
        advice = "The model takes no other length."
        if what == "values":
            advice = f"Shorter ones are padded by pad={{{column.name!r}: 0}}."
    elif what == "values":
        advice = (
            f"For lengths that vary declare shapes={{{varying}}} or pad={{{column.name!r}: 0}}."
        )
    else:
        advice = "Leave its shape out to get the bytes as they are."
    problem = f"has {int(lengths[first])} {what}{where} where {expected} are expected,"
    raise place.refuse(column, row, problem, advice)


def _check_longest(
    lengths: np.ndarray[Any, Any],
    size: int,
    column: Column,
    place: Place,
    rows: np.ndarray[Any, Any],
    level: int,
) -> None:
    """Refuses a list that is longer than it is padded to."""
    longer = np.flatnonzero(lengths > size)
    if not len(longer):
        return
    first = int(longer[0])
    where = f" at depth {level + 1}" if level else ""
    raise place.refuse(
        column,
        int(rows[first]),
        f"has {int(lengths[first])} values{where} where at most {size} are expected,",
        ("Use " if place.is_scored else "Declare a longer shape, or ")
        + f"slice({column.name}, 1, {size}) in Spark.",
    )


def _pad(
    values: pa.Array,
    levels: list[int],
    column: Column,
    place: Place,
    rows: np.ndarray[Any, Any],
) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Lists padded to declared lengths at every level: their values, and the row of each."""
    # Positions of the values in the padded whole; the rest is the pad value.
    positions = np.arange(len(values))
    inside = rows
    for level, size in enumerate(levels):
        if level and values.null_count and column.fill is None:
            row = int(inside[np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]])
            raise place.refuse(column, row, "has a null inside", _null_advice(column, place))
        lengths = _lengths(values)
        _check_longest(lengths, size, column, place, inside, level)
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = np.repeat(positions * size, lengths) + within
        inside = np.repeat(inside, lengths)
        values = values.flatten()
    values = round_decimals(values)
    index = np.full(len(rows) * column.size, len(values))
    index[positions] = np.arange(len(values))
    padded = _take_or(values, index, cast_fill(column.pad, values.type))
    return padded, np.repeat(rows, column.size)


def _take_or(values: pa.Array, index: np.ndarray[Any, Any], other: pa.Scalar) -> pa.Array:
    """The values at these positions; other where a position is behind the last."""
    return pa.concat_arrays([values, pa.repeat(other, 1)]).take(pa.array(index))


def _fill_inner(
    values: pa.Array, column: Column, place: Place, rows: np.ndarray[Any, Any]
) -> pa.Array:
    values = round_decimals(values)
    if values.null_count == 0:
        return values
    if column.fill is None:
        position = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise place.refuse(
            column, int(rows[position]), "has a null inside", _null_advice(column, place)
        )
    return values.fill_null(cast_fill(column.fill, values.type))


def _store_ragged(array: pa.Array, column: Column, place: Place) -> pa.Array:
    """Lists whose lengths vary; a null list becomes an empty one where nulls are filled."""
    rows = np.arange(len(array))

    def store(level: pa.Array, depth: int, rows: np.ndarray[Any, Any]) -> pa.Array:
        if depth == 0:
            return _store_values(_fill_inner(level, column, place, rows), column)
        if level.null_count and column.fill is None:
            row = int(rows[np.flatnonzero(level.is_null().to_numpy(zero_copy_only=False))[0]])
            raise place.refuse(column, row, "has a null inside", _null_advice(column, place))
        lengths = _lengths(level)
        position = column.depth - depth
        expected = column.shape[position]
        if expected is not None and column.pad is None:
            _check_lengths(lengths, expected, column, place, "values", rows, position)
        elif expected is not None:
            _check_longest(lengths, expected, column, place, rows, position)
        inner = store(level.flatten(), depth - 1, np.repeat(rows, lengths))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return pa.LargeListArray.from_arrays(pa.array(offsets), inner)

    return store(array, column.depth, rows)


def _store_images(array: pa.Array, column: Column, place: Place) -> pa.Array:
    """Spark's image structs, all of one size."""
    if array.null_count:
        _fill(array, column, place)
    names = ("height", "width", "nChannels")
    for name in (*names, "data"):
        is_null = array.field(name).is_null().to_numpy(zero_copy_only=False)
        if is_null.any():
            row = int(np.flatnonzero(is_null)[0])
            raise place.refuse(column, row, "has a null inside", "Filter such rows.")
    sizes = np.stack(
        [array.field(name).to_numpy(zero_copy_only=False) for name in names], axis=1
    ).astype(np.int64)
    wrong = np.flatnonzero((sizes != np.array(column.shape)).any(axis=1))
    if len(wrong):
        row = int(wrong[0])
        raise place.refuse(
            column,
            row,
            f"is an image of {tuple(sizes[row].tolist())} where {column.shape} is expected,",
            "Resize images to one size first.",
        )
    data = array.field("data")
    _check_lengths(pc.binary_length(data).to_numpy(), column.size, column, place, "bytes")
    return _to_fixed(pa.array(_bytes_of(data), pa.uint8()), column.size)


def _bytes_of(array: pa.Array) -> np.ndarray[Any, Any]:
    """All bytes of a binary array without nulls, in order, not copied."""
    if pa.types.is_fixed_size_binary(array.type):
        size = array.type.byte_width
        start, stop = array.offset * size, (array.offset + len(array)) * size
    else:
        is_large = pa.types.is_large_binary(array.type)
        offsets = np.frombuffer(array.buffers()[1], np.int64 if is_large else np.int32)
        start, stop = offsets[array.offset], offsets[array.offset + len(array)]
    data = array.buffers()[-1]
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return whole[start:stop]


def _to_fixed(values: pa.Array, size: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values, size)
