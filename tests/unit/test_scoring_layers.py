"""Layers' outputs by name, wherever the layer is in the model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.errors import ModelError
from sparktrain.scoring.scorer import KerasScorer
from sparktrain.trainer.fit_model import standardise

keras: Any = pytest.importorskip("keras", reason="keras is not installed")

ROWS = np.random.default_rng(4).normal(size=(5, 4)).astype("float32")
MEAN, VARIANCE = np.full(4, 2.0, "float32"), np.full(4, 4.0, "float32")


def make_flat(is_sequential: bool) -> Any:
    layers = [
        keras.layers.Dense(8, activation="relu", name="hidden"),
        keras.layers.Dense(3, activation="softmax", name="out"),
    ]
    if is_sequential:
        return keras.Sequential([keras.Input((4,), name="x"), *layers])
    inputs = keras.Input((4,), name="x")
    return keras.Model(inputs, layers[1](layers[0](inputs)))


def save(model: Any, folder: Path) -> Any:
    """As scoring has it: read from a file."""
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def ask(model: Any, *names: str, **feeds: Any) -> dict[str, Any]:
    found = KerasScorer(model, names, "")(feeds or {"x": ROWS})
    return {name: np.asarray(value) for name, value in found.items()}


@pytest.mark.parametrize("is_sequential", [True, False])
def test_layers_behind_standardised_inputs(is_sequential: bool, tmp_path: Path) -> None:
    model = make_flat(is_sequential)
    standard = save(standardise(model, {"x": (MEAN, VARIANCE)}), tmp_path)
    found = ask(standard, "hidden", "x_standard")
    scaled = (ROWS - 2.0) / 2.0
    hidden = keras.Model(model.inputs[0], model.get_layer("hidden").output)
    np.testing.assert_allclose(found["hidden"], hidden(scaled), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["x_standard"], scaled, rtol=1e-5)
    np.testing.assert_allclose(found["out"], model(scaled), rtol=1e-5, atol=1e-6)


def test_layers_of_models_in_models(tmp_path: Path) -> None:
    """Two inputs by name, an inner model of an inner one, and an inner model's own output."""
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    deep = make_flat(False)
    deep.name = "deep"
    sum_ = keras.layers.Add(name="sum")([left, keras.layers.Rescaling(2.0)(right)])
    inner = keras.Model({"left": left, "right": right}, deep(sum_), name="inner")
    outer = {name: keras.Input((4,), name=name) for name in ("left", "right")}
    whole = keras.layers.Dense(2, name="last")(inner(outer))
    model = save(keras.Model(outer, whole), tmp_path)
    found = ask(model, "sum", "hidden", "deep", "inner", left=ROWS, right=ROWS + 1)
    both = ROWS + 2 * (ROWS + 1)
    hidden = keras.Model(deep.inputs[0], deep.get_layer("hidden").output)
    np.testing.assert_allclose(found["sum"], both, rtol=1e-5)
    np.testing.assert_allclose(found["hidden"], hidden(both), rtol=1e-4, atol=1e-5)
    for name in ("deep", "inner"):
        np.testing.assert_allclose(found[name], deep(both), rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_not_there() -> None:
    model = standardise(make_flat(False), {"x": (MEAN, VARIANCE)})
    with pytest.raises(ModelError, match=r"layer 'absent'.*Layers: x, x_standard, .*hidden, out"):
        ask(model, "absent")


def test_layers_of_models_of_keras_2() -> None:
    """In a process of its own: Keras 2 and Keras 3 share what TensorFlow has one of."""
    pytest.importorskip("tf_keras", reason="tf-keras is not installed")
    found = subprocess.run(
        [sys.executable, "-c", KERAS_2], stdout=subprocess.PIPE, text=True, check=True
    )
    shapes = json.loads(found.stdout.splitlines()[-1])
    assert shapes == {"last": [5, 2], "hidden": [5, 8], "inner": [5, 3]}


KERAS_2 = """
import json
import numpy as np
import tf_keras
from sparktrain.scoring.scorer import KerasScorer

inputs = tf_keras.Input((4,), name="x")
hidden = tf_keras.layers.Dense(8, name="hidden")(inputs)
inner = tf_keras.Model(inputs, tf_keras.layers.Dense(3, name="out")(hidden), name="inner")
outer = tf_keras.Input((4,), name="y")
model = tf_keras.Model(outer, tf_keras.layers.Dense(2, name="last")(inner(outer)))
found = KerasScorer(model, ("hidden", "inner"), "")({"y": np.ones((5, 4), "float32")})
part = tf_keras.Model(inner.inputs, hidden)(np.ones((5, 4), "float32"))
np.testing.assert_allclose(found["hidden"], part, rtol=1e-5)
print(json.dumps({name: list(value.shape) for name, value in found.items()}))
"""
