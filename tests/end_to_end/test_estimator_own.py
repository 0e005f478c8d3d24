"""Models with layers, losses and metrics of one's own: trained, saved, and loaded without them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder, TrainValidationSplit

import estimator_cases as cases
import sparktrain as st

SCRIPT = Path(__file__).with_name("own_session.py")

#: Two modules beside a user's script.
MODULES = {
    "own_layers.py": """
import keras
import own_parts


class Base(keras.layers.Layer):
    def call(self, values):
        return values * own_parts.FACTOR


@keras.saving.register_keras_serializable("own")
class Twice(Base):
    pass


def build():
    layers = [keras.Input((5,)), Twice(), keras.layers.Dense(1, activation=own_parts.as_it_is)]
    return keras.Sequential(layers)
""",
    "own_parts.py": """
import keras

FACTOR = 2.0


def as_it_is(values):
    return values


def half_square(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1) / FACTOR


def largest(y_true, y_pred):
    return keras.ops.max(keras.ops.abs(y_true - y_pred))


class Count(keras.metrics.Metric):
    def __init__(self, name="count", **options):
        super().__init__(name=name, **options)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(FACTOR / FACTOR)

    def result(self):
        return self.total


class Slow(keras.optimizers.SGD):
    pass


class Quiet(keras.callbacks.Callback):
    pass


def make_callbacks():
    return [Quiet()]
""",
}


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "code"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in MODULES:
        sys.modules.pop(name.removesuffix(".py"), None)


def build_own() -> Any:
    from own_layers import build  # type: ignore[import-not-found]

    return build()


build_own.__module__ = "__main__"  # travels by value; what it imports does not


def make(**wishes: Any) -> st.KerasRegressor:
    kept = {"featureCols": ["x"], "labelCol": "y", "batchSize": 16, "epochs": 2, "seed": 5}
    return st.KerasRegressor(**{**kept, "shuffle": False, "progress": False, **wishes})


def load_elsewhere(model: Any, frame: Any, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    model.write().save(str(folder / "model"))
    return ask_elsewhere(frame, folder, SCRIPT)


def ask_elsewhere(frame: Any, folder: Path, script: Path) -> dict[str, Any]:
    """What the script says in a process without the modules."""
    frame.write.parquet(str(folder / "rows.parquet"))
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    assert not answer["is known"]
    return answer


def test_a_function_that_imports_own_layers(spark: Any, code: Path, tmp_path: Path) -> None:
    """What the nodes import from beside the script is saved with the model."""
    frame = cases.make_line(spark)
    model = make(model=build_own, loss="mse").fit(frame)
    expected = [row["prediction"] for row in model.transform(frame).orderBy("y").collect()]
    answer = load_elsewhere(model, frame, tmp_path / "elsewhere")
    np.testing.assert_allclose(answer["scored"], expected, rtol=1e-5)
    np.testing.assert_allclose(answer["plain"], expected, rtol=1e-5)
    context = spark.sparkContext
    context.setJobGroup("looks", "how often a worker is asked what the model is")
    st.predict(frame, model)
    st.predict_udf(model, spark=spark)
    assert not context.statusTracker().getJobIdsForGroup("looks")  # it is remembered
    layer = model.keras_model().layers[0].name
    inner = st.predict(frame, model, outputs={layer: "twice"})
    assert len(context.statusTracker().getJobIdsForGroup("looks")) == 1
    context.setLocalProperty("spark.jobGroup.id", None)
    row = inner.first()
    np.testing.assert_allclose(row["twice"], np.array(row["x"]) * 2, rtol=1e-6)


def test_an_object_that_is_compiled_with_own_parts(
    spark: Any, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by hand, also where the nodes cannot import the modules."""
    import keras
    import own_parts  # type: ignore[import-not-found]

    keras.utils.set_random_seed(5)
    given = build_own()
    metrics = [own_parts.largest, own_parts.Count()]
    given.compile(own_parts.Slow(0.01), own_parts.half_square, metrics=metrics)
    by_hand = build_own()
    by_hand.set_weights(given.get_weights())
    by_hand.compile(own_parts.Slow(0.01), own_parts.half_square)
    features, labels, _ = cases.line()
    history = by_hand.fit(features, labels, batch_size=16, epochs=2, shuffle=False, verbose=0)

    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(code)])
    frame = cases.make_line(spark)
    model = make(model=given).fit(frame)
    assert set(model.history.columns) == {"loss", "largest", "count"}
    np.testing.assert_allclose(model.history["loss"], history.history["loss"], rtol=1e-5)
    assert model.history["count"].tolist() == [4, 4]
    again = model.keras_model()
    assert again.compiled and type(again.optimizer).__name__ == "Slow"
    expected = by_hand.predict(features, verbose=0)[:, 0]
    found = [row["prediction"] for row in model.transform(frame).collect()]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    answer = load_elsewhere(model, frame, tmp_path / "elsewhere")
    np.testing.assert_allclose(answer["scored"], np.array(found)[np.argsort(labels)], rtol=1e-5)
    assert answer["compiled"] and answer["loss"] == "half_square"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Spark's own pool
@pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool")
def test_searches_are_loaded_and_trained_elsewhere(spark: Any, code: Path, tmp_path: Path) -> None:
    """A search in a pipeline in a pipeline, and one that is fitted, without the code of either."""
    import own_layers
    import own_parts

    frame = cases.make_line(spark)
    evaluator = RegressionEvaluator(labelCol="y", metricName="mae")
    est = make(
        model=own_layers.build(),
        loss=own_parts.half_square,
        metrics=[own_parts.Count()],
        callbacks=own_parts.make_callbacks,
    )
    grid = ParamGridBuilder().addGrid(est.learningRate, [0.001, 0.01]).build()
    search = CrossValidator(
        estimator=est, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1
    ).fit(frame)
    inner = TrainValidationSplit(
        estimator=est.copy({est.model: own_layers.build}),
        estimatorParamMaps=grid,
        evaluator=evaluator,
        seed=1,
    )
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    search.write().save(str(folder / "search"))
    Pipeline(stages=[Pipeline(stages=[inner])]).write().save(str(folder / "pipeline"))
    answer = ask_elsewhere(frame, folder, SCRIPT.with_name("kept_session.py"))
    assert not answer["keras"]  # nothing of the estimators is opened to load them
    expected = [row["prediction"] for row in search.transform(frame).orderBy("y").collect()]
    np.testing.assert_allclose(answer["scored"], expected, rtol=1e-5)
    assert len(answer["metrics"]) == 2 and answer["history"] == ["count", "loss"]


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
def test_what_cannot_travel_is_refused_before_the_run(spark: Any, tmp_path: Path) -> None:
    import threading

    import keras

    frame = cases.make_line(spark)
    lock = threading.Lock()

    class Locked(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            with lock:
                return values

    locked = keras.Sequential([keras.Input((5,)), Locked(), keras.layers.Dense(1)])
    nameless = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    nameless.compile("sgd", lambda y_true, y_pred: (y_true - y_pred) ** 2)
    for model, words in ((locked, "Locked.*cannot be sent.*lock"), (nameless, "has a lambda")):
        with pytest.raises(st.ConfigError, match=words):
            make(model=model, loss="mse", runDir=str(tmp_path / "run")).fit(frame)
    assert not (tmp_path / "run").exists()
