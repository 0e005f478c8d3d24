"""Mean and variance from parts of a table, merged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.data.schema import Column
from sparktrain.ml.stats import Sums, SumTask, sum_up


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


def run(columns: list[Column], fill: dict[str, Any], *batches: dict[str, Any]) -> dict[str, Sums]:
    arrays = [pa.RecordBatch.from_pydict(batch) for batch in batches]
    found = {}
    for batch in SumTask(columns, fill)(arrays):
        for row in batch.to_pylist():
            found[row["column"]] = Sums(
                row["count"], np.array(row["mean"]), np.array(row["spread"])
            )
    return found


def test_scalars_arrays_and_nulls() -> None:
    columns = [Column("a", "integer"), Column("v", "float", 1, (2,)), Column("b", "boolean")]
    found = run(
        columns,
        {"a": 0},
        {"a": [1, None], "v": [[1.0, 2.0], None], "b": [True, False]},
        {"a": [5, 2], "v": [[3.0, 6.0], [5.0, 7.0]], "b": [True, None]},
    )
    assert found["a"].count == 4 and found["a"].mean.tolist() == [2.0]
    assert found["v"].count == 3 and found["v"].mean.tolist() == [3.0, 5.0]
    assert found["b"].count == 3 and found["b"].mean[0] == pytest.approx(2 / 3)


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="'v'"):
        run([Column("v", "float", 1, (2,))], {}, {"v": [[1.0, 2.0], [1.0]]})
