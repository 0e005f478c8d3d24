"""Columns as MLflow and pandas have them, on their way to Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.ml.pyfunc import _to_array

pd: Any = pytest.importorskip("pandas", reason="pandas is not installed")

DEEP = pa.list_(pa.list_(pa.float32()))
ROWS = [[[1.0, 2.0], [3.0, 4.0]], None, [[5.0, 6.0]]]


def nest(rows: Any) -> Any:
    """As pandas has what Spark nests: an array of arrays."""
    whole = np.empty(len(rows), object)
    whole[:] = [np.array(one, np.float32) for one in rows]
    return whole


@pytest.mark.parametrize("make", [nest, lambda rows: np.array(rows, np.float32), lambda rows: rows])
def test_nested_arrays(make: Any) -> None:
    """MLflow makes arrays of two dimensions, where it checks them against a signature."""
    cells = [None if row is None else make(row) for row in ROWS]
    found = _to_array(pd.Series(cells, dtype=object), "array")
    assert found.to_pylist() == ROWS
    assert found.cast(DEEP).type == DEEP


def test_arrays_in_arrays_in_arrays() -> None:
    cell = np.empty(2, object)
    cell[:] = [nest([[1], [2, 3]]), np.array([[4, 5]], np.float32)]
    found = _to_array(pd.Series([cell, None]), "array")
    assert found.type == pa.list_(DEEP)
    assert found.to_pylist() == [[[[1], [2, 3]], [[4, 5]]], None]


def test_what_mlflow_makes_of_nested_arrays() -> None:
    mlflow_types = pytest.importorskip("mlflow.types", reason="mlflow is not installed")
    from mlflow.models.utils import _enforce_schema
    from mlflow.types.schema import Array, ColSpec, Schema

    kind = Array(Array(mlflow_types.DataType.float))
    frame = pd.DataFrame({"img": pd.Series([nest(ROWS[0]), nest(ROWS[0])])})
    enforced = _enforce_schema(frame, Schema([ColSpec(kind, "img")]))
    found = _to_array(enforced["img"], "array")
    assert found.to_pylist() == [ROWS[0], ROWS[0]]


def test_flat_columns() -> None:
    arrays = _to_array(pd.Series([np.array([1, 2], np.int32), None]), "array")
    assert arrays.type == pa.list_(pa.int32()) and arrays.to_pylist() == [[1, 2], None]
    assert _to_array(pd.Series(["a", None]), "string").to_pylist() == ["a", None]
    texts = np.array(["a", None], object)
    assert _to_array(pd.Series([texts]), "array").to_pylist() == [["a", None]]
    days = _to_array(pd.Series(pd.to_datetime(["1970-01-02"])), "date")
    assert days.cast(pa.int32()).to_pylist() == [1]
