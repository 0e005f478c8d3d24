"""Models and data of the estimator's tests; sent to the nodes by value."""

from __future__ import annotations

from typing import Any

import numpy as np

IRIS = ("setosa", "versicolor", "virginica")


def make_iris(spark: Any) -> Any:
    """Real flowers: an id, four measures as doubles, a vector's worth of them, species."""
    from sklearn.datasets import load_iris

    features, labels = load_iris(return_X_y=True)
    rows = [
        (number, *map(float, row), [float(one) for one in row], IRIS[label], int(label))
        for number, (row, label) in enumerate(zip(features, labels, strict=True))
    ]
    schema = "id int, a double, b double, c double, d double, measures array<float>"
    schema += ", species string, label int"
    return spark.createDataFrame(rows, schema).repartition(3, "id").cache()


def make_digits(spark: Any, limit: int | None = None) -> Any:
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    rows = [
        ([float(one) for one in row], int(label))
        for row, label in zip(features[:limit], labels[:limit], strict=True)
    ]
    return spark.createDataFrame(rows, "pixels array<float>, label int").repartition(2)


def make_line(spark: Any, num_rows: int = 64) -> Any:
    """Rows in a known order, in one partition."""
    rows = [
        (row.tolist(), float(label), float(weight))
        for row, label, weight in zip(*line(num_rows), strict=True)
    ]
    return spark.createDataFrame(rows, "x array<float>, y double, w double").coalesce(1).cache()


def line(num_rows: int = 64) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(num_rows, 5)).astype("float32")
    labels = (features @ np.arange(1, 6) + 1).astype("float32")
    return features, labels, 1 + np.arange(num_rows, dtype="float32") % 3


def build_flat(units: int = 16, classes: int = 3) -> Any:
    import keras

    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(classes, activation="softmax"),
        ]
    )


def build_linear() -> Any:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])


def build_sigmoid() -> Any:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])


def build_own() -> Any:
    """A class of one's own, which only this function knows."""
    import keras

    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.last = keras.layers.Dense(1, activation="sigmoid")

        def call(self, values: Any) -> Any:
            return self.last(values)

    return Own()


def build_logit() -> Any:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


def build_image() -> Any:
    """Knows no input shape, and wants images."""
    import keras

    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def build_line(units: int = 8) -> Any:
    import keras

    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(1)]
    )


def build_unbuilt() -> Any:
    import keras

    return keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])


def build_compiled() -> Any:
    model = build_flat()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def build_words() -> Any:
    """Takes positions of three words."""
    import keras

    return keras.Sequential(
        [
            keras.Input((1,), dtype="int32"),
            keras.layers.Embedding(3, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )


def build_two() -> Any:
    """Two inputs, two outputs, a loss for each."""
    import keras

    wide, one = keras.Input((4,), name="wide"), keras.Input((2,), name="some")
    joined = keras.layers.Concatenate()([wide, one])
    hidden = keras.layers.Dense(16, activation="relu")(joined)
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(hidden)
    size = keras.layers.Dense(1, name="size")(hidden)
    return keras.Model([wide, one], [kind, size])


def train_by_hand(ctx: Any) -> Any:
    """The same as the estimator, in a few lines of Keras."""
    import keras

    epochs, batch_size = ctx.args
    features, labels, weights = line()
    keras.utils.set_random_seed(5)
    model = build_line()
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    history = model.fit(
        features,
        labels,
        sample_weight=weights,
        batch_size=batch_size,
        epochs=epochs,
        shuffle=False,
        verbose=0,
    )
    return model.get_weights(), history.history["loss"]


def count_rows(y_true: Any, y_pred: Any) -> Any:
    import keras

    return keras.ops.ones_like(y_pred[:, 0])


def say(epoch: int, logs: Any) -> None:
    print(f"said in epoch {epoch}")


class KillOnce:
    """Makes a callback that ends its process in the given epoch, the first time it gets there."""

    def __init__(self, marker: str, epoch: int) -> None:
        self.marker, self.epoch = marker, epoch

    def __call__(self) -> list[Any]:
        import os
        import signal
        from pathlib import Path

        import keras

        marker, wished = Path(self.marker), self.epoch

        class Kill(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if epoch == wished and not marker.exists():
                    marker.write_text("killed")
                    os.kill(os.getpid(), signal.SIGKILL)

        return [Kill()]
