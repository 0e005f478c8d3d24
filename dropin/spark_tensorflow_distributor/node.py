"""What runs in each node, and in the driver's own process."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensorflowonspark import strategies

VISIBLE = "CUDA_VISIBLE_DEVICES"


def count_gpus(num_slots: int, num_tasks: int, index: int) -> int:
    """How many of all GPUs the task of this number uses: the first ones one more."""
    return num_slots // num_tasks + (index < num_slots % num_tasks)


def cut_visible(environ: Mapping[str, str], num_gpus: int) -> str:
    """The first GPUs of what this node was given: num_slots counts, not what tasks have."""
    given = [one for one in environ.get(VISIBLE, "").split(",") if one and one != "-1"]
    if len(given) < num_gpus:
        raise RuntimeError(f"The task has {len(given)} GPUs, expected {num_gpus}.")
    return ",".join(given[:num_gpus])


def make_tf_config(cluster: Mapping[str, Sequence[str]], rank: int) -> str:
    """Workers only: programs ask for the worker with index 0."""
    workers = [*cluster.get("chief", ()), *cluster.get("worker", ())]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    return json.dumps(config)


def run_node(ctx: Any) -> Any:
    """The function of st.run(); what the user's returns is what it returns."""
    train_fn, kwargs, num_gpus, is_custom = ctx.args
    os.environ[VISIBLE] = cut_visible(os.environ, num_gpus[ctx.rank]) if num_gpus else ""
    os.environ["TF_CONFIG"] = make_tf_config(ctx.cluster_spec, ctx.rank)
    # Before TensorFlow is loaded; a strategy of the user's own is one that Keras 3 trains with.
    strategies.install(lambda strategy: ctx.use_strategy(strategy, is_together=True))
    if is_custom:
        return train_fn(**kwargs)
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        return train_fn(**kwargs)


def run_here(
    train_fn: Callable[..., Any], kwargs: dict[str, Any], gpus: str, is_custom: bool
) -> Any:
    """In the driver's process, on its own GPUs."""
    with _variable(VISIBLE, gpus):
        if is_custom:
            return train_fn(**kwargs)
        from sparktrain.trainer.strategy import KerasMirroredStrategy

        # May be made at any time, also where this process has computed already.
        with KerasMirroredStrategy().scope():
            return train_fn(**kwargs)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
