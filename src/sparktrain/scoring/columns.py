"""Which columns feed which input of a model, checked before any job; and the arrays they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.aligned import align
from sparktrain.data.faults import BadRowError
from sparktrain.data.schema import UNKNOWN, Column, Wishes, make_columns
from sparktrain.data.views import Ragged, to_numpy
from sparktrain.errors import SchemaError
from sparktrain.scoring.spec import ModelInfo, TensorInfo

TABLE = "predict"


@dataclass(frozen=True)
class InputPlan:
    """How rows become the inputs of a model.

    Attributes:
        columns: What is read of the rows.
        feeds: For each input the names of its columns.
    """

    columns: tuple[Column, ...]
    feeds: tuple[tuple[TensorInfo, tuple[str, ...]], ...]


def plan_inputs(
    fields: Sequence[Mapping[str, Any]],
    info: ModelInfo,
    feeds: Mapping[str, Sequence[str]],
    fill: Mapping[str, Any] | None = None,
    pad: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> InputPlan:
    """Checks columns against what the model takes; raises SchemaError.

    Args:
        fields: Of Spark's schema, as JSON.
        feeds: The columns of each input of the model; several are joined.
        shapes: Of columns, as declared for training, where the model leaves lengths open.
    """
    names = list(dict.fromkeys(name for columns in feeds.values() for name in columns))
    declared = {name: shape for name, shape in (shapes or {}).items() if name in names}
    wishes = Wishes(columns=names, fill=fill, pad=pad, shapes=declared)
    found = {column.name: column for column in make_columns(TABLE, fields, wishes)}
    fitted: dict[str, Column] = {}
    chosen = []
    for info_in in info.inputs:
        columns = tuple(feeds[info_in.name])
        for name in columns:
            column = _fit(found[name], info_in, is_joined=len(columns) > 1)
            if fitted.setdefault(name, column) != column:
                raise _refuse(
                    name,
                    f"It feeds two inputs of the model in different shapes, {column.shape} and"
                    f" {fitted[name].shape}.",
                    "Give each input a column of its own.",
                )
        chosen.append((info_in, columns))
    return InputPlan(tuple(fitted.values()), tuple(chosen))


def _fit(column: Column, wanted: TensorInfo, is_joined: bool) -> Column:
    """The column in the shape that the model takes, if it can have it."""
    shape = wanted.shape
    if column.kind == "vector":
        # Made dense before it is looked at: an array like others.
        column = replace(column, kind="float", depth=1)
    if column.kind == "binary" and column.depth == 0 and wanted.dtype != "string":
        if is_joined or None in shape or not shape:
            raise _misfit(column, wanted, "bytes need a shape that is known as a whole")
        return replace(column, shape=shape)
    _check_dtype(column, wanted)
    is_known = None not in shape and not wanted.is_ragged
    if is_joined:
        if column.kind == "image":
            raise _misfit(column, wanted, "images are not joined")
        return replace(column, shape=(None,) * column.depth)
    if column.kind == "image":
        if not is_known or len(shape) != 3:
            raise _misfit(column, wanted, "images need a height, a width and channels")
        return replace(column, shape=shape)
    if column.depth == 0:
        if not is_known or math.prod(size or 0 for size in shape) != 1:
            raise _misfit(column, wanted, "the column holds single values")
        return replace(column, shape=())
    if is_known and column.depth <= len(shape):
        return replace(column, shape=shape)
    if is_known:
        # Deeper than the model has it: joined into one if the number of values is right.
        return replace(column, shape=(None,) * column.depth)
    if column.depth != len(shape):
        raise _misfit(column, wanted, "lengths that vary need one array for each dimension")
    # A length that was declared for training is that of scoring as well.
    return column if _fits(column.shape, shape) else replace(column, shape=shape)


def _fits(declared: tuple[int | None, ...], shape: tuple[int | None, ...]) -> bool:
    pairs = list(zip(declared, shape, strict=False))
    is_declared = len(declared) == len(shape) and UNKNOWN not in declared
    return is_declared and all(theirs in (None, own) for own, theirs in pairs)


def _check_dtype(column: Column, wanted: TensorInfo) -> None:
    own = column.dtype
    is_text, takes_text = own == "string", wanted.dtype == "string"
    if is_text != takes_text:
        raise _misfit(column, wanted, f"its values are {own}")


def _misfit(column: Column, wanted: TensorInfo, why: str) -> SchemaError:
    nested = f", arrays nested {column.depth} deep" if column.depth else ""
    return _refuse(
        column.name,
        f"It is {column.kind}{nested}, but the model's input {wanted.name!r} takes {wanted.dtype}"
        f" of shape {wanted.shape}: {why}.",
        "Name another column in inputs={...}, or cast or reshape it in Spark first.",
    )


def _refuse(column: str, problem: str, advice: str) -> SchemaError:
    return SchemaError(table=TABLE, column=column, problem=problem, advice=advice)


def make_feeds(block: pa.RecordBatch, plan: InputPlan) -> dict[str, Any]:
    """The inputs of the model for the rows of a block; raises BadRowError."""
    arrays = to_numpy(block, plan.columns)
    by_name = {column.name: column for column in plan.columns}
    found = {}
    for wanted, names in plan.feeds:
        parts = [_dense(arrays[name], by_name[name], wanted) for name in names]
        if wanted.is_ragged:
            found[wanted.name] = parts[0]
            continue
        array = parts[0] if len(parts) == 1 else _join(parts, names)
        found[wanted.name] = _shape(array, wanted, names)
    return found


def _join(parts: list[Any], names: Sequence[str]) -> Any:
    """Side by side, along the last axis, as in training."""
    deep = [part[:, np.newaxis] if part.ndim == 1 else part for part in parts]
    try:
        return np.concatenate(deep, axis=-1)
    except ValueError as error:
        shapes = ", ".join(
            f"{name} {part.shape[1:]}" for name, part in zip(names, parts, strict=True)
        )
        raise BadRowError(f"columns cannot be joined along the last axis: {shapes}") from error


def _shape(array: Any, wanted: TensorInfo, names: Sequence[str]) -> Any:
    shape = (len(array), *wanted.shape)
    if None not in wanted.shape and array.shape != shape:
        if array[:1].size != math.prod(size or 0 for size in wanted.shape):
            raise BadRowError(
                f"columns {', '.join(names)} have {array[:1].size} values a row where the model's"
                f" input {wanted.name!r} takes {wanted.shape}"
            )
        array = array.reshape(shape)
    return _cast(array, wanted, names)


def _cast(array: Any, wanted: TensorInfo, names: Sequence[str]) -> Any:
    """In the model's type; a number that it cannot hold is refused, not cut."""
    kind = _numpy_type(wanted.dtype)
    if array.dtype == kind or kind.kind == "O":
        return array
    if kind.kind in "iu" and array.size and array.dtype.kind in "iuf":
        limits = np.iinfo(kind)
        low, high = array.min().item(), array.max().item()
        is_float = array.dtype.kind == "f"
        # Below the next one: a float may not have the highest itself.
        is_high = high >= float(limits.max + 1) if is_float else high > limits.max
        is_odd = is_float and not np.array_equal(array, np.floor(array))
        if is_odd or is_high or low < limits.min:
            raise BadRowError(
                f"columns {', '.join(names)} have values from {low} to {high}, where"
                f" the model's input {wanted.name!r} takes {wanted.dtype}: whole numbers from"
                f" {limits.min} to {limits.max}"
            )
    return align(array, kind)


