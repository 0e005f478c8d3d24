"""Which columns make which input of a model, and how a batch of rows becomes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparktrain.data.schema import Column
from sparktrain.errors import ConfigError, SchemaError
from sparktrain.fit_spec import TRAIN, DataSpec
from sparktrain.scoring.spec import TensorInfo
from sparktrain.trainer.fit_casts import cast

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class InputPlan:
    """How one input is made.

    Attributes:
        name: The model's name of it.
        shape, dtype: What the model takes, without the batch.
        is_plain: Whether the one column is that already.
    """

    name: str
    columns: tuple[str, ...]
    shape: Shape
    dtype: str
    is_plain: bool


def plan_inputs(
    data: DataSpec, columns: Mapping[str, Column], inputs: Sequence[TensorInfo]
) -> tuple[InputPlan, ...]:
    """Gives each input of the model its columns; raises SchemaError for what does not fit."""
    chosen = choose_columns(data, [one.name for one in inputs])
    plans = []
    for info, names in zip(inputs, chosen, strict=True):
        found = [columns[name] for name in names]
        shape = join_shapes(found)
        if not _can_be(shape, info.shape):
            raise SchemaError(
                table=TRAIN,
                column=", ".join(names),
                problem=f"A row has the shape {shape}, but the model's input {info.name!r} takes"
                f" {info.shape}.",
                advice="Give the model an input of that shape, choose other columns, or declare"
                " shapes={...}.",
            )
        if (dtype_of(found) == "string") != (info.dtype == "string"):
            raise SchemaError(
                table=TRAIN,
                column=", ".join(names),
                problem=f"Its tensor is of {dtype_of(found)}, but the model's input {info.name!r}"
                f" takes {info.dtype}.",
                advice="Turn words into numbers first (StringIndexer), or give the model an"
                " input of strings.",
            )
        is_plain = len(found) == 1 and dtype_of(found) == info.dtype and _fits(shape, info.shape)
        plans.append(InputPlan(info.name, tuple(names), info.shape, info.dtype, is_plain))
    return tuple(plans)


def guess_inputs(data: DataSpec, columns: Mapping[str, Column]) -> tuple[TensorInfo, ...]:
    """What a model takes that does not know it yet: what it is given."""
    feeds = data.feeds or {"inputs": data.columns}
    found = []
    for name, names in feeds.items():
        parts = [columns[one] for one in names]
        dtype = dtype_of(parts)
        if len(parts) > 1 or dtype == "float64" or dtype == "bool":
            dtype = dtype if dtype == "string" else "float32"
        found.append(TensorInfo(name, dtype, join_shapes(parts) or (1,)))
    return tuple(found)


def choose_columns(data: DataSpec, inputs: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns of each input: as named by the user, else by equal names, else by order."""
    if data.feeds is not None:
        if len(inputs) == 1 and len(data.feeds) == 1:
            return list(data.feeds.values())  # there is no other it could be
        unknown = sorted(set(data.feeds) - set(inputs))
        missing = sorted(set(inputs) - set(data.feeds))
        if unknown or missing:
            raise ConfigError(
                problem=f"featureCols names the inputs {', '.join(data.feeds)}, but the model has"
                f" {', '.join(inputs)}.",
                advice="Name every input of the model once.",
            )
        return [tuple(data.feeds[name]) for name in inputs]
    if len(inputs) == 1:
        return [data.columns]
    if set(inputs) == set(data.columns):
        return [(name,) for name in inputs]
    if len(inputs) == len(data.columns):
        return [(name,) for name in data.columns]
    raise ConfigError(
        problem=f"featureCols has {len(data.columns)} columns ({', '.join(data.columns)}), but"
        f" the model has {len(inputs)} inputs ({', '.join(inputs)}).",
        advice="Say which columns make which input: featureCols={'input': ['a', 'b'], ...}.",
    )


def join_shapes(columns: Sequence[Column]) -> Shape:
    """The shape of a row of several columns side by side, along the last axis."""
    if len(columns) == 1:
        return columns[0].shape
    shapes = [column.shape or (1,) for column in columns]
    first = shapes[0]
    for column, shape in zip(columns, shapes, strict=True):
        if shape[:-1] != first[:-1] or shape[-1] is None:
            raise SchemaError(
                table=TRAIN,
                column=column.name,
                problem=f"Its shape {column.shape} cannot be joined with {columns[0].shape} of"
                f" {columns[0].name!r} along the last axis.",
                advice="Expected the same shape but for the last length, or one input of the"
                " model for each column.",
            )
    return (*first[:-1], sum(shape[-1] or 0 for shape in shapes))


def dtype_of(columns: Sequence[Column]) -> str:
    kinds = {column.dtype for column in columns}
    if len(kinds) == 1:
        return kinds.pop()
    if "string" in kinds:
        odd = next(column for column in columns if column.dtype == "string")
        raise SchemaError(
            table=TRAIN,
            column=odd.name,
            problem="Words cannot be joined with numbers.",
            advice="Turn them into numbers first (StringIndexer), or give them an input of"
            " their own.",
        )
    return "float32"


def _fits(shape: Shape, wished: Shape) -> bool:
    """Whether a row can be given as it is."""
    return len(shape) == len(wished) and all(
        b is None or a is None or a == b for a, b in zip(shape, wished, strict=True)
    )


def _can_be(shape: Shape, wished: Shape) -> bool:
    if _fits(shape, wished):
        return True
    if None in shape or None in wished:
        return False
    return math.prod(size or 0 for size in shape) == math.prod(size or 0 for size in wished)


def make_input(row: Mapping[str, Any], plan: InputPlan) -> Any:
    """One input of a batch of columns."""
    import tensorflow as tf

    if plan.is_plain:
        return row[plan.columns[0]]
    parts = [cast(row[name], plan.dtype) for name in plan.columns]
    if len(parts) > 1:
        parts = [part[:, tf.newaxis] if part.shape.rank == 1 else part for part in parts]
        parts = [tf.concat(parts, axis=-1)]
    return reshape(parts[0], plan.shape)


def reshape(tensor: Any, shape: Shape) -> Any:
    """Rows in that shape; as they are if only lengths are left open."""
    import tensorflow as tf

    if isinstance(tensor, tf.RaggedTensor) or _fits(tuple(tensor.shape[1:]), shape):
        return tensor
    return tf.reshape(tensor, (-1, *(size or 1 for size in shape)))
