"""Answers that their column cannot hold: the job fails, or the row has no answer and a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.errors import ScoringError
from sparktrain.scoring.flow import Answered
from sparktrain.scoring.plan import Answers
from sparktrain.scoring.spec import CLASS, TOP_K, Pick
from sparktrain.scoring.typed import can_cast, make_columns

PICKS = (Pick("text", "t"), Pick("score", "s"))
TYPES = (pa.string(), pa.float32())
TEXTS = np.array([b"a", b"\xff", b"c", "é".encode()], object)
SCORES = np.arange(4, dtype="float32")


def make(answered: Answered, num_rows: int, error_column: str = "why", **changes: Any) -> Any:
    answers = Answers(**{"picks": PICKS, "types": TYPES, "error_column": error_column, **changes})
    arrays = make_columns(answers, answered, num_rows)
    for array, kind in zip(arrays, answers.types, strict=False):
        assert array.type == kind
    return [array.to_pylist() for array in arrays]


def test_a_value_that_cannot_be_cast_takes_no_other_row_along() -> None:
    texts, scores, reasons = make(Answered(4, {"text": TEXTS, "score": SCORES}), 4)
    assert texts == ["a", None, "c", "é"]
    assert scores == [0.0, None, 2.0, 3.0]  # a row has all of its answers, or none
    assert reasons[1].startswith("The output 'text' is binary and the column 't' string: ")
    assert "UTF8" in reasons[1] and [reasons[0], *reasons[2:]] == [None] * 3


def test_without_a_column_for_reasons_it_is_an_error() -> None:
    with pytest.raises(ScoringError, match="'binary' for bytes that are no text"):
        make(Answered(4, {"text": TEXTS, "score": SCORES}), 4, "")


def test_rows_keep_their_places_beside_others_without_an_answer() -> None:
    good = np.array([1, 2, 4, 5])
    answered = Answered(7, {"text": TEXTS, "score": SCORES}, good, {0: "bad", 3: "null"})
    texts, scores, reasons = make(answered, 7)
    assert texts == [None, "a", None, None, "c", "é", None]
    assert scores == [None, 0.0, None, None, 2.0, 3.0, None]
    assert [reason and reason[:10] for reason in reasons] == [
        "bad", None, "The output", "null", None, None, None]  # fmt: skip


def test_values_inside_of_lists() -> None:
    lists = pa.array([[b"a"], [b"b", b"\xff"], [], [b"c"], [b"\xfe"]])
    changes = {"picks": (Pick("text", "t"),), "types": (pa.list_(pa.string()),)}
    texts, reasons = make(Answered(5, {"text": lists}), 5, **changes)
    assert texts == [["a"], None, [], ["c"], None]
    assert [reason is not None for reason in reasons] == [False, True, False, False, True]


def test_numbers_that_a_wished_type_cannot_hold() -> None:
    changes = {"picks": (Pick("score", "s"),), "types": (pa.int8(),)}
    values = np.array([1.0, 1.5, 300.0, 4.0], "float32")
    numbers, reasons = make(Answered(4, {"score": values}), 4, **changes)
    assert numbers == [1, None, None, 4]
    assert "truncated" in reasons[1] and "300" in reasons[2]


def test_no_answers_at_all() -> None:
    assert make(Answered(2, {}, np.arange(0), {0: "a", 1: "b"}), 2) == [[None] * 2] * 2 + [
        ["a", "b"]
    ]
    assert make(Answered(0, {}), 0) == [[], [], []]


def test_rows_of_another_width_have_a_reason() -> None:
    """Of an output whose width is not known before: the others are made as ever."""
    lists = pa.array([[0.1, 0.9], [0.2, 0.1, 0.7], [0.6, 0.4]], pa.list_(pa.float32()))
    changes = {"picks": (Pick("s", "c", CLASS, ("a", "b")),), "types": (pa.string(),)}
    names, reasons = make(Answered(3, {"s": lists}), 3, **changes)
    assert names == ["b", None, "a"]
    assert "has 3 values a row" in reasons[1] and "classes names 2" in reasons[1]
    kind = pa.list_(pa.struct([("class", pa.int32()), ("score", pa.float32())]))
    changes = {"picks": (Pick("s", "c", TOP_K, k=4),), "types": (kind,)}
    scores = np.ones((3, 3), "float32")
    found, reasons = make(Answered(4, {"s": scores}, np.array([0, 1, 3]), {2: "bad"}), 4, **changes)
    assert found == [None] * 4
    assert reasons[2] == "bad" and all("k is 4" in reasons[row] for row in (0, 1, 3))
    none = Answered(1, {"s": scores[:0]}, np.arange(0), {0: "bad"})
    assert make(none, 1, **changes) == [[None], ["bad"]]


def test_scores_that_are_no_numbers_fail_no_row() -> None:
    kind = pa.list_(pa.struct([("class", pa.int32()), ("score", pa.float32())]))
    changes = {"picks": (Pick("s", "c", TOP_K, k=1),), "types": (kind,)}
    scores = np.array([[np.nan, 1], [0, 1]], "float32")
    found, reasons = make(Answered(2, {"s": scores}), 2, **changes)
    assert found == [None, [{"class": 1, "score": 1.0}]] and reasons == [None, None]


FEW = pa.struct([("class", pa.string()), ("score", pa.float32())])


@pytest.mark.parametrize(
    ("found", "wished", "can"),
    [
        (pa.float32(), pa.float64(), True),
        (pa.float32(), pa.decimal128(10, 2), True),
        (pa.string(), pa.binary(), True),
        (pa.float32(), pa.binary(), False),
        (pa.float32(), pa.timestamp("us", "UTC"), False),
        (pa.list_(pa.float32()), pa.list_(pa.int32()), True),
        (pa.list_(pa.float32()), pa.float64(), False),
        (pa.list_(pa.float32()), pa.list_(pa.list_(pa.float32())), False),
        (pa.list_(pa.list_(pa.float32())), pa.list_(pa.float64()), False),
        (pa.list_(pa.float32()), pa.map_(pa.string(), pa.float32()), False),
        (FEW, pa.struct([("class", pa.string()), ("score", pa.float64())]), True),
        (FEW, pa.struct([("name", pa.string()), ("score", pa.float64())]), False),
        (FEW, pa.struct([("class", pa.string())]), False),
    ],
)
def test_which_types_can_be_had(found: Any, wished: Any, can: bool) -> None:
    assert can_cast(found, wished) is can
