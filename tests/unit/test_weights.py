"""Weights are looked at and replaced without copies, and no values change behind one's back."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparktrain.trainer.weights import copy, is_exact, is_free, make_room, read, replace
from sparktrain.wire.layout import Variable

SHAPES = [(64, 64), (), (3,), (0, 2), (5, 7)]


def make(dtype: str = "float32", number: float = 1.0) -> list[Any]:
    arrays = make_room([Variable(str(n), shape, dtype) for n, shape in enumerate(SHAPES)])
    for array in arrays:
        array[...] = number
    return arrays


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_room_has_the_shapes_and_no_overlap(dtype: str) -> None:
    arrays = make(dtype)
    for n, array in enumerate(arrays):
        array[...] = n
    assert [(array.shape, array.dtype.name) for array in arrays] == [(one, dtype) for one in SHAPES]
    assert not any(array.ctypes.data % 64 for array in arrays if array.size)
    assert all((array == n).all() for n, array in enumerate(arrays))
    assert make_room([]) == []


@pytest.mark.parametrize("make_variable", [keras.Variable, tf.Variable])
def test_neither_way_copies(make_variable: Any) -> None:
    variable = make_variable(np.zeros((64, 64), "float32"))
    (array,) = make()[:1]
    replace(variable, array)
    assert read(variable).ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(read(variable), array)


def test_memory_that_is_not_aligned_is_copied() -> None:
    """TensorFlow ends the process when it computes on it."""
    whole = make_room([Variable("", (65,), "float32")])[0]
    whole[...] = 1
    variable = tf.Variable(np.zeros(64, "float32"))
    replace(variable, whole[1:])
    variable.assign_add(tf.ones_like(variable))
    assert (read(variable) == 2).all()
    replace(variable, copy([whole[1:]])[0])
    assert (read(variable) == 1).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_training_leaves_what_was_given_and_what_was_read(dtype: str) -> None:
    variables = [keras.Variable(np.zeros(shape, dtype), dtype=dtype) for shape in SHAPES]
    arrays = make(dtype)
    for variable, array in zip(variables, arrays, strict=True):
        replace(variable, array)
    before = [read(variable) for variable in variables]
    for variable in variables:
        variable.value.assign_add(tf.ones_like(variable.value))
        variable.value.assign_add(tf.ones_like(variable.value))
    assert all((array == 1).all() for array in [*arrays, *before])
    assert all((read(variable) == 3).all() for variable in variables)


def test_memory_is_free_when_nobody_looks_at_it() -> None:
    variable = tf.Variable(np.zeros((64, 64), "float32"))
    arrays = make()
    assert is_free(arrays)
    replace(variable, arrays[0])
    held = tf.convert_to_tensor(variable)
    assert not is_free(arrays)
    replace(variable, make(number=2.0)[0])
    assert not is_free(arrays), "a tensor of the old values is still held"
    assert float(held[0, 0]) == 1
    del held
    assert is_free(arrays)
    assert not is_free([read(variable)]), "of TensorFlow's own memory"


def test_types_that_numpy_lacks_travel_as_floats() -> None:
    for shape in ((3,), ()):
        variable = keras.Variable(np.ones(shape), dtype="bfloat16")
        value = read(variable)
        assert value.dtype == np.float32
        assert not is_exact(variable, value)
        replace(variable, value + 1)
        np.testing.assert_array_equal(read(variable), np.full(shape, 2))


def test_a_mirrored_variable() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        variable = tf.Variable(np.zeros((64, 64), "float32"))
    replace(variable, make()[0])
    assert (read(variable) == 1).all()
