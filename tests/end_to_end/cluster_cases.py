"""Functions for clusters, as users write them; trainers import this module by its path."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


def note_rows(ctx: Any) -> None:
    """Writes every row it gets to a file of its node."""
    with (Path(ctx.run_dir) / f"{ctx.role}-{ctx.index}.rows").open("w") as file:
        for row in ctx.rows():
            file.write(f"{row!r}\n")


def note_ids(ctx: Any) -> None:
    """Notes the ids it gets, at the pace it is told."""
    ids: list[int] = []
    path = Path(ctx.run_dir) / f"{ctx.role}-{ctx.index}.npy"
    for row in ctx.rows():
        ids.append(row["id"])
        if ctx.args:
            time.sleep(ctx.args)
    np.save(path, np.array(ids, np.int64))


def read_ids(run_dir: str) -> list[int]:
    found = [np.load(path) for path in Path(run_dir).glob("*.npy")]
    return sorted(int(one) for ids in found for one in ids)


def answer_double(ctx: Any) -> None:
    ctx.serve(lambda batch: {"double": batch["id"] * 2}, batch_size=ctx.args or 1024)


def answer_wrongly(ctx: Any) -> None:
    """One row too few or too many."""

    def answer(batch: Any) -> Any:
        ids = batch["id"]
        return ids[:-1] if ctx.args == "few" else np.append(ids, 0)

    ctx.serve(answer)


def fail_at(ctx: Any) -> None:
    """Raises, exits or dies at its hundredth row."""
    for number, _ in enumerate(ctx.rows()):
        if number == 100 and ctx.role == "worker":
            print("the last words of this worker", flush=True)
            if ctx.args == "raise":
                raise ValueError("row 100 is bad luck")
            if ctx.args == "exit":
                os._exit(3)
            os.kill(os.getpid(), signal.SIGKILL)


def stop_early(ctx: Any) -> str:
    """Takes a hundred rows of however many."""
    for number, _ in enumerate(ctx.rows()):
        if number == 100:
            break
    if ctx.args == "stop_feed":
        ctx.stop_feed()
        while not ctx.should_stop:  # the function may go on without rows
            time.sleep(0.05)
            if (Path(ctx.run_dir) / "go").exists():
                break
    return "done"


def fit(ctx: Any) -> None:
    """Keras' own fit on what is fed; notes steps, rows and weights."""
    import keras
    import tensorflow as tf

    class Counting(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            rows = tf.cast(tf.shape(data[1])[0], tf.int64)
            counter.assign_add(rows)
            total.assign_add(tf.reduce_sum(tf.cast(data[1], tf.float64)))
            return super().train_step(data)

    with ctx.strategy.scope():
        keras.utils.set_random_seed(1)
        options = {
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.SUM,
            "trainable": False,
        }
        counter = tf.Variable(0, dtype=tf.int64, **options)
        total = tf.Variable(0.0, dtype=tf.float64, **options)
        model = Counting([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.001), loss="mse")
    dataset = ctx.dataset(batch_size=ctx.args["batch_size"], features="x", label="y")
    model.fit(dataset, verbose=0)
    ctx.report(
        rows=int(counter.numpy() if hasattr(counter, "numpy") else counter.read_value()),
        total=float(total.read_value()),
        steps=int(model.optimizer.iterations.numpy()),
    )
    weights = np.concatenate([np.ravel(weight) for weight in model.get_weights()])
    np.save(Path(ctx.run_dir) / f"weights-{ctx.rank}.npy", weights)


def coordinate(ctx: Any) -> None:
    """A ClusterCoordinator loop with a Keras 3 model; only the chief runs it."""
    import keras
    import tensorflow as tf

    with ctx.strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return ctx.strategy.run(replica, args=(x, y))

    coordinator = tf.distribute.coordinator.ClusterCoordinator(ctx.strategy)
    losses = []
    for x, y in ctx.dataset(batch_size=32, features="x", label="y"):
        losses.append(coordinator.schedule(step, args=(x, tf.reshape(y, (-1, 1)))))
        if len(losses) == 20:
            (Path(ctx.run_dir) / "begun").touch()
        if ctx.args:
            time.sleep(ctx.args)
    coordinator.join()
    values = [float(loss.fetch()) for loss in losses]
    ctx.report(first=values[0], last=values[-1], steps=len(values))
