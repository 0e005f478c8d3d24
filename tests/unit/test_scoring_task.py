"""Rows of a batch as the model is asked about them, and what errors call them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparktrain.errors import ScoringError
from sparktrain.scoring.place import TaskPlace
from sparktrain.scoring.plan import Answers, Choices, make_plan
from sparktrain.scoring.spec import KERAS, ModelInfo, ModelSource, TensorInfo
from sparktrain.scoring.task import read_batch

FIELDS = [{"name": "x", "type": {"type": "array", "elementType": "float", "containsNull": True}}]
INFO = ModelInfo((TensorInfo("in", "float32", (2,)),), ())
ROWS = [None, None, [1.0, 2.0], [1.0], [3.0, 4.0], None, [5.0, 6.0, 7.0]]
BATCH = pa.RecordBatch.from_pydict({"x": pa.array(ROWS, pa.list_(pa.float32()))})


def read(error_column: str, nulls: str = "null") -> Any:
    source = ModelSource(KERAS, "m.keras", "key")
    answers = Answers((), (), error_column)
    choices = Choices(nulls=nulls)
    plan = make_plan(FIELDS, source, INFO, {"in": ["x"]}, answers, choices)
    return read_batch(plan, TaskPlace(3, 1), BATCH, 100)


def test_rows_are_counted_with_those_that_are_left_out() -> None:
    with pytest.raises(ScoringError, match=r"has 1 values .* in row 103 of partition 3"):
        read("")
    asked = read("error")
    assert asked.rows.tolist() == [2, 4] and asked.block.num_rows == 2
    assert set(asked.reasons) == {3, 6}
    assert "in row 103 of" in asked.reasons[3] and "in row 106 of" in asked.reasons[6]


def test_rows_are_counted_where_none_are_left_out() -> None:
    with pytest.raises(ScoringError, match="is null in row 100 of"):
        read("", nulls="error")
    asked = read("error", nulls="error")
    assert asked.rows.tolist() == [2, 4] and set(asked.reasons) == {0, 1, 3, 5, 6}
    assert all(f"in row {100 + row} of" in why for row, why in asked.reasons.items())
