"""Types that are wished for answers: refused before any job, if the output has no such values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.driver.score_types import fit_type
from sparktrain.errors import ConfigError
from sparktrain.inference import argmax, top_k
from sparktrain.scoring.flow import Answered
from sparktrain.scoring.plan import Answers
from sparktrain.scoring.spec import Pick, TensorInfo
from sparktrain.scoring.typed import make_columns

ONE = TensorInfo("o", "float32", (1,))
FLAT = TensorInfo("o", "float32", (3,))
OPEN = TensorInfo("o", "float32", (None,))
RAGGED = TensorInfo("o", "float32", (None,), is_ragged=True)
GRID = TensorInfo("o", "float32", (2, 2))
AS_IT_IS = Pick("o", "c")


def make(tensor: TensorInfo, wished: Any, values: Any) -> pa.Array:
    pick, kind = fit_type(AS_IT_IS, tensor, wished)
    answers = Answers((pick,), (kind,))
    (found,) = make_columns(answers, Answered(len(values), {"o": values}), len(values))
    assert found.type == (wished or found.type)
    return found


def test_the_one_value_of_a_row_is_a_plain_one_where_wished() -> None:
    values = np.array([[1.5], [2.5]], "float32")
    assert make(ONE, pa.float64(), values).to_pylist() == [1.5, 2.5]
    assert make(ONE, pa.list_(pa.float64()), values).to_pylist() == [[1.5], [2.5]]
    assert make(ONE, None, values).to_pylist() == [[1.5], [2.5]]
    deep = TensorInfo("o", "int64", (1, 1))
    assert make(deep, pa.decimal128(20, 0), np.array([[[7]]])).to_pylist() == [7]


LIST = pa.list_(pa.float32())
NAMED = pa.list_(pa.struct([("name", pa.int32()), ("score", pa.float32())]))


@pytest.mark.parametrize(
    ("pick", "tensor", "wished", "own"),
    [
        (AS_IT_IS, FLAT, pa.float64(), "array<float>"),
        (AS_IT_IS, OPEN, pa.float64(), "array<float>"),
        (AS_IT_IS, RAGGED, pa.float64(), "array<float>"),
        (AS_IT_IS, GRID, LIST, "array<array<float>>"),
        (AS_IT_IS, ONE, pa.timestamp("us", "UTC"), "float"),
        (AS_IT_IS, FLAT, pa.map_(pa.string(), pa.float32()), "array<float>"),
        (argmax("c"), FLAT, LIST, "double"),
        (top_k("c", 2), FLAT, NAMED, "array<struct<class:int,score:float>>"),
    ],
)
def test_what_an_output_has_not_is_refused(
    pick: Pick, tensor: TensorInfo, wished: Any, own: str
) -> None:
    with pytest.raises(ConfigError, match="types has 'wished' for 'c', which is ") as caught:
        fit_type(replace(pick, spark_type="wished"), tensor, wished)
    assert f"which is {own}: the output 'o' is" in str(caught.value)
