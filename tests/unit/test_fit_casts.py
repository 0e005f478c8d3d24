"""From columns to the types of a model: what cannot be cast without a loss is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparktrain as st
from sparktrain.data.schema import Column
from sparktrain.fit_spec import CLASSIFICATION, LabelSpec, find_kind
from sparktrain.scoring.spec import TensorInfo
from sparktrain.trainer.fit_casts import cast, find_limits, find_odd
from sparktrain.trainer.fit_errors import explaining
from sparktrain.trainer.fit_inputs import InputPlan, make_input
from sparktrain.trainer.fit_labels import LabelPlan, make_label, plan_label

tf = pytest.importorskip("tensorflow")
HIGHEST = 2**31 - 1


@pytest.mark.parametrize(
    ("source", "dtype", "limits"),
    [
        ("int64", "int32", (-HIGHEST - 1, HIGHEST)),
        ("float32", "int8", (-128, 127)),
        ("float64", "uint8", (0, 255)),
        ("int8", "uint8", (0, 127)),
        ("int32", "int64", None),
        ("uint8", "int32", None),
        ("int32", "int32", None),
        ("bool", "int32", None),
        ("float64", "float32", None),
        ("int64", "float32", None),
        ("int64", "bfloat16", None),
        ("string", "string", None),
    ],
)
def test_only_casts_that_may_lose_something_are_looked_at(
    source: str, dtype: str, limits: Any
) -> None:
    assert find_limits(source, dtype) == limits


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([2.0, -3.0, float(HIGHEST)]), "int32"),
        (np.array([2.0, 127.0], "float32"), "int8"),
        (np.array([HIGHEST, -HIGHEST - 1], "int64"), "int32"),
        (np.array([0, 255], "int64"), "uint8"),
    ],
)
def test_whole_numbers_in_range_are_cast(values: Any, dtype: str) -> None:
    found = cast(tf.constant(values), dtype)
    assert found.dtype == dtype and found.numpy().tolist() == values.tolist()
    assert find_odd(values, find_limits(values.dtype.name, dtype) or (0, 0)) is None


@pytest.mark.parametrize(
    ("values", "dtype", "odd"),
    [
        (np.array([2.0, 2.7]), "int32", 2.7),
        (np.array([1.0, np.inf], "float32"), "int64", np.inf),
        (np.array([2.0**31], "float32"), "int32", 2.0**31),
        (np.array([[1, HIGHEST + 1]], "int64"), "int32", HIGHEST + 1),
        (np.array([3, -1], "int32"), "uint8", -1),
    ],
)
def test_others_are_an_error(values: Any, dtype: str, odd: float) -> None:
    dataset = tf.data.Dataset.from_tensors(values).map(lambda one: cast(one, dtype))
    with pytest.raises(tf.errors.InvalidArgumentError, match="the model cannot hold"):
        next(iter(dataset))
    assert find_odd(values, find_limits(values.dtype.name, dtype) or (0, 0)) == odd
    nan = find_odd(np.array([np.nan]), (0, 9))
    assert nan is not None and np.isnan(nan)


def test_ragged_rows_are_looked_at_too() -> None:
    rows = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    assert cast(rows, "int32").to_list() == [[1, 2], [], [3]]
    with pytest.raises(tf.errors.InvalidArgumentError):
        cast(rows + 0.5, "int32")


def make_context(table: str, column: Column, values: Any) -> Any:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    blocks = [pa.RecordBatch.from_pydict({column.name: array})]
    source = SimpleNamespace(columns=[column], blocks_here=lambda: iter(blocks))
    return SimpleNamespace(feed=SimpleNamespace(tables={table: source}))


def test_the_error_names_the_column_and_the_value() -> None:
    plan = InputPlan("ids", ("x",), (1,), "int32", False)
    column = Column("x", "long")
    row = {"x": tf.constant([1, 3_000_000_000], tf.int64)}
    context = make_context("train", column, [1, 3_000_000_000])
    with (
        pytest.raises(st.SchemaError, match=r"'x' of 'train'.* 3000000000, .*'ids' takes int32"),
        explaining(context, [plan], []),
    ):
        make_input(row, plan)


def test_labels_are_no_rows_of_zeros() -> None:
    """Of a compiled model the driver does not know the loss, so that nobody has looked."""
    plan = LabelPlan(LabelSpec("y"), "out", CLASSIFICATION, 3, False, "float32", (3,), 3, False, 3)
    found = make_label({"y": tf.constant([2.0, 0.0])}, plan)
    assert found.numpy().tolist() == [[0, 0, 1], [1, 0, 0]]
    context = make_context("validation", Column("y", "double"), [2.0, 3.0])
    for odd in (3.0, 0.5, -1.0):
        with pytest.raises(tf.errors.InvalidArgumentError):
            make_label({"y": tf.constant([2.0, odd])}, plan)
    with (
        pytest.raises(st.SchemaError, match=r"'y' of 'validation'.*label 3,.*3 classes"),
        explaining(context, [], [plan]),
    ):
        make_label({"y": tf.constant([2.0, 3.0])}, plan)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", ["integer", "float"])
def test_labels_of_two_classes_are_looked_at(dtype: str, shape: tuple[int, ...]) -> None:
    """The loss would take any number, and the driver does not know it of a compiled model."""
    column, output = Column("y", dtype, len(shape), shape), TensorInfo("o", "float32", (1,))
    plan = plan_label(LabelSpec("y"), column, output, find_kind("binary_crossentropy"), None)
    kind = "int32" if dtype == "integer" else "float32"

    def make(*labels: float) -> Any:
        return make_label({"y": tf.reshape(tf.constant(labels, kind), (-1, *shape))}, plan)

    assert make(0, 1).numpy().tolist() == [[0], [1]]
    for odd in (-1, 2, 0.5) if dtype == "float" else (-1, 2):
        array = pa.array([0, odd]).cast(getattr(pa, kind)())
        array = pa.FixedSizeListArray.from_arrays(array, 1) if shape else array
        context = make_context("train", column, array)
        wanted = rf"'y' of 'train'.*label {odd},.*'o' has 2 classes.*0 to 1; KerasRegressor"
        with pytest.raises(st.SchemaError, match=wanted), explaining(context, [], [plan]):
            make(0, odd)
    boolean = plan_label(
        LabelSpec("y"), Column("y", "boolean"), output, find_kind("binary_crossentropy"), None
    )
    assert make_label({"y": tf.constant([True, False])}, boolean).numpy().tolist() == [[1], [0]]


def test_labels_for_each_position_are_named() -> None:
    """The loss itself fails, with a text of TensorFlow that knows no columns."""
    keras = pytest.importorskip("keras")
    column, output = Column("y", "integer", 1, (2,)), TensorInfo("o", "float32", (2, 3))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plan = plan_label(LabelSpec("y"), column, output, find_kind(loss), True)
    array = pa.FixedSizeListArray.from_arrays(pa.array([0, 1, 3, 0], pa.int32()), 2)
    context = make_context("train", column, array)
    wanted = r"'y' of 'train'.*label 3,.*'o' has 3 classes. Expected whole numbers from 0 to 2\.$"
    with pytest.raises(st.SchemaError, match=wanted), explaining(context, [], [plan]):
        loss(make_label({"y": tf.constant([[0, 1], [3, 0]])}, plan), tf.zeros((2, 2, 3)))
    ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    assert plan_label(LabelSpec("y"), column, output, find_kind(ignoring), True).positions == 0
