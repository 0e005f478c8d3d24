"""Blocks as rows of Python values, for functions that take rows one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparktrain.data.schema import Column
from sparktrain.data.views import Ragged, to_numpy

#: The columns of rows that Python pickled: some of them together, and how many.
PICKLED = pa.schema([("rows", pa.large_binary()), ("count", pa.int64())])


def to_rows(block: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[dict[str, Any]]:
    """Each row as a dict: numbers and text as they are, arrays as numpy arrays."""
    arrays = to_numpy(block, columns)
    found: dict[str, list[Any]] = {}
    for name, values in arrays.items():
        if isinstance(values, Ragged):
            found[name] = block.column(name).to_pylist()
        elif values.ndim == 1:
            found[name] = values.tolist()
        else:
            found[name] = list(values)
    names = list(found)
    for row in zip(*found.values(), strict=True):
        yield dict(zip(names, row, strict=True))
