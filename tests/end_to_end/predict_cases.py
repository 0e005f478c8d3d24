"""Models for scoring, written once for all tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def write_models(folder: Path) -> dict[str, Any]:
    """Makes each model, saves it, and keeps it to compare with."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    layers = keras.layers
    inputs = keras.Input((4,), name="features")
    hidden = layers.Dense(5, activation="relu", name="hidden")(inputs)
    model = keras.Model(inputs, layers.Dense(3, activation="softmax", name="scores")(hidden))
    model.save(folder / "flat.keras")
    model.export(folder / "flat_saved", verbose=False)
    model.save_weights(folder / "flat.weights.h5")
    model.save(folder / "flat.h5")

    left, right = keras.Input((2,), name="left"), keras.Input((2, 2), name="right")
    joined = layers.Concatenate()([left, layers.Flatten()(right)])
    both = keras.Model(
        {"left": left, "right": right},
        {
            "one": layers.Dense(1, name="one")(joined),
            "grid": layers.Reshape((3, 2), name="grid")(layers.Dense(6)(joined)),
        },
    )
    both.save(folder / "both.keras")

    words = keras.Input((None,), dtype="int32", name="words")
    mean = layers.GlobalAveragePooling1D()(layers.Embedding(20, 3)(words))
    text = keras.Model(words, layers.Dense(1, name="mood")(mean))
    text.save(folder / "text.keras")

    class Strings(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="line")])
        def serve(self, line: Any) -> dict[str, Any]:
            number = tf.strings.to_number(line)  # fails for what is no number
            return {"upper": tf.strings.upper(line), "number": number}

        @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32, name="x")])
        def pairs(self, x: Any) -> dict[str, Any]:
            return {"sum": tf.reduce_sum(x, axis=1)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="line")])
        def split(self, line: Any) -> dict[str, Any]:
            return {"parts": tf.strings.split(line, "-")}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="line")])
        def odd(self, line: Any) -> dict[str, Any]:
            """For one line what is no text."""
            return {
                "raw": tf.where(line == "odd", b"\xff", line),
                "size": tf.strings.length(line),
            }

    module = Strings()
    tf.saved_model.save(
        module,
        str(folder / "strings"),
        signatures={
            "serving_default": module.serve,
            "pairs": module.pairs,
            "split": module.split,
            "odd": module.odd,
        },
    )
    return {"flat": model, "both": both, "text": text}


def build_flat() -> Any:
    import keras

    inputs = keras.Input((4,), name="features")
    hidden = keras.layers.Dense(5, activation="relu", name="hidden")(inputs)
    outputs = keras.layers.Dense(3, activation="softmax", name="scores")(hidden)
    return keras.Model(inputs, outputs)


def write_keras_2(folder: Path) -> list[Any]:
    """A model that Keras 3 does not read, in both of the forms that Keras 2 writes.

    Returns:
        Its answers to ones, for each row of words.
    """
    import numpy as np
    import tf_keras

    tf_keras.utils.set_random_seed(3)
    words = tf_keras.Input((4, 1), name="words")
    hidden = tf_keras.layers.LSTM(3)(words)
    model = tf_keras.Model(words, tf_keras.layers.Dense(2, name="mood")(hidden))
    model.save(folder / "old.keras")
    model.save(folder / "old.h5")
    found: list[Any] = model(np.ones((1, 4, 1), "float32")).numpy()[0].tolist()
    return found


if __name__ == "__main__":
    # A process of its own: Keras 2 and Keras 3 share what TensorFlow has one of.
    print(json.dumps(write_keras_2(Path(sys.argv[1]))))
