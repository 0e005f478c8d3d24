"""Layers on a batch of no rows, in a process of their own: if one is wrong, TensorFlow may abort.

Prints what is wrong with each layer, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

CASES: dict[str, tuple[tuple[int | None, ...], Callable[[], Sequence[Any]]]] = {
    "dense": ((8,), lambda: [layers.Dense(4)]),
    "conv1d": ((16, 3), lambda: [layers.Conv1D(4, 3, activation="relu"), layers.Conv1D(5, 3)]),
    "conv2d": ((16, 16, 3), lambda: [layers.Conv2D(4, 3, strides=2), layers.Conv2D(5, 3)]),
    "conv3d": ((8, 8, 8, 2), lambda: [layers.Conv3D(4, 3), layers.Conv3D(4, 3)]),
    "dilated": ((16, 16, 3), lambda: [layers.Conv2D(4, 3, dilation_rate=2), layers.Conv2D(4, 3)]),
    "groups": ((16, 16, 4), lambda: [layers.Conv2D(4, 3, groups=2), layers.Conv2D(5, 3)]),
    "transposed": ((8, 8, 3), lambda: [layers.Conv2DTranspose(4, 3, strides=2)]),
    "depthwise": ((16, 16, 3), lambda: [layers.DepthwiseConv2D(3, depth_multiplier=2)]),
    "separable": ((16, 16, 3), lambda: [layers.SeparableConv2D(4, 3)]),
    "max pooling": ((16, 16, 3), lambda: [layers.Dense(4), layers.MaxPooling2D()]),
    "max pooling 1d": ((16, 3), lambda: [layers.Dense(4), layers.MaxPooling1D()]),
    "max pooling 3d": ((8, 8, 8, 3), lambda: [layers.Dense(4), layers.MaxPooling3D()]),
    "average pooling": ((16, 16, 3), lambda: [layers.Dense(4), layers.AveragePooling2D(2)]),
    "conv1d, any length": (
        (None, 3),
        lambda: [layers.Conv1D(4, 5), layers.MaxPooling1D(), layers.Conv1D(4, 3, padding="same")],
    ),
    "conv2d, any size": (
        (None, None, 3),
        lambda: [layers.Conv2D(4, 7, strides=2), layers.MaxPooling2D(), layers.Conv2D(4, 3)],
    ),
    "lstm, any length": ((None, 3), lambda: [layers.LSTM(4)]),
    "batch norm": ((8,), lambda: [layers.Dense(4), layers.BatchNormalization()]),
    "batch norm, conv": (
        (8, 8, 3),
        lambda: [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Conv2D(4, 3)],
    ),
    "layer norm": ((8,), lambda: [layers.Dense(4), layers.LayerNormalization()]),
    "lstm": ((8, 3), lambda: [layers.LSTM(4, return_sequences=True), layers.GRU(3)]),
    "attention": ((8, 3), lambda: [SelfAttention()]),
    "activations": (
        (8,),
        lambda: [
            layers.Dense(4, activation="gelu"),
            layers.PReLU(),
            layers.Dense(4, activation="softmax"),
            layers.Dropout(0.5),
        ],
    ),
}


class SelfAttention(keras.layers.Layer):
    def build(self, input_shape: Any) -> None:
        self.attention = layers.MultiHeadAttention(2, 4)
        self.attention.build(input_shape, input_shape)

    def call(self, inputs: Any) -> Any:
        return self.attention(inputs, inputs)


def examine(shape: tuple[int | None, ...], made: Sequence[Any]) -> str | None:
    """In a step of a strategy, with the batch that TensorFlow gives a worker without rows."""
    from tensorflow.python.distribute import input_lib

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = keras.Sequential([keras.Input(shape), *made])
        model.compile("sgd", "mse")

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            answer = model(x, training=True)
            loss = model.compute_loss(x, tf.zeros_like(answer), answer)
        return answer, tape.gradient(loss, model.trainable_variables)

    spec = tf.TensorSpec((None, *shape))
    compiled = tf.function(lambda x: strategy.run(step, (x,)), input_signature=[spec])
    # With rows all is as ever: what is made for none must not touch them.
    known = tuple(32 if size is None else size for size in shape)
    x = np.random.default_rng(0).random((4, *known), "float32")
    if not all(np.isfinite(np.asarray(leaf)).all() for leaf in tf.nest.flatten(compiled(x))):
        return "not a number for four rows"
    before = [np.array(weight) for weight in model.get_weights()]
    nothing = input_lib._dummy_tensor_fn(spec)
    answer, gradients = compiled(nothing)
    expected = model.compute_output_shape(tuple(nothing.shape))
    if tuple(answer.shape) != (0, *expected[1:]):
        return f"shape {tuple(answer.shape)} instead of {(0, *expected[1:])}"
    if not all((np.asarray(gradient) == 0).all() for gradient in gradients):
        return "gradients that are not zero"
    after = model.get_weights()
    for weight, old, new in zip(model.weights, before, after, strict=True):
        if "seed" not in weight.path and not np.allclose(old, new, atol=1e-6):
            return f"{weight.path} has changed"
    # What is exported is made outside of steps.
    graph = tf.function(model, input_signature=[spec]).get_concrete_function().graph
    if any(op.type in ("If", "StatelessIf") for op in graph.get_operations()):
        return "a choice in the model itself"
    return None


def main() -> None:
    if "--as-it-is" not in sys.argv:
        from sparktrain.trainer.no_rows import allow_steps_without_rows

        allow_steps_without_rows()
        allow_steps_without_rows()  # twice is once
    wrong = {}
    for name, (shape, make) in CASES.items():
        keras.utils.set_random_seed(1)
        try:
            problem = examine(shape, make())
        except Exception as error:
            problem = f"{type(error).__name__}: {str(error)[-200:]}"
        if problem:
            wrong[name] = problem
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
