"""The Params of the estimators: setters, getters, copies, and what they refuse."""

from __future__ import annotations

import inspect
from typing import Any

import cloudpickle
import pytest

import sparktrain as st
from sparktrain.ml.packing import pack_model, to_json


def build() -> Any:
    raise AssertionError("never called here")


def test_keywords_setters_and_getters_are_one() -> None:
    est = st.KerasEstimator(model=build, featureCols="x", labelCol="y", epochs=3)
    assert est.getFeatureCols() == ["x"] and est.getEpochs() == 3 and est.getBatchSize() == 32
    assert est.setBatchSize(7).setLoss("mse") is est
    assert est.getBatchSize() == 7 and est.getOrDefault(est.loss) == "mse"
    assert est.getModel() is build and est.getWeightCol() is None
    for row in type(est).rows:
        suffix = row.name[0].upper() + row.name[1:]
        assert callable(getattr(est, f"set{suffix}")) and callable(getattr(est, f"get{suffix}"))


def test_explain_params_tells_values() -> None:
    text = st.KerasRegressor(epochs=9).explainParams()
    assert "epochs: passes over the rows (default: 1, current: 9)" in text
    assert "validation:" in text and "predictionCol:" in text


def test_a_copy_keeps_its_own_values() -> None:
    est = st.KerasEstimator(epochs=3)
    other = est.copy({est.epochs: 5})
    assert (est.getEpochs(), other.getEpochs()) == (3, 5) and other.uid == est.uid


def test_none_is_the_default() -> None:
    est = st.KerasEstimator(epochs=None, shuffle=False, seed=2**32 - 1).setLoss("mse")
    for other in (est.copy({est.shuffle: None, est.loss: None}), est.setShuffle(None)):
        assert other.getShuffle() is True and not other.isSet("shuffle")
    assert est.setLoss(None).getLoss() is None and est.getEpochs() == 1
    assert est.getSeed() == 2**32 - 1 and not est.isSet("epochs")


def test_estimators_are_pickled() -> None:
    again = cloudpickle.loads(cloudpickle.dumps(st.KerasClassifier(epochs=4, featureCols=["a"])))
    assert again.getEpochs() == 4 and again.setBatchSize(2).getBatchSize() == 2


def test_the_signature_shows_all_params() -> None:
    names = set(inspect.signature(st.KerasEstimator).parameters)
    assert {"model", "featureCols", "validation", "numWorkers", "outputCols"} <= names


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batchSize": 0}, ["batchSize", "0", "at least 1"]),
        ({"epochs": 1.5}, ["epochs", "1.5"]),
        ({"featureCols": ["a", "a"]}, ["featureCols", "once"]),
        ({"featureCols": 3}, ["featureCols", "3"]),
        ({"labelCol": 3}, ["labelCol", "column"]),
        ({"validation": 1.0}, ["validation", "fraction"]),
        ({"validation": True}, ["validation", "True"]),
        ({"timeLimit": -1}, ["timeLimit", "above zero"]),
        ({"earlyStopping": "x"}, ["earlyStopping", "epochs"]),
        ({"modelArgs": {"f": build}}, ["modelArgs", "plain"]),
        ({"standardize": "x"}, ["standardize", "list"]),
        ({"loss": object()}, ["loss", "object"]),
        ({"classes": "ab"}, ["classes", "'ab'", "list"]),
        ({"classes": {"a": 0}}, ["classes", "list"]),
        ({"classes": ["a", 1]}, ["classes", "strings, or of numbers"]),
        ({"classes": []}, ["classes", "list"]),
        ({"classes": 3}, ["classes", "list"]),
        ({"epochs": float("nan")}, ["epochs", "nan", "whole number"]),
        ({"seed": 2**32}, ["seed", "4294967296", "at most 4294967295"]),
        ({"outputCols": "p"}, ["outputCols", "'p'", "dict from an output"]),
        ({"epoch": 3}, ["epoch", "Did you mean epochs?"]),
    ],
)
def test_bad_values_are_refused_by_name(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(st.ConfigError) as caught:
        st.KerasEstimator(**given)
    for word in words:
        assert word in str(caught.value)


def test_columns_by_input_become_lists() -> None:
    est = st.KerasEstimator(featureCols={"a": "x", "b": ("y", "z")}, labelCol={"out": "l"})
    assert est.getFeatureCols() == {"a": ["x"], "b": ["y", "z"]}
    assert est.getLabelCol() == {"out": "l"}


def test_functions_and_lists_become_json() -> None:
    made = to_json("metrics", ["mse", {"a": build}])
    assert made[0] == "mse" and set(made[1]["a"]) == {"pickled", "name", "config"}
    assert made[1]["a"]["name"] == f"{__name__}.build" and made[1]["a"]["config"] == {}


def test_a_model_is_a_function_a_model_or_a_file(tmp_path: Any) -> None:
    part = pack_model(build, {"units": 3})
    assert part.function and part.args == {"units": 3} and "build" in part.name
    with pytest.raises(st.ConfigError, match="no model"):
        pack_model(None, None)
    with pytest.raises(st.ConfigError, match="cannot be read"):
        pack_model(str(tmp_path / "none.keras"), None)
    (tmp_path / "text.keras").write_text("hello")
    with pytest.raises(st.ConfigError, match="not a model of Keras 3"):
        pack_model(str(tmp_path / "text.keras"), None)
    with pytest.raises(st.ConfigError, match="got a builtins"):
        pack_model(3, None)


def test_a_function_that_cannot_travel_is_named() -> None:
    import threading

    lock = threading.Lock()

    def bad() -> Any:
        return lock

    with pytest.raises(st.FunctionError, match="bad"):
        pack_model(bad, None)


def test_classes_may_come_from_numpy() -> None:
    import numpy as np

    assert st.KerasEstimator(classes=np.array([3, 1])).getClasses() == [3, 1]
    assert st.KerasEstimator(classes=("a", "b")).getClasses() == ["a", "b"]
