"""Trains on two devices of one process, and on one: a program of its own, for TensorFlow's sake."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.agent.doors import make_door
from sparktrain.spec import NodeSpec
from sparktrain.trainer.gpus import limit_memory, make_server_config
from sparktrain.trainer.periodic import make_sync_callback
from sparktrain.trainer.progress import _local_count
from sparktrain.trainer.store import Store
from sparktrain.trainer.store_door import OpenStore
from sparktrain.trainer.strategy import KerasMirroredStrategy
from sparktrain.wire.flight import Door
from sparktrain.wire.parameters import Stores


def fit(strategy: Any) -> list[float]:
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


def make_images(num_rows: int) -> Any:
    """Of unknown length, as rows of a table are."""
    images = np.random.default_rng(0).normal(size=(num_rows, 8, 8, 1)).astype("float32")
    labels = (images.sum((1, 2, 3)) > 0).astype("int64")
    kinds = (tf.TensorSpec((8, 8, 1), tf.float32), tf.TensorSpec((), tf.int64))
    rows = tf.data.Dataset.from_generator(
        lambda: zip(images, labels, strict=True), output_signature=kinds
    )
    return rows.batch(16)


def make_model(strategy: Any) -> Any:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(4, 3),
                keras.layers.BatchNormalization(),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(2, "softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
    return model


def find_apart(strategy: Any, model: Any) -> list[str]:
    """Variables that are not the same on all devices."""
    return [
        variable.path
        for variable in model.variables
        if len(
            {one.numpy().tobytes() for one in strategy.experimental_local_results(variable.value)}
        )
        > 1
    ]


def fit_odd(strategy: Any) -> dict[str, Any]:
    """The last batch has one row: a device has none."""
    model = make_model(strategy)
    counts: list[int | None] = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: counts.append(_local_count(model, strategy))
    )
    history = model.fit(make_images(33), epochs=3, verbose=0, callbacks=[note])
    return {
        "is finite": bool(np.isfinite(history.history["loss"]).all()),
        "steps": int(model.optimizer.iterations.numpy()),
        "counts": counts,
        "waited": strategy.clock.seconds > 0,
        "apart": find_apart(strategy, model),
    }


def meet(strategy: Any) -> dict[str, Any]:
    """Meets a parameter server from both devices, and alone from another model."""
    with tempfile.TemporaryDirectory() as folder:
        door, secret = make_door(NodeSpec("ps", 0), "127.0.0.1", Path(folder), "secret")
        with OpenStore(secret, Store()) as opened:
            stores = Stores((Door(**{**door.to_dict(), "port": opened.port}),), "secret")
            context: Any = SimpleNamespace(
                stores=stores, rank=0, num_workers=2, role="chief", index=0, should_stop=False
            )
            wishes: dict[str, Any] = {"rule": "average", "alpha": None, "wait_s": 0.0}
            mirrored = make_model(strategy)
            sync = make_sync_callback(
                keras, context, mirrored, "model-0", sync_interval=2, **wishes
            )
            before = mirrored.get_weights()
            mirrored.fit(make_images(33), epochs=2, verbose=0, callbacks=[sync])
            context.rank = 1
            alone = make_model(tf.distribute.get_strategy())
            late = make_sync_callback(keras, context, alone, "model-0", sync_interval=9, **wishes)
            late.on_train_begin()  # takes what is there
            weights = mirrored.get_weights()
            return {
                "syncs": sync.num_syncs,
                "moved": all(
                    not np.allclose(old, new) for old, new in zip(before, weights, strict=True)
                ),
                "taken": all(
                    np.array_equal(old, new)
                    for old, new in zip(weights, alone.get_weights(), strict=True)
                ),
                "apart": find_apart(strategy, mirrored),
            }


def main() -> None:
    limit_memory(100)  # without a GPU there is nothing to limit
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    two = KerasMirroredStrategy(["CPU:0", "CPU:1"])
    options = make_server_config(2, 300).gpu_options.experimental.virtual_devices
    answer = {
        "replicas": two.num_replicas_in_sync,
        "two": fit(two),
        "one": fit(tf.distribute.get_strategy()),
        "odd": fit_odd(two),
        "met": meet(two),
        "server": [list(one.memory_limit_mb) for one in options],
        "free server": len(make_server_config(2, 0).gpu_options.experimental.virtual_devices),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
