"""What values become on their way into the model: losses of any kind, numbers that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StringIndexer

import estimator_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def iris(spark_session: Any) -> Any:
    return cases.make_iris(spark_session)


def make(kind: Any, **wishes: Any) -> Any:
    kept = {"featureCols": ["measures"], "labelCol": "label", "optimizer": "adam"}
    kept.update(batchSize=16, learningRate=0.1, seed=3, progress=False)
    return kind(**{**kept, **wishes})


def test_shares_are_learnt_with_the_loss_of_two_classes(iris: Any) -> None:
    """A regressor with binary_crossentropy: labels and predictions between zero and one."""
    frame = iris.selectExpr("measures", "1 / (1 + exp(4 - c)) as share")
    est = make(st.KerasRegressor, model=cases.build_sigmoid, labelCol="share", epochs=15)
    model = est.setLoss("binary_crossentropy").setStandardize(True).fit(frame)
    scored = model.transform(frame)
    assert dict(scored.dtypes)["prediction"] == "double" and "probability" not in scored.columns
    found = np.array(scored.select("prediction", "share").collect())
    assert np.abs(found[:, 0] - found[:, 1]).mean() < 0.05


def test_classifiers_learn_with_losses_that_compare_values(iris: Any, tmp_path: Path) -> None:
    """With as many rows in a batch as there are classes: nothing is spread over it silently."""
    est = make(st.KerasClassifier, model=cases.build_flat, labelCol="species", epochs=6)
    est.setBatchSize(3).setLearningRate(0.01).setStandardize(True).setRunDir(str(tmp_path))
    losses = ("mse", "kl_divergence", "categorical_hinge")
    evaluator = MulticlassClassificationEvaluator(labelCol="label_index", metricName="accuracy")
    for loss, model in zip(losses, est.fit(iris, [{est.loss: one} for one in losses]), strict=True):
        assert evaluator.evaluate(model.transform(iris)) > 0.85, loss


def test_numbers_that_the_model_cannot_hold_are_refused(iris: Any, tmp_path: Path) -> None:
    indexer = StringIndexer(inputCol="species", outputCol="kind").fit(iris)
    frame = indexer.transform(iris).selectExpr(
        "id", "kind", "label", "id + 0.7D as half", "if(id = 99, 3000000000, id % 3) as far"
    )
    est = make(st.KerasClassifier, model=cases.build_words, featureCols=["kind"], epochs=5)
    est.setLoss("sparse_categorical_crossentropy").setRunDir(str(tmp_path))
    model = est.fit(frame)  # doubles, but whole ones
    assert model.transform(frame).filter("prediction = label").count() > 140
    for num_workers, name, value in ((1, "half", r"\d+\.7"), (2, "far", "3000000000")):
        wanted = rf"'{name}' of 'train': It has the value {value}, .*int32: whole numbers"
        with pytest.raises(st.NodeFailedError, match=wanted):
            est.setFeatureCols([name]).setNumWorkers(num_workers).fit(frame)
