"""Trains on two devices of one process, and on one: a program of its own, for TensorFlow's sake."""

from __future__ import annotations

import json
import sys
from typing import Any


def fit(strategy: Any) -> list[float]:
    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(8), keras.layers.Dense(2, "softmax")]
        )
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.arange(60, dtype="float32").reshape(20, 3) / 60
    # Whole numbers have no mean, which Keras asks for to build the model; the last batch is odd.
    dataset = tf.data.Dataset.from_tensor_slices((x, np.arange(20) % 2)).batch(8)
    history = model.fit(dataset, epochs=2, verbose=0).history
    history |= {"evaluated": model.evaluate(dataset, verbose=0)}
    return [
        float(v)
        for v in [*history["loss"], *history["evaluated"], int(model.optimizer.iterations.numpy())]
    ]


def main() -> None:
    import tensorflow as tf

    from sparktrain.trainer.gpus import limit_memory, make_server_config
    from sparktrain.trainer.strategy import KerasMirroredStrategy

    limit_memory(100)  # without a GPU there is nothing to limit
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    two = KerasMirroredStrategy(["CPU:0", "CPU:1"])
    options = make_server_config(2, 300).gpu_options.experimental.virtual_devices
    answer = {
        "replicas": two.num_replicas_in_sync,
        "two": fit(two),
        "one": fit(tf.distribute.get_strategy()),
        "server": [list(one.memory_limit_mb) for one in options],
        "free server": len(make_server_config(2, 0).gpu_options.experimental.virtual_devices),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