def _numpy_type(dtype: str) -> Any:
    # TensorFlow makes bfloat16 of float32, which numpy does not have; strings are objects.
    return np.dtype({"bfloat16": "float32", "string": "object"}.get(dtype, dtype))


def _dense(value: Any, column: Column, wanted: TensorInfo) -> Any:
    if not isinstance(value, Ragged):
        return value
    if wanted.is_ragged:
        import tensorflow as tf

        values = _cast(value.values, wanted, [column.name])
        return tf.RaggedTensor.from_nested_row_splits(values, value.splits, validate=False)
    return densify(value, column)


def densify(ragged: Ragged, column: Column) -> np.ndarray[Any, Any]:
    """One array of rows whose lengths vary: padded, or equal after all; raises BadRowError."""
    num_rows = len(ragged.splits[0]) - 1
    positions = np.arange(num_rows)
    sizes = []
    is_even = True
    for level, splits in enumerate(ragged.splits):
        lengths = np.diff(splits)
        longest = int(lengths.max()) if len(lengths) else 0
        declared = column.shape[level]
        size = declared if declared is not None and column.pad is not None else longest
        if len(lengths) and int(lengths.min()) != size:
            if column.pad is None:
                raise BadRowError(
                    f"column {column.name!r} has rows of {int(lengths.min())} and of {longest}"
                    f" values in one batch. Give pad={{{column.name!r}: 0}} to pad them, or"
                    " batch_size=1"
                )
            is_even = False
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = np.repeat(positions * size, lengths) + within
        sizes.append(size)
    if is_even:
        return ragged.values.reshape(num_rows, *sizes)
    whole = np.full(num_rows * int(np.prod(sizes)), column.pad, ragged.values.dtype)
    whole[positions] = ragged.values
    return whole.reshape(num_rows, *sizes)
