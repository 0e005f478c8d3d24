"""Grid search: candidates share runs and rows, do not touch each other, and wait for slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder, TrainValidationSplit

import estimator_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)

#: Spark leaves the threads of a search to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def iris(spark_session: Any) -> Any:
    return cases.make_iris(spark_session)


def make(folder: Path, **wishes: Any) -> st.KerasEstimator:
    kept: dict[str, Any] = {"model": cases.build_flat, "featureCols": ["measures"]}
    kept.update(labelCol="label", loss="sparse_categorical_crossentropy", optimizer="adam")
    kept.update(batchSize=32, epochs=2, runDir=str(folder), progress=False)
    return st.KerasEstimator(**{**kept, **wishes})


def find_runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("run.json"))


def test_candidates_share_a_run_and_nothing_else(iris: Any, tmp_path: Path) -> None:
    est = make(tmp_path, validation=0.2, learningRate=0.05)
    maps = [
        {est.seed: 4, est.validation: "held"},
        {est.learningRate: 0.0001, est.validation: "held"},
        {est.seed: 4, est.validation: "held"},
        {est.earlyStopping: 1, est.epochs: 60, est.learningRate: 5.0, est.validation: "held"},
        {est.timeLimit: 0.01, est.epochs: 500, est.validation: "held"},
        {est.batchSize: 16, est.validation: "held"},
    ]
    frame = iris.selectExpr("*", "id % 4 = 0 as held")
    first, slow, again, early, short, small = est.fit(frame, maps)
    runs = find_runs(tmp_path)
    assert len(runs) == 1 and not (runs[0] / "candidates").exists()
    for one, two in zip(_weights(first), _weights(again), strict=True):
        np.testing.assert_array_equal(one, two)
    assert list(first.history["loss"]) == list(again.history["loss"])
    assert abs(first.history["loss"].iloc[1] - slow.history["loss"].iloc[1]) > 0.05
    assert len(first.history) == len(slow.history) == len(small.history) == 2
    assert len(early.history) < 60 and early.contract.stopped.startswith("earlyStopping")
    assert len(short.history) == 1 and short.contract.stopped == "timeLimit of 0.01 s"
    # The weights are those of the best epoch, not of the last one.
    rows = frame.filter("held")
    losses = []
    for row in early.transform(rows).select("label", "probability").collect():
        losses.append(-np.log(max(row.probability[row.label], 1e-7)))
    assert np.mean(losses) == pytest.approx(early.history["val_loss"].min(), rel=1e-3)


def _weights(model: st.KerasModel) -> list[Any]:
    return list(model.keras_model().get_weights())


def test_a_candidate_that_fails_leaves_the_others(iris: Any, tmp_path: Path) -> None:
    est = make(tmp_path, epochs=1)
    maps = [{est.seed: 1}, {est.model: cases.build_line}, {est.seed: 2}]
    fits = est.fitMultiple(iris, maps)
    found: dict[int, st.KerasModel] = {}
    errors = []
    for _ in maps:
        try:
            number, model = next(fits)
            found[number] = model
        except st.NodeFailedError as error:
            errors.append(str(error))
    assert sorted(found) == [0, 2] and len(errors) == 1 and "'measures'" in errors[0]
    assert [len(model.history) for model in found.values()] == [1, 1]


@pytest.mark.slow
def test_cross_validation_in_lanes(iris: Any, tmp_path: Path) -> None:
    est = make(tmp_path, epochs=10, batchSize=16, standardize=True)
    grid = ParamGridBuilder().addGrid(est.learningRate, [0.0, 0.05, 0.1]).build()
    evaluator = MulticlassClassificationEvaluator(labelCol="label", metricName="accuracy")
    search = CrossValidator(
        estimator=est,
        estimatorParamMaps=grid,
        evaluator=evaluator,
        numFolds=2,
        parallelism=2,
        seed=1,
    )
    best = search.fit(iris)
    assert best.avgMetrics[0] < 0.8 < max(best.avgMetrics[1:])
    # For each fold two lanes, then the best one on all rows.
    assert len(find_runs(tmp_path)) == 5
    assert evaluator.evaluate(best.transform(iris)) > 0.8
    best.write().overwrite().save(str(tmp_path / "best"))
    again = type(best).load(str(tmp_path / "best"))
    assert again.avgMetrics == best.avgMetrics
    assert evaluator.evaluate(again.transform(iris)) > 0.8


@pytest.mark.slow
def test_pipelines_wait_for_each_others_slots(iris: Any, tmp_path: Path) -> None:
    """Two fits of two workers at a time, on two slots: they take turns."""
    est = make(tmp_path, featureCols=["v"], numWorkers=2, learningRate=0.05)
    stages = [VectorAssembler(inputCols=list("abcd"), outputCol="v"), est]
    search = TrainValidationSplit(
        estimator=Pipeline(stages=stages),
        estimatorParamMaps=ParamGridBuilder().addGrid(est.batchSize, [8, 16, 32]).build(),
        evaluator=MulticlassClassificationEvaluator(labelCol="label"),
        parallelism=3,
        seed=1,
    )
    best = search.fit(iris)
    assert len(best.validationMetrics) == 3
    # Only one at a time has the folder itself: the first, and in the end the best one.
    runs = find_runs(tmp_path)
    assert len(runs) == 3 and tmp_path in runs
    assert all('"ok": true' in (run / "result.json").read_text() for run in runs)
