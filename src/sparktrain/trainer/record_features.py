"""From columns to the features of tf.train.Example, and from parsed features to tensors.

A batch of records is parsed by one tf.io.parse_example; what it cannot say (lengths that are
padded, nulls that are masked) is read as rows of varying length and finished here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.data.schema import MASK_SUFFIX, TYPES, Column


def make_features(columns: Sequence[Column]) -> dict[str, Any]:
    """What parse_example has to look for, by column."""
    return {column.name: _make_feature(column) for column in columns}


def _make_feature(column: Column) -> Any:
    dtype = _feature_type(column)
    if _is_varying(column):
        # Splits as in tensors made of Arrow data: one type, whatever the source.
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    shape = _shape_of(column)
    default: Any = None
    if column.fill is not None:
        fill: Any = column.fill.encode() if isinstance(column.fill, str) else column.fill
        default = np.full(shape, fill, dtype=object).tolist()
    return tf.io.FixedLenFeature(shape, dtype, default)


def _shape_of(column: Column) -> list[int]:
    """The shape of a feature of a fixed size; bytes are one value until they are decoded."""
    return [] if column.kind == "binary" else [int(length or 0) for length in column.shape]


def _feature_type(column: Column) -> Any:
    """An Example holds bytes, 32-bit floats and 64-bit whole numbers, and nothing else."""
    dtype = TYPES[column.kind][0]
    if dtype == "string":
        return tf.string
    return tf.float32 if dtype.startswith("float") else tf.int64


def _is_varying(column: Column) -> bool:
    has_lengths = bool(column.shape) and column.kind != "binary"
    return column.is_masked or (has_lengths and (not column.is_dense or column.pad is not None))


def finish(parsed: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """The tensors of a batch as the columns declare them, masks among them."""
    found: dict[str, Any] = {}
    for column in columns:
        value = parsed[column.name]
        if column.is_masked:
            found[column.name + MASK_SUFFIX] = tf.equal(value.row_lengths(), 0)
        if isinstance(value, tf.RaggedTensor) and not (column.shape and not column.is_dense):
            value = _to_fixed(value, column)
        elif isinstance(value, tf.RaggedTensor) and column.pad is not None:
            value = value.to_tensor(tf.constant(column.pad, value.dtype))
        if column.kind == "binary" and column.shape:
            value = _decode_bytes(value, column)
        found[column.name] = value if value.dtype == column.dtype else tf.cast(value, column.dtype)
    # In the order of the columns, each mask after its column.
    order = [name for c in columns for name in (c.name, c.name + MASK_SUFFIX) if name in found]
    return {name: found[name] for name in order}


def _to_fixed(value: Any, column: Column) -> Any:
    """Rows that are empty or of the declared shape; shorter ones too if they are padded."""
    shape = _shape_of(column)
    size = math.prod(shape)
    lengths = value.row_lengths()
    if column.pad is not None:
        check = _check(lengths <= size, column, f"at most {size} values")
    else:
        is_right = tf.logical_or(lengths == size, lengths == 0)
        check = _check(is_right, column, f"{size} values, or none")
    with tf.control_dependencies([check]):
        filler = column.fill if column.pad is None else column.pad
        dense = value.to_tensor(tf.constant(filler, value.dtype), shape=[None, size])
    if column.pad is not None and column.fill is not None:
        is_null = tf.equal(lengths, 0)[:, None]
        dense = tf.where(is_null, tf.constant(column.fill, value.dtype), dense)
    return tf.reshape(dense, [-1, *shape])


def _decode_bytes(value: Any, column: Column) -> Any:
    # Checked before: bytes of two rows that are too long would become three rows.
    fits = tf.strings.length(value) == column.size
    with tf.control_dependencies([_check(fits, column, f"{column.size} bytes")]):
        return tf.reshape(tf.io.decode_raw(value, tf.uint8), [-1, *column.shape])


def _check(fits: Any, column: Column, expected: str) -> Any:
    return tf.debugging.Assert(
        tf.reduce_all(fits), [f"Feature: {column.name} has not what is expected: {expected}"]
    )
