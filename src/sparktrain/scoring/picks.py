"""From a model's outputs to columns: their types, known before any job, and their values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.answers import to_arrow
from sparktrain.errors import ConfigError, ScoringError
from sparktrain.scoring.spec import (
    ARGMAX,
    AS_IS,
    CLASS,
    FIRST,
    PROBABILITIES,
    TOP_K,
    VALUE,
    Pick,
    TensorInfo,
)

#: What Spark has for what TensorFlow has; types that Spark lacks become the next larger one.
_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.int64(),
    "float16": pa.float32(),
    "bfloat16": pa.float32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
}


def find_type(pick: Pick, tensor: TensorInfo) -> pa.DataType:
    """The type of the column; raises ConfigError for what cannot be made of the output."""
    kind = _TYPES.get(tensor.dtype)
    if kind is None:
        raise _refuse(pick, tensor, "Spark has no such type", f"one of {', '.join(_TYPES)}")
    if pick.how == AS_IS:
        for _ in tensor.shape:
            kind = pa.list_(kind)
        return kind
    if pick.how == VALUE:
        if tensor.is_ragged or any(size != 1 for size in tensor.shape):
            raise _refuse(pick, tensor, _ONE_VALUE, "an output of one value")
        return kind
    if tensor.dtype == "string" or tensor.is_ragged or len(tensor.shape) > 1:
        raise _refuse(pick, tensor, "that is made of numbers in a row", "a flat output of numbers")
    width = tensor.shape[0] if tensor.shape else 1
    misfit = None if width is None else _find_misfit(pick, width)
    if misfit is not None:
        raise _refuse(pick, tensor, *misfit)
    if pick.how in (FIRST, ARGMAX):
        return pa.float64()
    if pick.how == PROBABILITIES:
        return pa.list_(pa.float32())
    names = _class_type(pick)
    if pick.how == CLASS:
        return names
    if pick.how == TOP_K:
        return pa.list_(pa.struct([("class", names), ("score", pa.float32())]))
    raise ValueError(pick.how)


_ONE_VALUE = "that is made of one value"


def _find_misfit(pick: Pick, width: int) -> tuple[str, str] | None:
    """Why the column cannot be made of so many values a row, and what was expected."""
    if pick.how in (FIRST, VALUE):
        return None if width == 1 else (_ONE_VALUE, "an output of one value")
    if width < 1:
        return "there is no score", "at least one"
    # One value is the probability of the second of two classes.
    num_classes = 2 if width == 1 else width
    if pick.classes and len(pick.classes) != num_classes:
        return f"classes names {len(pick.classes)}", f"a name for each of {num_classes} classes"
    if pick.how == TOP_K and not 1 <= pick.k <= num_classes:
        return f"k is {pick.k}", f"1 to {num_classes}"
    return None


def _class_type(pick: Pick) -> pa.DataType:
    return pa.array(list(pick.classes)).type if pick.classes else pa.int32()


def _refuse(pick: Pick, tensor: TensorInfo, problem: str, expected: str) -> ConfigError:
    return ConfigError(
        problem=f"The column {pick.column!r} is to be made ({pick.how}) of the output"
        f" {tensor.name!r}, {tensor.dtype} of shape {tensor.shape}: {problem}.",
        advice=f"Expected {expected}.",
    )


def make_column(pick: Pick, value: Any) -> pa.Array:
    """The column of some rows of an output; its type is that of find_type, or can be cast to it."""
    if pick.how == AS_IS:
        return value if isinstance(value, pa.Array) else to_arrow(_widen(value), pick.column)
    if isinstance(value, pa.Array):
        return _make_by_width(pick, value)
    scores = np.asarray(value)
    scores = scores.reshape(len(scores), math.prod(scores.shape[1:]))
    misfit = _find_misfit(pick, scores.shape[1])
    if misfit is not None:
        raise ScoringError(
            problem=f"The output {pick.output!r} has {scores.shape[1]} values a row, of which the"
            f" column {pick.column!r} is to be made ({pick.how}): {misfit[0]}.",
            advice=f"Expected {misfit[1]}.",
        )
    if pick.how == VALUE:
        return to_arrow(_widen(scores[:, 0]), pick.column)
    if pick.how == FIRST:
        return pa.array(scores[:, 0].astype(np.float64))
    if pick.how in (PROBABILITIES, TOP_K):
        scores = to_probabilities(scores, pick.is_logits)
        if pick.how == PROBABILITIES:
            return to_arrow(scores, pick.column)
        return _top_k(pick, scores)
    best = find_best(scores, pick.is_logits)
    # What is not a number is no score: there is no best class among such.
    is_nan = (scores != scores).any(axis=1)
    if pick.how == ARGMAX:
        return pa.array(best.astype(np.float64), mask=is_nan)
    return _name(pick, best, is_nan)


def _make_by_width(pick: Pick, rows: pa.Array) -> pa.Array:
    """Of lists: how many scores a row has was another number from batch to batch."""
    if not len(rows):
        return pa.nulls(0)
    widths = rows.value_lengths().to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist()]
    pieces = []
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        flat = rows.slice(start, stop - start).flatten().to_numpy(zero_copy_only=False)
        pieces.append(make_column(pick, flat.reshape(stop - start, widths[start])))
    return pa.concat_arrays(pieces)


def find_best(scores: np.ndarray[Any, Any], is_logits: bool) -> np.ndarray[Any, Any]:
    best: np.ndarray[Any, Any] = scores.argmax(axis=1)
    if scores.shape[1] > 1:
        return best
    return (scores[:, 0] >= (0.0 if is_logits else 0.5)).astype(np.int64)


def to_probabilities(scores: np.ndarray[Any, Any], is_logits: bool) -> np.ndarray[Any, Any]:
    """For each class one; a single score is that of the second of two classes."""
    scores = scores.astype(np.float32, copy=False)
    if scores.shape[1] == 1:
        if is_logits:
            # As tanh: exp of a large number would overflow.
            scores = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return np.concatenate([1.0 - scores, scores], axis=1)
    if is_logits:
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _top_k(pick: Pick, scores: np.ndarray[Any, Any]) -> pa.Array:
    places = np.argsort(-scores, axis=1, kind="stable")
    rows = np.arange(len(scores))
    order = places[:, : pick.k]
    best = scores[rows[:, np.newaxis], order]
    # What is not a number is behind all that are.
    last = scores[rows, places[:, -1]]
    is_nan = last != last
    structs = pa.StructArray.from_arrays(
        [_name(pick, order.ravel()), pa.array(best.ravel())], names=["class", "score"]
    )
    offsets = np.arange(0, len(structs) + 1, pick.k, dtype=np.int32)
    mask = pa.array(is_nan) if is_nan.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), structs, mask=mask)


def _name(pick: Pick, positions: np.ndarray[Any, Any], is_none: Any = None) -> pa.Array:
    if not pick.classes:
        return pa.array(positions.astype(np.int32), mask=is_none)
    return pa.array(list(pick.classes)).take(pa.array(positions, mask=is_none))


def _widen(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.name in ("float16", "bfloat16"):
        return value.astype(np.float32)
    return value
