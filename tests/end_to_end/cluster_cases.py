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


def wait_for_ever(ctx: Any) -> None:
    time.sleep(600)


def answer_double(ctx: Any) -> None:
    ctx.serve(lambda batch: {"double": batch["id"] * 2}, batch_size=ctx.args or 1024)


def answer_sum(ctx: Any) -> None:
    ctx.serve(lambda batch: {"sum": batch[ctx.args].sum(axis=1).astype(np.float64)})


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


def note_or_stop(ctx: Any) -> None:
    """The chief takes a few rows, the others all."""
    if ctx.rank:
        note_ids(ctx)
        return
    next(iter(ctx.rows()))
    ctx.stop_feed()
    while not ctx.should_stop and not list(Path(ctx.run_dir).glob("worker-*.npy")):
        time.sleep(0.05)


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
    callbacks = ctx.callbacks() if ctx.args.get("callbacks") else []
    model.fit(dataset, verbose=0, callbacks=callbacks)
    ctx.report(
        rows=int(counter.numpy() if hasattr(counter, "numpy") else counter.read_value()),
        total=float(total.read_value()),
        steps=int(model.optimizer.iterations.numpy()),
    )
    weights = np.concatenate([np.ravel(weight) for weight in model.get_weights()])
    np.save(Path(ctx.run_dir) / f"weights-{ctx.rank}.npy", weights)


def fit_then_answer(ctx: Any) -> None:
    """Keras' own fit, with ours and Spark's rows mixed; then answers with what it learnt."""
    import keras

    with ctx.strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(0.2), loss="mse")
    dataset = ctx.dataset(batch_size=32, features="x", label="y", shuffle=200, seed=1)
    model.fit(dataset, verbose=0)
    ctx.serve(lambda batch: model(batch["x"], training=False))


def fit_stream(ctx: Any) -> None:
    """A fit whose checkpoints move with the offsets of a stream; dies where it is told."""
    import keras
    import tensorflow as tf

    class Summing(keras.Model):  # type: ignore[misc]
        """Its one weight is the sum of all it was given."""

        def __init__(self) -> None:
            super().__init__()
            self.total = self.add_weight(shape=(), initializer="zeros", name="total")

        def call(self, x: Any) -> Any:
            return x

        def train_step(self, data: Any) -> Any:
            self.total.assign_add(tf.reduce_sum(data[0]))
            return {"total": self.total.value}

    class Dying(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if logs["total"] > ctx.args:
                os.kill(os.getpid(), signal.SIGKILL)

    model = Summing()
    model.build((None,))
    model.compile(optimizer="sgd")
    dataset = ctx.dataset(batch_size=16, features="x", label="y")
    callbacks = [*ctx.callbacks(), *([Dying()] if ctx.args else [])]
    model.fit(dataset, verbose=0, callbacks=callbacks)
    ctx.report(total=float(model.total.value))


def sum_rows(ctx: Any) -> None:
    """The same with rows, and a file of its own for a checkpoint."""
    path = Path(ctx.run_dir) / f"total-{ctx.rank}"
    total = int(path.read_text()) if path.exists() else 0
    ctx.save_with(lambda: path.write_text(str(total)))
    for row in ctx.rows():
        total += row["id"]
        if ctx.args and total > ctx.args:
            os.kill(os.getpid(), signal.SIGKILL)
    path.write_text(str(total))


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


def fit_legacy(ctx: Any) -> None:
    """tf_keras' own fit under parameter servers; only the chief runs it."""
    import tensorflow as tf
    import tf_keras

    def make_dataset(context: Any) -> Any:
        x = tf.random.stateless_uniform((64, 2), (1, 2))
        y = tf.reduce_sum(x, axis=1, keepdims=True)
        return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)

    with ctx.strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
        model.compile(optimizer=tf_keras.optimizers.SGD(0.1), loss="mse")
    creator = tf_keras.utils.experimental.DatasetCreator(make_dataset)
    history = model.fit(creator, epochs=3, steps_per_epoch=8, verbose=0)
    ctx.report(first=history.history["loss"][0], last=history.history["loss"][-1])


def _make_batches(ctx: Any) -> Any:
    if ctx.args == "sync":  # until all have taken 30 steps together
        numbers = np.arange(50) % 5
        while True:
            xs = np.stack([numbers, np.ones(50)], 1).astype(np.float32)
            yield xs, (2 * numbers + 1).astype(np.float32)
    batch: list[Any] = []
    for row in ctx.rows():
        batch.append(row)
        if len(batch) == 50:
            yield np.stack([one["x"] for one in batch]), np.array([one["y"] for one in batch])
            batch.clear()


def _meet(ctx: Any) -> None:
    """Synchronous workers begin together: the chief could take all steps alone, and leave."""
    (Path(ctx.run_dir) / f"begun-{ctx.rank}").touch()
    deadline = time.monotonic() + 60
    while len(list(Path(ctx.run_dir).glob("begun-*"))) < ctx.num_workers:
        if time.monotonic() > deadline:
            raise TimeoutError("alone at the beginning")
        time.sleep(0.05)


def train_between_graphs(ctx: Any) -> None:
    """A program of TensorFlow 1: a server on every node, variables on the ps."""
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    cluster = tf.train.ClusterSpec(ctx.cluster_spec)
    server = tf.train.Server(cluster, job_name=ctx.role, task_index=ctx.index)
    if ctx.role == "ps":
        print("cuda:", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
        server.join()
    device = f"/job:{ctx.role}/task:{ctx.index}"
    with tf.device(tf.train.replica_device_setter(worker_device=device, cluster=cluster)):
        x = tf.placeholder(tf.float32, (None, 2))
        y = tf.placeholder(tf.float32, (None,))
        weights = tf.get_variable("weights", (2, 1), initializer=tf.zeros_initializer())
        loss = tf.reduce_mean((tf.squeeze(tf.matmul(x, weights), 1) - y) ** 2)
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.GradientDescentOptimizer(0.02)
        hooks = []
        if ctx.args == "sync":
            workers = ctx.num_workers
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, workers)
            stop = tf.train.StopAtStepHook(last_step=30)
            hooks = [optimizer.make_session_run_hook(ctx.is_chief), stop]
        minimize = optimizer.minimize(loss, global_step=step)
    values = []
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=ctx.is_chief, hooks=hooks
    ) as session:
        if ctx.args == "sync":
            _meet(ctx)
        for xs, ys in _make_batches(ctx):
            if session.should_stop():
                break
            got = session.run([loss, minimize, step], {x: xs, y: ys})
            values.append(got[0])
            steps = int(got[2])
    (Path(ctx.run_dir) / f"weights-on-{ctx.role}-{ctx.index}").write_text(str(weights.device))
    ctx.report(first=values[0], last=values[-1], steps=steps)
