"""Fits that end before their last epoch, and what is shown of them meanwhile."""

from __future__ import annotations

import re
from typing import Any

import cloudpickle
import numpy as np
import pytest

import estimator_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)


@pytest.fixture(scope="module")
def iris(spark_session: Any) -> Any:
    return cases.make_iris(spark_session).selectExpr("*", "id % 4 = 0 as held")


def make(**wishes: Any) -> st.KerasClassifier:
    kept = {"model": cases.build_flat, "featureCols": ["measures"], "labelCol": "label"}
    kept.update(loss="sparse_categorical_crossentropy", validation="held", batchSize=16)
    return st.KerasClassifier(**{**kept, "optimizer": "adam", "seed": 2, **wishes})


def find_loss(model: st.KerasModel, rows: Any) -> float:
    scored = model.transform(rows).select("label", "probability").collect()
    return float(np.mean([-np.log(max(row.probability[row.label], 1e-7)) for row in scored]))


@pytest.mark.slow
def test_two_workers_stop_together_with_the_best_weights(iris: Any) -> None:
    """At a rate that leaves the best epoch behind."""
    model = make(epochs=60, earlyStopping=3, learningRate=0.5, numWorkers=2, progress=False).fit(
        iris
    )
    losses = model.history["val_loss"]
    best = int(losses.argmin())
    assert len(losses) < 60 and best < len(losses) - 1
    assert len(losses) == best + 1 + 3
    assert model.contract.stopped == "earlyStopping: no better val_loss for 3"
    found = find_loss(model, iris.filter("held"))
    assert found == pytest.approx(losses.min(), rel=1e-3)
    assert found < losses.iloc[-1]


def test_epochs_are_shown_with_their_loss(iris: Any, capfd: pytest.CaptureFixture[str]) -> None:
    model = make(epochs=3, learningRate=0.05, progress="plain").fit(iris)
    shown = " ".join(capfd.readouterr().err.split())
    lines = re.findall(r"chief:0 epoch (\d)/3 loss ([\d.]+) val_loss ([\d.]+)", shown)
    assert [int(epoch) for epoch, *_ in lines] == [1, 2, 3]
    for place, name in ((1, "loss"), (2, "val_loss")):
        found = [float(line[place]) for line in lines]
        assert found == pytest.approx(list(model.history[name]), rel=1e-3)
