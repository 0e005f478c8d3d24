"""From stored blocks to numpy: arrays that look at the buffers of a block, nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.schema import MASK_SUFFIX, Column


@dataclass(frozen=True)
class Ragged:
    """Rows of varying lengths: the values, and the splits of each level from the outside in."""

    values: np.ndarray[Any, Any]
    splits: tuple[np.ndarray[Any, Any], ...]


def to_numpy(block: pa.RecordBatch, columns: Sequence[Column]) -> dict[str, Any]:
    """The columns of a block by name: arrays that look at its buffers, or Ragged."""
    found: dict[str, Any] = {}
    for name, values, column in _iterate(block, columns):
        if column is None:
            found[name] = values.to_numpy().view(np.bool_)
        elif column.shape and column.is_dense:
            flat = _view(values.flatten(), column.dtype)
            found[name] = flat.reshape(len(values), *column.shape)
        elif column.shape:
            splits = []
            while pa.types.is_large_list(values.type):
                offsets = values.offsets.to_numpy()
                splits.append(offsets - offsets[0])
                values = values.flatten()
            found[name] = Ragged(_view(values, column.dtype), tuple(splits))
        else:
            found[name] = _view(values, column.dtype)
    return found


def _iterate(
    block: pa.RecordBatch, columns: Sequence[Column]
) -> Iterator[tuple[str, pa.Array, Column | None]]:
    for column in columns:
        yield column.name, block.column(column.name), column
        if column.is_masked:
            name = column.name + MASK_SUFFIX
            yield name, block.column(name), None


def _view(array: pa.Array, dtype: str) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=dtype != "string")
    return values.view(np.bool_) if dtype == "bool" else values
