"""Columns of Arrow in the shape of tensors. Rows that do not have one shape are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def to_values(column: pa.Array, name: str, shape: list[int | None] | None) -> Any:
    """A column as an array of a tensor's shape; arrays may be flat or nested as the tensor is.

    Args:
        name: Of the column, for errors.
        shape: Of the tensor, with the rows; None where it is open, or all of it.
    """
    count = len(column)
    values, sizes = flatten(column, name)
    if shape is None:
        return values.reshape([count, *sizes])
    wished = shape[1:]
    found = int(np.prod(sizes, dtype=np.int64))
    if len(wished) == len(sizes) and _fits(sizes, wished):
        return values.reshape([count, *sizes])
    if wished.count(None) > 1:
        raise ValueError(
            f"column {name!r} has rows of shape {tuple(sizes)}, and the model's input is of shape"
            f" {tuple(shape)}; expected arrays nested {len(wished)} deep, as several of its sizes"
            " are open"
        )
    fixed = int(np.prod([size for size in wished if size is not None], dtype=np.int64))
    is_open = None in wished
    if (found % fixed if is_open and fixed else found != fixed) and not (is_open and not found):
        raise ValueError(
            f"column {name!r} has {found} values a row, and the model's input is of shape"
            f" {tuple(shape)}; expected {'a multiple of ' if is_open else ''}{fixed}"
        )
    rest = found // fixed if fixed else 0
    return values.reshape([count, *(rest if size is None else size for size in wished)])


def flatten(column: pa.Array, name: str) -> tuple[np.ndarray[Any, Any], list[int]]:
    """All values of a column, and the sizes of its arrays from the outside in."""
    count = len(column)
    sizes: list[int] = []
    while True:
        kind = column.type
        if column.null_count:
            position = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            row = position // max(int(np.prod(sizes, dtype=np.int64)), 1)
            raise ValueError(
                f"column {name!r} has {'a null inside' if sizes else 'null'} in row {row} of a"
                f" batch of {count}; expected a value. Fill such rows or filter them first."
            )
        if pa.types.is_fixed_size_list(kind):
            sizes.append(kind.list_size)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            sizes.append(_find_size(column, name, sizes, count))
        else:
            break
        column = column.flatten()
    if pa.types.is_nested(kind):
        raise ValueError(
            f"column {name!r} has values of type {kind}; expected numbers, text, bytes or arrays of"
            " them"
        )
    return column.to_numpy(zero_copy_only=False), sizes


def _find_size(column: pa.Array, name: str, sizes: list[int], count: int) -> int:
    lengths = pc.list_value_length(column)
    bounds = pc.min_max(lengths)
    first = int(lengths[0].as_py()) if len(lengths) else 0
    if len(lengths) and not bounds["min"].as_py() == bounds["max"].as_py() == first:
        position = int(np.flatnonzero(lengths.to_numpy() != first)[0])
        row = position // max(int(np.prod(sizes, dtype=np.int64)), 1)
        where = f" at depth {len(sizes) + 1}" if sizes else ""
        raise ValueError(
            f"column {name!r} has arrays of unequal lengths{where}: {first} values in row 0 and"
            f" {lengths[position].as_py()} in row {row} of a batch of {count}; expected one length."
            " Pad them first."
        )
    return first


def _fits(sizes: list[int], wished: list[int | None]) -> bool:
    return all(want in (None, size) for size, want in zip(sizes, wished, strict=True))
