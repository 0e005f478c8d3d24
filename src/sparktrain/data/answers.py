"""From what a function answered (arrays, tensors, lists, by name or alone) to Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

#: The column of an answer that has no name.
DEFAULT_NAME = "prediction"


class AnswerError(Exception):
    """The answers do not fit the rows."""


def make_answers(values: Any, num_rows: int) -> pa.RecordBatch:
    """The answers to so many rows, one a row; raises AnswerError."""
    named = values if isinstance(values, Mapping) else {DEFAULT_NAME: values}
    if not named:
        raise AnswerError("the function answered with an empty dict; expected a value for each row")
    arrays = {}
    for name, value in named.items():
        if not isinstance(name, str):
            raise AnswerError(f"the function answered with the name {name!r}; expected text")
        if value is None:
            raise AnswerError(f"the function answered None as {name!r} to {num_rows} rows")
        array = to_arrow(value, name)
        if len(array) != num_rows:
            raise AnswerError(
                f"the function answered {len(array)} rows as {name!r} to {num_rows} rows that it"
                " was asked; expected one answer for each row"
            )
        arrays[name] = array
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def to_arrow(value: Any, name: str) -> pa.Array:
    """One column: further dimensions become lists."""
    if hasattr(value, "to_list") and hasattr(value, "nested_row_splits"):  # tf.RaggedTensor
        value = value.to_list()
    if isinstance(value, (list, tuple)):
        try:
            return pa.array(value)
        except (pa.ArrowException, ValueError, TypeError):
            pass  # numpy scalars and arrays in a list
    try:
        found = np.asarray(value)
        if found.ndim == 0:
            raise AnswerError(
                f"the function answered the single value {value!r} as {name!r}; expected one for"
                " each row"
            )
        return _nest(found)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise AnswerError(
            f"the answer {name!r} of type {type(value).__name__} is no column: {error}"
        ) from error


def _nest(array: np.ndarray[Any, Any]) -> pa.Array:
    if array.ndim == 1:
        kind = pa.binary() if array.dtype.kind == "S" else None
        if array.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        return pa.array(array.tolist() if array.dtype.kind in "OSU" else array, type=kind)
    flat = _nest(array.reshape(-1, *array.shape[2:]))
    offsets = np.arange(0, len(flat) + 1, array.shape[1] or 1, dtype=np.int32)
    if array.shape[1] == 0:
        offsets = np.zeros(len(array) + 1, np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat)
