"""What is made of outputs: types before the job, values in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.errors import ConfigError, ScoringError
from sparktrain.inference import argmax, top_k
from sparktrain.scoring.picks import find_type, make_column
from sparktrain.scoring.spec import FIRST, PROBABILITIES, VALUE, Pick, TensorInfo

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]], np.float32)
FLAT = TensorInfo("s", "float32", (3,))
ONE = TensorInfo("s", "float32", (1,))


def make(pick: Pick, tensor: TensorInfo, value: Any) -> pa.Array:
    """The column, in the type that was told before the job."""
    return make_column(pick, value).cast(find_type(pick, tensor))


def test_as_it_is() -> None:
    assert make(Pick("s", "c"), FLAT, SCORES).type == pa.list_(pa.float32())
    nested = TensorInfo("s", "float32", (2, None))
    column = make(Pick("s", "c"), nested, np.zeros((3, 2, 4), np.float32))
    assert column.type == pa.list_(pa.list_(pa.float32()))
    assert [len(row) for row in column.to_pylist()] == [2, 2, 2]
    text = TensorInfo("s", "string", ())
    assert make(Pick("s", "c"), text, np.array([b"a", "é".encode()], object)).to_pylist() == [
        "a",
        "é",
    ]
    small = TensorInfo("s", "uint8", ())
    assert make(Pick("s", "c"), small, np.array([255], np.uint8)).to_pylist() == [255]
    half = TensorInfo("s", "float16", (1,))
    assert make(Pick("s", "c"), half, np.ones((1, 1), np.float16)).to_pylist() == [[1.0]]


def test_the_best_class() -> None:
    assert make(argmax("c"), FLAT, SCORES).to_pylist() == [1.0, 0.0]
    named = argmax("c", classes=["cat", "dog", "eel"])
    assert make(named, FLAT, SCORES).to_pylist() == ["dog", "cat"]
    years = argmax("c", classes=[1999, 2000, 2001])
    assert make(years, FLAT, SCORES).to_pylist() == [2000, 1999]


def test_one_score_is_of_two_classes() -> None:
    one = np.array([[0.4], [0.6]], np.float32)
    assert make(argmax("c"), ONE, one).to_pylist() == [0.0, 1.0]
    assert make(argmax("c", logits=True), ONE, one).to_pylist() == [1.0, 1.0]
    both = make(Pick("s", "c", PROBABILITIES), ONE, one).to_pylist()
    np.testing.assert_allclose(both, [[0.6, 0.4], [0.4, 0.6]], rtol=1e-6)


def test_logits_become_probabilities() -> None:
    pick = Pick("s", "c", PROBABILITIES, is_logits=True)
    found = np.array(make(pick, FLAT, np.array([[1000.0, 0, 0]], np.float32)).to_pylist())
    np.testing.assert_allclose(found, [[1, 0, 0]], atol=1e-6)
    found = np.array(make(pick, ONE, np.array([[-1000.0]], np.float32)).to_pylist())
    np.testing.assert_allclose(found, [[1, 0]], atol=1e-6)


def test_the_best_few() -> None:
    found = make(top_k("c", 2, classes=["cat", "dog", "eel"]), FLAT, SCORES).to_pylist()
    assert [[one["class"] for one in row] for row in found] == [["dog", "eel"], ["cat", "eel"]]
    np.testing.assert_allclose([one["score"] for one in found[0]], [0.7, 0.2], rtol=1e-6)


def test_one_value() -> None:
    assert make(Pick("s", "c", FIRST), ONE, np.array([[2.5]])).to_pylist() == [2.5]


@pytest.mark.parametrize(
    ("pick", "tensor", "words"),
    [
        (argmax("c"), TensorInfo("s", "float32", (2, 2)), "flat output"),
        (argmax("c"), TensorInfo("s", "string", (2,)), "flat output"),
        (argmax("c", classes=["a"]), FLAT, "classes names 1"),
        (top_k("c", 4), FLAT, "k is 4"),
        (Pick("s", "c", FIRST), FLAT, "one value"),
        (Pick("s", "c"), TensorInfo("s", "complex64", ()), "no such type"),
    ],
)
def test_what_cannot_be_made_is_refused(pick: Pick, tensor: TensorInfo, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_type(pick, tensor)


def test_scores_that_are_no_numbers_have_no_best_class() -> None:
    scores = np.array([[np.nan, 0.7, 0.2], [0.5, 0.2, 0.3]], np.float32)
    assert make(argmax("c"), FLAT, scores).to_pylist() == [None, 0.0]
    named = argmax("c", classes=["cat", "dog", "eel"])
    assert make(named, FLAT, scores).to_pylist() == [None, "cat"]
    assert make(argmax("c"), ONE, np.array([[np.nan], [0.6]])).to_pylist() == [None, 1.0]
    few = make(top_k("c", 2, classes=["cat", "dog", "eel"]), FLAT, scores).to_pylist()
    assert few[0] is None and [one["class"] for one in few[1]] == ["cat", "eel"]
    assert make(top_k("c", 3, logits=True), FLAT, scores).to_pylist()[0] is None
    assert make(top_k("c", 1), FLAT, scores[1:]).null_count == 0


OPEN = TensorInfo("s", "float32", (None,))


@pytest.mark.parametrize(
    ("pick", "words"),
    [
        (top_k("c", 4), r"'s' has 3 values a row, .*'c' .*k is 4"),
        (top_k("c", 2, classes=["a", "b"]), "classes names 2"),
        (top_k("c", 2, classes=["a", "b", "c", "d"]), "classes names 4"),
        (argmax("c", classes=["a", "b"]), "classes names 2"),
        (Pick("s", "c", FIRST), "one value"),
    ],
)
def test_a_width_that_was_not_known_is_looked_at_in_the_job(pick: Pick, words: str) -> None:
    find_type(pick, OPEN)
    with pytest.raises(ScoringError, match=words):
        make_column(replace(pick, output="s"), np.concatenate([SCORES, SCORES]))


def test_rows_of_several_widths() -> None:
    """As lists: batches of the model had outputs of different lengths."""
    rows = pa.array([[0.1, 0.9], [0.7, 0.3], [0.2, 0.1, 0.7], [0.9, 0.1]], pa.list_(pa.float32()))
    assert make(argmax("c"), OPEN, rows).to_pylist() == [1.0, 0.0, 2.0, 0.0]
    few = make(top_k("c", 2), OPEN, rows).to_pylist()
    assert [[one["class"] for one in row] for row in few] == [[1, 0], [0, 1], [2, 0], [0, 1]]
    assert make(argmax("c"), OPEN, rows.slice(2, 2)).to_pylist() == [2.0, 0.0]
    with pytest.raises(ScoringError, match="has 3 values"):
        make(argmax("c", classes=["a", "b"]), OPEN, rows)


@pytest.mark.parametrize(
    "pick", [argmax("c"), argmax("c", classes=["a", "b", "c"]), top_k("c", 2), Pick("s", "c")]
)
def test_no_rows(pick: Pick) -> None:
    """As when all rows of one Arrow batch have failed, and not those of the next one."""
    assert len(make(pick, FLAT, np.zeros((0, 3), np.float32))) == 0
    if pick.how != "as_is":
        assert len(make(pick, OPEN, pa.array([], pa.list_(pa.float32())))) == 0


def test_the_one_value_keeps_its_type() -> None:
    large = np.array([[[2**53 + 1]], [[7]]])
    tensor = TensorInfo("s", "int64", (1, 1))
    found = make(Pick("s", "c", VALUE), tensor, large)
    assert found.type == pa.int64() and found.to_pylist() == [2**53 + 1, 7]
    text = TensorInfo("s", "string", (1,))
    assert make(Pick("s", "c", VALUE), text, np.array([[b"a"]], object)).to_pylist() == ["a"]
    with pytest.raises(ConfigError, match="one value"):
        find_type(Pick("s", "c", VALUE), FLAT)
