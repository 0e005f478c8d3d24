"""One of two workers that train together on two devices each: a program of its own.

    python many_devices_cases.py RANK PORT PORT

Without GPUs, two parts of the processor stand for them, which TensorFlow would not use by itself.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

#: Rows by worker: some have none left while the others go on.
NUM_ROWS = (37, 13)


def use_two_devices(tf: Any) -> None:
    from tensorflow.python.distribute import collective_all_reduce_strategy as collective

    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)

    def find(self: Any, resolver: Any, worker_device: str) -> Any:
        return tuple(f"{worker_device}/device:CPU:{n}" for n in range(2)), "CPU"

    collective.CollectiveAllReduceExtended._initialize_local_devices = find


def main(rank: int, ports: list[str]) -> None:
    workers = [f"127.0.0.1:{port}" for port in ports]
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})

    import keras
    import numpy as np
    import tensorflow as tf

    from sparktrain.trainer.progress import _local_count
    from sparktrain.trainer.strategy import KerasMultiWorkerStrategy, turn_sharding_off

    use_two_devices(tf)
    strategy = KerasMultiWorkerStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(8),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(2, "softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.random.default_rng(rank).normal(size=(NUM_ROWS[rank], 3)).astype("float32")
    kinds = (tf.TensorSpec((3,), tf.float32), tf.TensorSpec((), tf.int64))
    rows = tf.data.Dataset.from_generator(
        lambda: zip(x, x[:, 0] > 0, strict=True), output_signature=kinds
    )
    dataset = turn_sharding_off(rows.batch(16))
    counts: list[int | None] = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: counts.append(_local_count(model, strategy))
    )
    history = model.fit(dataset, epochs=3, verbose=0, callbacks=[note]).history
    answer = {
        "replicas": strategy.num_replicas_in_sync,
        "counts": counts,
        "history": history,
        "evaluated": model.evaluate(dataset, verbose=0),
        "weights": [float(np.abs(one).sum()) for one in model.get_weights()],
        "apart": [
            variable.path
            for variable in model.variables
            if len(
                {
                    one.numpy().tobytes()
                    for one in strategy.experimental_local_results(variable.value)
                }
            )
            > 1
        ],
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
