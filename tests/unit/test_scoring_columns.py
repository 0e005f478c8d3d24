"""Columns against a model's inputs: refused on the driver, or in the model's shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.data.arrow import make_block
from sparktrain.data.faults import BadRowError, Place
from sparktrain.data.nulls import find_nulls, has_nulls
from sparktrain.errors import ConfigError, SchemaError
from sparktrain.scoring.columns import make_feeds, plan_inputs
from sparktrain.scoring.plan import Choices
from sparktrain.scoring.spec import ModelInfo, TensorInfo


def array_of(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


VECTOR = {"type": "udt", "class": "org.apache.spark.ml.linalg.VectorUDT"}


def plan(
    kinds: dict[str, Any],
    shape: tuple[int | None, ...],
    dtype: str = "float32",
    pad: dict[str, Any] | None = None,
) -> Any:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    info = ModelInfo((TensorInfo("in", dtype, shape),), ())
    return plan_inputs(fields, info, {"in": list(kinds)}, pad=pad)


def feed(kinds: dict[str, Any], rows: dict[str, pa.Array], *rest: Any, **named: Any) -> Any:
    found = plan(kinds, *rest, **named)
    block = make_block(pa.RecordBatch.from_pydict(rows), found.columns, Place("t", 0, 0))
    return make_feeds(block, found)["in"]


def test_a_flat_array_takes_the_models_shape_and_type() -> None:
    rows = {"p": pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])}
    found = feed({"p": array_of("double")}, rows, (2, 2, 1))
    assert found.shape == (2, 2, 2, 1)
    assert found.dtype == np.float32
    assert found[1, 1, 0, 0] == 7


def test_nested_arrays_keep_theirs() -> None:
    rows = {"p": pa.array([[[1.0, 2], [3, 4]]])}
    assert feed({"p": array_of(array_of("float"))}, rows, (2, 2)).tolist() == [[[1, 2], [3, 4]]]


def test_columns_are_joined_in_order() -> None:
    kinds = {"a": "integer", "b": array_of("double"), "c": "boolean"}
    rows = {"a": pa.array([1, 2]), "b": pa.array([[3.0, 4], [5, 6]]), "c": pa.array([True, False])}
    found = feed(kinds, rows, (4,))
    assert found.tolist() == [[1, 3, 4, 1], [2, 5, 6, 0]]
    assert found.dtype == np.float32


def test_a_single_value_may_be_an_array_of_one() -> None:
    assert feed({"a": "double"}, {"a": pa.array([1.0, 2.0])}, (1,)).tolist() == [[1], [2]]
    assert feed({"a": "string"}, {"a": pa.array(["x"])}, (), "string").tolist() == [b"x"]


def test_bytes_are_pixels() -> None:
    found = feed({"p": "binary"}, {"p": pa.array([b"\0\1\2\xff"])}, (2, 2))
    assert found.tolist() == [[[0, 1], [2, 255]]]
    assert found.dtype == np.float32


def test_varying_lengths_are_padded_where_asked() -> None:
    kinds = {"w": array_of("integer")}
    rows = {"w": pa.array([[1, 2, 3], [4], []], pa.list_(pa.int32()))}
    padded = feed(kinds, rows, (None,), "int32", pad={"w": 9})
    assert padded.tolist() == [[1, 2, 3], [4, 9, 9], [9, 9, 9]]
    with pytest.raises(BadRowError, match=r"rows of 0 and of 3 values in one batch. Give pad="):
        feed(kinds, rows, (None,), "int32")
    even = {"w": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32()))}
    assert feed(kinds, even, (None,), "int32").tolist() == [[1, 2], [3, 4]]


def test_nested_lengths_are_padded_at_every_level() -> None:
    kinds = {"w": array_of(array_of("integer"))}
    rows = {"w": pa.array([[[1], [2, 3]], [[4]]], pa.list_(pa.list_(pa.int32())))}
    padded = feed(kinds, rows, (None, None), "int32", pad={"w": 0})
    assert padded.tolist() == [[[1, 0], [2, 3]], [[4, 0], [0, 0]]]


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "words"),
    [
        ("string", (4,), "float32", "its values are string"),
        ("double", (), "string", "its values are float64"),
        ("double", (4,), "float32", "the column holds single values"),
        (array_of("double"), (None, 3), "float32", "one array for each dimension"),
        ("binary", (None, 3), "float32", "known as a whole"),
        ("map", (3,), "float32", "has no tensor"),
    ],
)
def test_what_cannot_be_is_refused(kind: Any, shape: Any, dtype: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        plan({"bad": kind}, shape, dtype)
    assert "'bad'" in str(caught.value)


def test_a_wrong_number_of_values_names_the_row() -> None:
    with pytest.raises(BadRowError, match=r"'p'.* has 3 values where 4 are expected, in row 1"):
        feed({"p": array_of("double")}, {"p": pa.array([[1.0, 2, 3, 4], [1, 2, 3]])}, (4,))
    with pytest.raises(
        BadRowError, match=r"columns a, b have 2 values a row where .* takes \(3,\)"
    ):
        rows = {"a": pa.array([1.0]), "b": pa.array([1.0])}
        feed({"a": "double", "b": "double"}, rows, (3,))


def test_one_column_may_feed_two_inputs_of_one_shape() -> None:
    fields = [{"name": "a", "type": array_of("double")}]
    same = ModelInfo((TensorInfo("x", "float32", (2,)), TensorInfo("y", "float64", (2,))), ())
    assert len(plan_inputs(fields, same, {"x": ["a"], "y": ["a"]}).columns) == 1
    other = ModelInfo((TensorInfo("x", "float32", (2,)), TensorInfo("y", "float32", (3,))), ())
    with pytest.raises(SchemaError, match="two inputs"):
        plan_inputs(fields, other, {"x": ["a"], "y": ["a"]})


def test_a_vector_is_a_flat_array() -> None:
    found = plan({"v": VECTOR}, (3,))
    assert (found.columns[0].kind, found.columns[0].shape) == ("float", (3,))


def test_numbers_that_the_model_cannot_hold_are_refused() -> None:
    assert feed({"a": "double"}, {"a": pa.array([1.0, 2.0])}, (1,), "int32").tolist() == [[1], [2]]
    with pytest.raises(BadRowError, match=r"columns a have values from 1.0 to 2.5"):
        feed({"a": "double"}, {"a": pa.array([1.0, 2.5])}, (1,), "int32")
    with pytest.raises(BadRowError, match=r"takes int32: whole numbers from -2147483648"):
        feed({"a": "long"}, {"a": pa.array([2**32 + 5])}, (), "int32")
    with pytest.raises(BadRowError, match="columns a have values"):
        feed({"a": "double"}, {"a": pa.array([float("nan")])}, (), "int64")


@pytest.mark.parametrize(
    ("source", "spark", "dtype"),
    [
        (pa.float32(), "float", "int32"),
        (pa.float64(), "double", "int32"),
        (pa.float32(), "float", "int64"),
        (pa.float64(), "double", "int64"),
        (pa.float64(), "double", "uint8"),
    ],
)
def test_floats_at_the_limits_of_whole_numbers(source: Any, spark: str, dtype: str) -> None:
    """The highest number of a type may be none of the floats: the next one is not cut."""
    limits = np.iinfo(dtype)
    above = float(limits.max + 1)
    last = np.nextafter(above, 0, dtype=source.to_pandas_dtype()).item()
    last = last if last.is_integer() else float(limits.max)
    rows = {"a": pa.array([float(limits.min), last], source)}
    found = feed({"a": spark}, rows, (), dtype)
    assert found.dtype == dtype and found.tolist() == [limits.min, int(last)]
    for odd in (above, np.nextafter(float(limits.min) - 1, -np.inf).item() * 2):
        with pytest.raises(BadRowError, match=f"takes {dtype}: whole numbers from"):
            feed({"a": spark}, {"a": pa.array([odd], source)}, (), dtype)


def test_whole_numbers_at_their_limits() -> None:
    rows = {"a": pa.array([-(2**31), 2**31 - 1])}
    assert feed({"a": "long"}, rows, (), "int32").tolist() == [-(2**31), 2**31 - 1]
    for odd in (2**31, -(2**31) - 1):
        with pytest.raises(BadRowError, match=rf"values from {odd} to {odd}, where"):
            feed({"a": "long"}, {"a": pa.array([odd])}, (), "int32")


def test_ragged_values_that_the_model_cannot_hold_are_refused() -> None:
    fields = [{"name": "w", "type": array_of("long")}]
    info = ModelInfo((TensorInfo("in", "int32", (None,), is_ragged=True),), ())
    found = plan_inputs(fields, info, {"in": ["w"]})
    for values, is_good in (([[1], [2**31 - 1, 3]], True), ([[1], [2**31, 3]], False)):
        block = make_block(
            pa.RecordBatch.from_pydict({"w": pa.array(values)}), found.columns, Place("t", 0, 0)
        )
        if is_good:
            assert make_feeds(block, found)["in"].to_list() == values
            continue
        with pytest.raises(BadRowError, match=r"columns w have values from 1 to 2147483648"):
            make_feeds(block, found)


def test_what_trains_is_scored_in_the_same_shapes() -> None:
    """Joined scalars for a convolution, one value for (1, 1), pictures for a flat input."""
    two = {"a": pa.array([1.0, 2.0]), "b": pa.array([3.0, 4.0])}
    assert feed({"a": "double", "b": "double"}, two, (2, 1)).tolist() == [[[1], [3]], [[2], [4]]]
    assert feed({"a": "double"}, {"a": pa.array([1.0])}, (1, 1)).tolist() == [[[1]]]
    nested = {"p": pa.array([[[1.0, 2], [3, 4]]])}
    assert feed({"p": array_of(array_of("double"))}, nested, (4,)).tolist() == [[1, 2, 3, 4]]
    rows = {"p": nested["p"], "q": pa.array([[[5.0], [6.0]]])}
    kinds = {name: array_of(array_of("double")) for name in rows}
    assert feed(kinds, rows, (2, 3)).tolist() == [[[1, 2, 5], [3, 4, 6]]]
    words = {"a": pa.array(["x"]), "b": pa.array(["y"])}
    assert feed({"a": "string", "b": "string"}, words, (2,), "string").tolist() == [[b"x", b"y"]]
    odd = {"p": pa.array([[1.0, 2.0]]), "q": nested["p"]}
    with pytest.raises(BadRowError, match="cannot be joined"):
        feed({"p": array_of("double"), "q": array_of(array_of("double"))}, odd, (6,))


def test_a_declared_length_holds_where_the_model_leaves_it_open() -> None:
    fields = [{"name": "w", "type": array_of("integer")}]
    info = ModelInfo((TensorInfo("in", "int32", (None,)),), ())
    for shapes, length in (({"w": [4]}, 4), (None, 2)):
        found = plan_inputs(fields, info, {"in": ["w"]}, pad={"w": 0}, shapes=shapes)
        rows = pa.RecordBatch.from_pydict({"w": pa.array([[1], [2, 3]], pa.list_(pa.int32()))})
        block = make_block(rows, found.columns, Place("t", 0, 0))
        assert make_feeds(block, found)["in"].shape == (2, length)


def test_advice_of_scoring_is_about_what_scoring_takes() -> None:
    columns = plan({"p": array_of("double")}, (2,)).columns
    where = Place("predict", 0, 0, is_scored=True)
    with pytest.raises(BadRowError, match="padded by pad=") as caught:
        make_block(pa.RecordBatch.from_pydict({"p": pa.array([[1.0]])}), columns, where)
    assert "shapes=" not in str(caught.value)
    with pytest.raises(BadRowError, match=r"fill=.*nulls='null'") as caught:
        make_block(pa.RecordBatch.from_pydict({"p": pa.array([[1.0, None]])}), columns, where)
    assert "mask=" not in str(caught.value)
    padded = plan({"p": array_of("double")}, (2,), pad={"p": 0}).columns
    with pytest.raises(BadRowError, match=r"at most 2 are expected, in row 0.*Use slice"):
        make_block(pa.RecordBatch.from_pydict({"p": pa.array([[1.0, 2, 3]])}), padded, where)


def test_a_row_with_a_null_inside_is_a_null_row() -> None:
    rows: list[Any] = [[[1, 2], [3]], None, [[None], []], [], [None, [4]], [[5]]]
    array = pa.array(rows, pa.list_(pa.list_(pa.int32())))
    assert find_nulls(array).tolist() == [False, True, True, False, True, False]
    assert find_nulls(array.slice(3)).tolist() == [False, True, False]
    assert find_nulls(pa.array([1, None])).tolist() == [False, True]
    assert has_nulls(array) and has_nulls(pa.array([[None, 1]]))
    assert not has_nulls(array.slice(5)) and not has_nulls(pa.array([[1]]))


def test_batch_sizes_may_come_from_numpy() -> None:
    assert type(Choices(batch_size=np.int64(7)).batch_size) is int
    with pytest.raises(ConfigError, match=r"batch_size=.*0"):
        Choices(batch_size=np.int64(0))
