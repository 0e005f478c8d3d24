"""Model batches cross Arrow batches; answers come back by Arrow batch, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.scoring.flow import Answered, Asked, merge, score


def make_batches(sizes: list[int]) -> list[pa.RecordBatch]:
    batches, start = [], 0
    for size in sizes:
        batches.append(
            pa.RecordBatch.from_pydict({"x": pa.array(range(start, start + size), pa.int64())})
        )
        start += size
    return batches


class Model:
    """Answers the square; remembers how many rows it was asked about; fails where told."""

    def __init__(self, bad: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.sizes: list[int] = []
        self.bad = bad

    def __call__(self, block: pa.RecordBatch) -> Answered:
        self.sizes.append(block.num_rows)
        x = block.column("x").to_numpy()
        is_good = ~np.isin(x, list(self.bad))
        if is_good.all():
            return Answered(len(x), {"y": x**2})
        reasons = {int(row): f"bad {x[row]}" for row in np.flatnonzero(~is_good)}
        good = np.flatnonzero(is_good)
        values = {"y": x[good] ** 2} if len(good) else {}
        return Answered(len(x), values, good, reasons)


def read_all(batch: pa.RecordBatch, first_row: int) -> Asked:
    return Asked(batch)


@given(sizes=st.lists(st.integers(0, 7), max_size=8), batch_size=st.integers(1, 9))
def test_every_row_is_answered_once_and_in_order(sizes: list[int], batch_size: int) -> None:
    model = Model()
    found = list(score(make_batches(sizes), read_all, model, batch_size))
    assert [batch.num_rows for batch, _ in found] == sizes
    for batch, answered in found:
        assert answered.num_rows == batch.num_rows
        if batch.num_rows:
            np.testing.assert_array_equal(answered.values["y"], batch["x"].to_numpy() ** 2)
    full, rest = divmod(sum(sizes), batch_size)
    assert model.sizes == [batch_size] * full + [rest] * bool(rest)


@given(
    sizes=st.lists(st.integers(0, 7), max_size=6),
    batch_size=st.integers(1, 9),
    bad=st.sets(st.integers(0, 40)),
    left_out=st.sets(st.integers(0, 40)),
)
def test_rows_that_fail_keep_their_places(
    sizes: list[int], batch_size: int, bad: set[int], left_out: set[int]
) -> None:
    def read(batch: pa.RecordBatch, first_row: int) -> Asked:
        x = batch["x"].to_numpy()
        rows = np.flatnonzero(~np.isin(x, list(left_out)))
        reasons = {int(row): "left out" for row in set(range(len(x))) - set(rows.tolist())}
        return Asked(batch.take(pa.array(rows)), rows, reasons)

    for batch, answered in score(make_batches(sizes), read, Model(bad), batch_size):
        x = batch["x"].to_pylist()
        expected = [v not in bad and v not in left_out for v in x]
        good = answered.good if answered.good is not None else np.arange(len(x))
        assert good.tolist() == [row for row, is_good in enumerate(expected) if is_good]
        for row, value in enumerate(x):
            wanted = "left out" if value in left_out else f"bad {value}" if value in bad else None
            assert answered.reasons.get(row) == wanted
        if len(good):
            assert answered.values["y"].tolist() == [x[row] ** 2 for row in good]


def test_batches_are_given_back_as_soon_as_they_are_answered() -> None:
    """A long partition must not pile up in memory."""
    seen: list[int] = []

    def batches() -> Any:
        for number, batch in enumerate(make_batches([4] * 6)):
            seen.append(number)
            yield batch

    flow = score(batches(), read_all, Model(), 4)
    next(flow)
    assert seen == [0]


def test_merge_keeps_arrow_arrays() -> None:
    merged = merge([Answered(1, {"y": pa.array([[1]])}), Answered(1, {"y": pa.array([[2, 3]])})])
    assert merged.values["y"].to_pylist() == [[1], [2, 3]]


def test_an_error_of_the_model_comes_out() -> None:
    def ask(block: pa.RecordBatch) -> Answered:
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        list(score(make_batches([3]), read_all, ask, 2))


def test_answers_may_have_the_length_of_their_batch() -> None:
    """A model that answers for each word, with batches padded to their own longest row."""
    short, long = np.ones((2, 1, 3), np.float32), np.ones((1, 4, 3), np.float32)
    merged = merge([Answered(2, {"y": short}), Answered(1, {"y": long})])
    assert [len(row) for row in merged.values["y"].to_pylist()] == [1, 1, 4]
    assert merged.slice(1, 3).values["y"].to_pylist()[1][0] == [1.0, 1.0, 1.0]


def test_empty_lists_go_with_others() -> None:
    """A batch of empty rows of a ragged output knows no type."""
    merged = merge([Answered(1, {"y": pa.array([[]])}), Answered(1, {"y": pa.array([[2]])})])
    assert merged.values["y"].to_pylist() == [[], [2]]
