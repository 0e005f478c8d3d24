"""Programs for Keras 2 (tf_keras), when the user asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparktrain as st


def train(ctx: Any) -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    keras = tf.keras
    rng = np.random.default_rng(0)
    features = rng.normal(size=(64, 4)).astype("float32")
    labels = (features[:, :1] > 0).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(16)
    keras.utils.set_random_seed(3)
    with ctx.strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1, "sigmoid")]
        )
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["AUC"])
    history = model.fit(dataset, epochs=3, verbose=0, callbacks=ctx.callbacks())
    path = ctx.export(model)
    return {
        "module": type(model).__module__,
        "loss": history.history["loss"],
        "evaluated": model.evaluate(dataset, verbose=0),
        "weights": [value for weight in model.get_weights() for value in weight.ravel().tolist()],
        "predicted": len(model.predict(dataset, verbose=0)),
        "path": path,
    }


train.__module__ = "__main__"  # travels by value


def test_two_workers_equal_one_process(spark: Any, tmp_path: Path) -> None:
    one, two = (
        st.run(
            train,
            num_workers=num_workers,
            spark=spark,
            run_dir=tmp_path / str(num_workers),
            env={"TF_USE_LEGACY_KERAS": "1"},
            progress=False,
        )
        for num_workers in (1, 2)
    )
    assert two.value["module"].startswith("tf_keras")
    assert [row["epoch"] for row in two.metrics] == [1, 2, 3]
    assert two.value["weights"] == pytest.approx(one.value["weights"], abs=1e-5)
    assert two.value["loss"] == pytest.approx(one.value["loss"], abs=1e-5)
    assert two.value["evaluated"] == pytest.approx(one.value["evaluated"], abs=1e-5)
    assert two.value["predicted"] == 64 and Path(two.model_path or "").exists()
    assert [(node.rows, node.steps) for node in two.nodes] == [(96, 12), (96, 12)]


def train_with_histograms(ctx: Any) -> dict[str, float]:
    import numpy as np
    import tensorflow as tf

    keras = tf.keras
    with ctx.strategy.scope():
        layers = [keras.Input((2,)), keras.layers.Dense(4), keras.layers.BatchNormalization()]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.arange(128, dtype="float32").reshape(64, 2)
    callbacks = ctx.callbacks(events=["histograms"])
    model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0, callbacks=callbacks)
    # What each worker has seen differs until somebody makes one of it.
    own = [ctx.strategy.experimental_local_results(weight)[0] for weight in model.weights]
    return {weight.name.split(":")[0]: float(tf.reduce_min(weight)) for weight in own}


train_with_histograms.__module__ = "__main__"  # travels by value


@pytest.mark.slow
def test_histograms_of_weights_that_differ_between_workers(spark: Any, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    result = st.run(
        train_with_histograms,
        num_workers=2,
        spark=spark,
        run_dir=tmp_path / "run",
        env={"TF_USE_LEGACY_KERAS": "1"},
        progress=False,
    )
    events = EventAccumulator(str(tmp_path / "run/tensorboard/train")).Reload()
    tags = events.PluginTagToContent("histograms")
    least = {
        # Of the last epoch: the left edge of the first bucket.
        tag.split("_0/")[0].removesuffix("/histogram"): float(
            make_ndarray(events.Tensors(tag)[-1].tensor_proto)[0][0]
        )
        for tag in tags
    }
    assert len(tags) == 8 and "batch_normalization/moving_mean" in least
    assert least == pytest.approx(result.value, rel=1e-4)
