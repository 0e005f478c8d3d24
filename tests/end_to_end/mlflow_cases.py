"""Model functions of test_mlflow.py: trainers import them."""

from __future__ import annotations

from typing import Any


def build(units: int = 8) -> Any:
    import keras

    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(3, "softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def break_it() -> Any:
    raise RuntimeError("this model is broken")


def build_flattening() -> Any:
    import keras

    model = keras.Sequential(
        [keras.Input((2, 3)), keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    return model
