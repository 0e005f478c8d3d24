"""Functions that nodes of the runner run; they travel by value."""

from __future__ import annotations

import json
import os
from typing import Any


def look(**kwargs: Any) -> dict[str, Any]:
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    return {
        "kwargs": kwargs,
        "config": json.loads(os.environ["TF_CONFIG"]),
        "visible": os.environ["CUDA_VISIBLE_DEVICES"],
        "replicas": strategy.num_replicas_in_sync,
        "is_default": not tf.distribute.has_strategy(),
        "losses": fit(is_own=False),
    }


def fit(is_own: bool) -> list[float]:
    """A model in the runner's scope, or in that of a strategy of its own."""
    import contextlib

    import numpy as np
    import tensorflow as tf

    scope: Any = contextlib.nullcontext()
    if is_own:
        scope = tf.distribute.experimental.MultiWorkerMirroredStrategy().scope()
    tf.keras.utils.set_random_seed(1)
    with scope:
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.arange(48, dtype="float32").reshape(16, 3) / 48
    dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).batch(8)
    losses = model.fit(dataset, epochs=3, verbose=0).history["loss"]
    return [float(loss) for loss in losses]


def fail() -> None:
    raise KeyError("on purpose")
