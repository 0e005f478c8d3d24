"""What functions answer, as columns; too few, too many or no answers are errors with counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.data.answers import AnswerError, make_answers


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1.5, 2.5], np.float32), {"prediction": [1.5, 2.5]}),
        ([1, 2], {"prediction": [1, 2]}),
        (np.array([[1, 2], [3, 4]]), {"prediction": [[1, 2], [3, 4]]}),
        (np.zeros((2, 1, 2)), {"prediction": [[[0.0, 0.0]], [[0.0, 0.0]]]}),
        (np.zeros((2, 0)), {"prediction": [[], []]}),
        ({"a": ["x", "y"], "b": [None, 1]}, {"a": ["x", "y"], "b": [None, 1]}),
        (np.array([b"a", b"b"], object), {"prediction": [b"a", b"b"]}),
        ([[1], [2, 3]], {"prediction": [[1], [2, 3]]}),
        ([np.array([1.0]), np.array([2.0])], {"prediction": [[1.0], [2.0]]}),
    ],
)
def test_answers_become_columns(values: Any, expected: dict[str, list[Any]]) -> None:
    assert make_answers(values, 2).to_pydict() == expected


def test_types_are_kept() -> None:
    schema = make_answers({"p": np.zeros((2, 3), np.float32), "n": np.zeros(2, np.int8)}, 2).schema
    assert schema.types == [pa.list_(pa.float32()), pa.int8()]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], r"answered 1 rows as 'prediction' to 2 rows"),
        ({"a": [1, 2, 3]}, r"answered 3 rows as 'a' to 2 rows"),
        (7, "single value 7"),
        (None, "answered None as 'prediction' to 2 rows"),
        ({}, "empty dict"),
        ({1: [1, 2]}, "name 1"),
        ([object(), object()], "is no column"),
    ],
)
def test_answers_that_do_not_fit(values: Any, message: str) -> None:
    with pytest.raises(AnswerError, match=message):
        make_answers(values, 2)
