"""The models of bench/inference.py, and their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Name -> rows, values of a row: some seconds of work, beside which starting a job is little.
SIZES = {"mlp": (3_200_000, 100), "cnn": (192_000, 784), "lstm": (128_000, 784)}
#: Each row is scored so many times: Spark has them in memory once.
TIMES = 8
BATCH = 512


def build(name: str) -> Any:
    import keras

    layers = keras.layers
    keras.utils.set_random_seed(1)
    if name == "mlp":
        body = [keras.Input((100,), name="x"), layers.Dense(256, "relu"), layers.Dense(256, "relu")]
    elif name == "cnn":
        body = [
            keras.Input((28, 28, 1), name="x"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
        ]
    else:
        body = [
            keras.Input((28, 28), name="x"),
            layers.LSTM(64, return_sequences=True),
            layers.LSTM(64),
        ]
    return keras.Sequential([*body, layers.Dense(10, "softmax", name="y")])


def write(name: str, folder: Path) -> Path:
    """As a file of Keras, and beside it as a SavedModel."""
    model = build(name)
    model.save(folder / f"{name}.keras")
    model.export(folder / name, verbose=False)
    return folder / f"{name}.keras"


def make_rows(name: str, count: int) -> Any:
    import numpy as np

    generator = np.random.default_rng(2)
    if name == "cnn":  # pictures are bytes
        return generator.integers(0, 256, (count, SIZES[name][1]), dtype="uint8")
    return generator.random((count, SIZES[name][1]), dtype="float32")
