"""Mean and variance from parts of a table, merged."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.data.schema import Column, Wishes, make_columns
from sparktrain.ml.stats import Sums, SumTask, add_filled, sum_up


@given(some.lists(some.integers(1, 30), min_size=1, max_size=6), some.integers(0, 10**6))
def test_merged_parts_equal_the_whole(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Far from zero: sums of squares would have lost the variance here.
    parts = [1e8 + rng.normal(size=(size, 3)) for size in sizes]
    merged = sum_up(parts[0])
    for part in parts[1:]:
        merged = merged.merge(sum_up(part))
    whole = np.concatenate(parts)
    assert merged.count == len(whole)
    np.testing.assert_allclose(merged.mean, whole.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        merged.spread / merged.count, whole.var(axis=0), rtol=1e-5, atol=1e-7
    )


def run(columns: list[Column], *batches: dict[str, Any]) -> dict[tuple[str, bool], Sums]:
    """By name, and whether they are rows that are filled whole."""
    arrays = [pa.RecordBatch.from_pydict(batch) for batch in batches]
    found = {}
    for batch in SumTask(columns)(arrays):
        for row in batch.to_pylist():
            sums = Sums(row["count"], np.array(row["mean"]), np.array(row["spread"]))
            found[row["column"], not row["mean"]] = sums
    return found


def test_scalars_arrays_and_nulls() -> None:
    columns = [
        Column("a", "integer", fill=0),
        Column("v", "float", 1, (2,)),
        Column("b", "boolean"),
        Column("f", "float", 1, (2,), fill=9.0),
    ]
    found = run(
        columns,
        {"a": [1, None], "v": [[1.0, 2.0], None], "b": [True, False], "f": [[None, 1.0], None]},
        {"a": [5, 2], "v": [[3.0, 6.0], [5.0, 7.0]], "b": [True, None], "f": [None, [1.0, 1.0]]},
    )
    assert found["a", False].count == 4 and found["a", False].mean.tolist() == [2.0]
    assert found["v", False].count == 3 and found["v", False].mean.tolist() == [3.0, 5.0]
    assert found["b", False].count == 3 and found["b", False].mean[0] == pytest.approx(2 / 3)
    whole = add_filled(found["f", False], found["f", True].count, 9.0)
    assert whole.count == 4 and whole.mean.tolist() == [7.0, 5.0]
    assert set(found) == {("a", False), ("v", False), ("b", False), ("f", False), ("f", True)}


@pytest.mark.parametrize(
    ("kind", "array", "fill", "mean"),
    [
        ("boolean", pa.array([True, None, False, None]), 0, 0.25),
        ("decimal(10,2)", pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), 0.5, 1.0),
        ("decimal(10,2)", pa.array([Decimal("1.50"), None]), Decimal("0.50"), 1.0),
        ("date", pa.array([date(1970, 1, 3), None]), 0, 1.0),
        ("timestamp", pa.array([2, None], pa.timestamp("us", "UTC")), 4, 3.0),
        ("integer", pa.array([1, None], pa.int32()), 3.0, 2.0),
    ],
)
def test_any_fill_that_the_feed_takes(kind: str, array: Any, fill: Any, mean: float) -> None:
    fields = [{"name": "c", "type": kind}]
    columns = make_columns("train", fields, Wishes(fill={"c": fill}))
    batches = SumTask(columns)([pa.RecordBatch.from_arrays([array], names=["c"])])
    assert [row["mean"] for row in next(batches).to_pylist()] == [[mean]]


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="'v'"):
        run([Column("v", "float", 1, (2,))], {"v": [[1.0, 2.0], [1.0]]})
