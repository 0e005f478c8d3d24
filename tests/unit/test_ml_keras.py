"""Models of Keras on their way: their names, classes of the user's own, what is standardised."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.driver.model_sources import pack_keras
from sparktrain.fit_spec import DataSpec
from sparktrain.ml.packing import pack_model
from sparktrain.ml.prepare import Prepared
from sparktrain.ml.same_fit import fingerprint
from sparktrain.ml.wishes import make_candidate, make_data_wishes
from sparktrain.scoring.model_info import describe_keras
from sparktrain.scoring.own_classes import find_own, load_with, open_classes, pack_classes
from sparktrain.scoring.spec import TensorInfo
from sparktrain.trainer.fit_model import build_model, compile_model, standardise

keras = pytest.importorskip("keras")
ROW = np.ones((1, 2), "float32")
MOMENTS = {"x": (np.array([1.0, 3.0], "float32"), np.array([4.0, 4.0], "float32"))}


def make_own() -> Any:
    """With a layer, an activation and an initializer that nobody can import."""

    class Twice(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            return values * 2

    class Threes(keras.initializers.Initializer):  # type: ignore[misc]
        def __call__(self, shape: Any, dtype: Any = None) -> Any:
            return keras.ops.full(shape, 3, dtype)

        def get_config(self) -> dict[str, Any]:
            return {}

    def negative(values: Any) -> Any:
        return -values

    inner = keras.Sequential([keras.Input((2,)), Twice()])
    last = keras.layers.Dense(1, activation=negative, kernel_initializer=Threes())
    return keras.Sequential([keras.Input((2,)), inner, last])


def test_classes_of_ones_own_travel_with_the_model(tmp_path: Path) -> None:
    model = make_own()
    source = pack_keras(model)
    assert set(find_own(model)) == {"Twice", "Threes", "negative"}
    path = tmp_path / "own.keras"
    path.write_bytes(source.packed)
    with pytest.raises((TypeError, ValueError), match="Could not locate"):
        load_with(keras.saving, str(path), b"")
    again = load_with(keras.saving, str(path), source.classes, compile=False)
    assert again(ROW).numpy().tolist() == [[-12.0]]
    assert pack_classes(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])) == b""
    assert open_classes(b"") == {}


def test_what_a_model_is_compiled_with_travels_where_it_is_trained(tmp_path: Path) -> None:
    def twice(function: Any) -> Any:
        @functools.wraps(function)
        def both(y_true: Any, y_pred: Any) -> Any:
            return 2 * function(y_true, y_pred)

        return both

    @twice
    def off(y_true: Any, y_pred: Any) -> Any:
        return keras.ops.abs(y_true - y_pred)

    def far(y_true: Any, y_pred: Any) -> Any:
        return keras.ops.max(keras.ops.abs(y_true - y_pred))

    class Falling(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        def __call__(self, step: Any) -> Any:
            return 0.1 / (step + 1)

        def get_config(self) -> dict[str, Any]:
            return {}

    model = make_own()
    inner = keras.metrics.MeanMetricWrapper(far, name="farthest")
    model.compile(keras.optimizers.SGD(Falling()), [off], metrics=[[inner, "mae"]])
    layers = {"Twice", "Threes", "negative"}
    assert set(find_own(model)) == layers
    own = find_own(model, is_trained=True)
    assert set(own) == {*layers, "off", "far", "Falling"} and own["off"] is off
    path = tmp_path / "own.keras"
    model.save(path)
    again = load_with(keras.saving, str(path), pack_classes(model, is_trained=True))
    again.evaluate(ROW, -ROW[:, :1], verbose=0)
    found = again.get_metrics_result()
    assert found["loss"] == 22.0 and found["farthest"] == found["mae"] == 11.0


def test_a_class_that_cannot_travel_is_named() -> None:
    import threading

    lock = threading.Lock()

    class Locked(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            with lock:
                return values

    with pytest.warns(UserWarning, match=r"Locked.*register_keras_serializable"):
        assert pack_classes(keras.Sequential([keras.Input((2,)), Locked()])) == b""


def test_a_model_packed_again_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras.src.saving.saving_lib as saving

    class Later(saving.datetime.datetime):  # type: ignore[misc,name-defined]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2099, 1, 1)

    model = make_own()
    est = st.KerasRegressor(model=model, featureCols=["x"], labelCol="y", loss="mse")
    before, first = pack_keras(model), make_candidate(est.getOrDefault, False)
    monkeypatch.setattr(saving.datetime, "datetime", Later)
    after, second = pack_keras(model), make_candidate(est.getOrDefault, False)
    assert before.packed != after.packed and before.key == after.key
    prepared = Prepared({}, DataSpec(("x",), ()))
    assert fingerprint(prepared, [first]) == fingerprint(prepared, [second])
    model.layers[-1].set_weights([np.zeros((2, 1)), np.zeros(1)])
    assert pack_keras(model).key != before.key


def test_a_model_may_be_called_like_its_output_or_input() -> None:
    class Mine(keras.Model):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.last = keras.layers.Dense(1)

        def call(self, values: Any) -> Any:
            return self.last(values)

    inputs = keras.Input((2,), name="x")
    outputs = keras.layers.Dense(1, name="out")(inputs)
    models = [
        build_model(Mine(), [TensorInfo("x", "float32", (2,))]),
        keras.Model(inputs, outputs, name="out"),
        keras.Model(inputs, outputs, name="x"),
        keras.Model(inputs, {"p": outputs}, name="x_standard"),
    ]
    for model, output in zip(models, ["mine", "out", "out", "p"], strict=True):
        expected = model(np.array([[0.0, -1.0]], "float32"))
        made = standardise(model, MOMENTS)
        info = describe_keras(made)
        assert [one.name for one in info.inputs] == ["x"]
        assert [one.name for one in info.outputs] == [output]
        found = made(ROW)
        if output == "p":
            expected, found = expected["p"], found["p"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    both = keras.Model(inputs, [inputs, outputs])
    with pytest.raises(st.ConfigError, match="an input and an output 'x'"):
        standardise(both, MOMENTS)


def test_the_rate_is_set_inside_of_an_optimizer_that_scales_the_loss() -> None:
    """Models of mixed precision have one around their own."""
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    scaling = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0)
    falling = keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.9)
    for rate, first in ((0.05, 0.05), (falling, 0.5)):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(scaling, "mse")
        est = st.KerasRegressor(model=len, learningRate=rate)
        compile_model(model, make_candidate(est.peek, False), "m")
        found = model.optimizer
        assert type(found) is type(scaling) and found.initial_scale == 8.0
        assert found.inner_optimizer.momentum == 0.9
        assert float(found.inner_optimizer.learning_rate) == pytest.approx(first)
    assert float(inner.learning_rate) == pytest.approx(0.1)


def test_a_list_of_losses_goes_by_the_order_of_the_outputs() -> None:
    inputs = keras.Input((4,))
    layers = [keras.layers.Dense(3, name="kind"), keras.layers.Dense(1, name="size")]
    losses = ["sparse_categorical_crossentropy", "mse"]
    labels = {"size": "width", "kind": "species"}

    def find(model: Any, loss: Any, is_compiled: bool = False) -> Any:
        if is_compiled:
            model.compile("sgd", loss)
        part = pack_model(model, None)
        est = st.KerasEstimator(labelCol=labels, loss=None if is_compiled else loss)
        return make_data_wishes(est.peek, part, None).is_of_classes

    model = keras.Model(inputs, [one(inputs) for one in layers])
    for is_compiled in (False, True):
        assert find(model, losses, is_compiled) == {"kind": True, "size": False}
        assert find(model, losses[::-1], is_compiled) == {"kind": False, "size": True}
    for unknown in (len, keras.Model(inputs, {one.name: one(inputs) for one in layers})):
        assert find(unknown, losses) == {"kind": None, "size": None}
        assert find(unknown, ["mse", "mae"]) == {"kind": False, "size": False}
