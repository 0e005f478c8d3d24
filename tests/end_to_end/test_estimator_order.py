"""The order of rows is that of the fit, wherever in a run it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import estimator_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)

#: More than two blocks of Spark's for the one worker, and more than a window.
ROWS = 24_000


def make_rows(spark: Any) -> Any:
    """Labels that rise from row to row, so that the order leaves its mark on the weights."""
    parts = ", ".join(f"float(sin(id * {number + 1}))" for number in range(5))
    return spark.range(ROWS, numPartitions=1).selectExpr(
        f"array({parts}) as x", f"id / {ROWS} + sin(id) as y"
    )


def find_weights(model: st.KerasModel) -> Any:
    return np.concatenate([one.ravel() for one in model.keras_model().get_weights()])


@pytest.mark.slow
def test_equal_candidates_are_equal_wherever_they_stand(spark: Any, tmp_path: Path) -> None:
    est = st.KerasRegressor(
        model=cases.build_line,
        featureCols=["x"],
        labelCol="y",
        loss="mse",
        optimizer="sgd",
        learningRate=0.05,
        batchSize=250,
        epochs=3,
        seed=5,
        runDir=str(tmp_path / "run"),
        progress=False,
    )
    frame = make_rows(spark)
    first, other, again = est.fit(frame, [{}, {est.seed: 6}, {}])
    alone = est.fit(frame)
    assert len(list((tmp_path / "run").rglob("run.json"))) == 2
    for model in (again, alone):
        np.testing.assert_array_equal(find_weights(model), find_weights(first))
        assert list(model.history["loss"]) == list(first.history["loss"])
    assert not np.array_equal(find_weights(other), find_weights(first))
