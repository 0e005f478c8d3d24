"""Functions as users of TensorFlowOnSpark wrote them; trainers import this module by its path."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def note(args: Any, ctx: Any) -> None:
    """Writes what it was given and the rows it was fed."""
    feed = ctx.get_data_feed()
    rows: list[Any] = []
    sizes = []
    while not feed.should_stop():
        batch = feed.next_batch(10)
        sizes.append(len(batch))
        rows += batch
    known = {
        "executor_id": ctx.executor_id,
        "worker_num": ctx.worker_num,
        "job": f"{ctx.job_name}:{ctx.task_index}",
        "roles": {role: len(hosts) for role, hosts in ctx.cluster_spec.items()},
        "num_workers": ctx.num_workers,
        "path": ctx.absolute_path("here"),
        "argv": sys.argv[1:],
        "rows": [list(row) if isinstance(row, tuple) else row for row in rows],
        "sizes": sizes,
    }
    folder = args["folder"] if isinstance(args, dict) else args[1]
    (Path(folder) / f"{ctx.job_name}-{ctx.task_index}.json").write_text(json.dumps(known))


def square(args: Any, ctx: Any, offset: int = 0) -> None:
    """The inference of the old examples: as many results as rows."""
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(args["batch_size"])
        if batch:
            values = [row.asDict()["id"] if isinstance(row, tuple) else row for row in batch]
            results = [value * value + offset for value in values]
            if args.get("wrong") == "few":
                results.pop()
            if args.get("wrong") == "many":
                results.append(0)
            feed.batch_results(results)


def fail(args: Any, ctx: Any) -> None:
    feed = ctx.get_data_feed()
    feed.next_batch(5)
    raise ValueError("this worker has had enough")


def terminate(args: Any, ctx: Any) -> None:
    feed = ctx.get_data_feed()
    feed.next_batch(5)
    feed.terminate()
    assert feed.should_stop()


def terminate_first(args: Any, ctx: Any) -> None:
    """One of the workers has enough; the others go on."""
    if ctx.executor_id == 0:
        terminate(args, ctx)
    else:
        note(args, ctx)


def late_failure(args: Any, ctx: Any) -> None:
    """Fails behind the end of its feed, where the old library did not look."""
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(100)
    raise RuntimeError("the export failed")


def alone(args: Any, ctx: Any) -> None:
    text = f"{ctx.executor_id} of {ctx.num_workers}"
    (Path(args["folder"]) / f"alone-{ctx.executor_id}").write_text(text)


def count_columns(args: Any, ctx: Any) -> None:
    """DataFeed.dataset: the feed as tf.data."""
    rows = 0
    total = 0.0
    for batch in ctx.get_data_feed().dataset(32, features="x", label="y"):
        rows += int(batch[0].shape[0])
        total += float(batch[1].numpy().sum())
    folder = args["folder"] if isinstance(args, dict) else args.folder
    (Path(folder) / f"{ctx.task_index}.txt").write_text(f"{rows} {total}")


def note_roles(args: Any, ctx: Any) -> None:
    """What every node is, and that variables are where the parameter servers are."""
    import os

    import psutil
    import tensorflow.compat.v1 as tf

    parents = [parent.pid for parent in psutil.Process().parents()]
    known = {
        "roles": {role: len(hosts) for role, hosts in ctx.cluster_spec.items()},
        "executor_id": ctx.executor_id,
        "num_workers": ctx.num_workers,
        "config": json.loads(os.environ.get("TF_CONFIG", "{}")).get("task"),
        "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "parents": parents,
        "pid": os.getpid(),
    }
    (Path(args["folder"]) / f"{ctx.job_name}-{ctx.task_index}.json").write_text(json.dumps(known))
    if ctx.job_name == "evaluator":
        return
    tf.disable_eager_execution()
    cluster, server = ctx.start_cluster_server(1)
    if ctx.job_name == "ps":
        server.join()
    device = f"/job:{ctx.job_name}/task:{ctx.task_index}"
    with tf.device(tf.train.replica_device_setter(worker_device=device, cluster=cluster)):
        total = tf.get_variable("total", (), initializer=tf.zeros_initializer())
        add = tf.assign_add(total, 1.0, use_locking=True)
    is_chief = ctx.job_name in ("chief", "master")
    with tf.train.MonitoredTrainingSession(server.target, is_chief=is_chief) as session:
        for _ in range(5):
            value = session.run(add)
    print("total", value, "on", total.device, flush=True)
    with tf.summary.FileWriter(args["log_dir"] + f"/{ctx.executor_id}") as writer:
        summary = tf.Summary(value=[tf.Summary.Value(tag="total", simple_value=float(value))])
        writer.add_summary(summary, 1)


def note_tensors(args: Any, ctx: Any) -> Any:
    """An estimator's function; what it returns is nobody's business, and cannot be pickled."""
    import threading

    feed = ctx.get_data_feed(input_mapping={"b": "of_b", "a": "of_a"})
    found: dict[str, list[Any]] = {"of_a": [], "of_b": []}
    kinds = set()
    while not feed.should_stop():
        for tensor, values in feed.next_batch(args.batch_size).items():
            found[tensor] += values
            kinds |= {type(value).__name__ for value in values}
    known = {**found, "kinds": sorted(kinds), "epochs": args.epochs, "own": args.own}
    (Path(args.folder) / "tensors.json").write_text(json.dumps(known))
    return threading.Lock()


def leave(args: Any, ctx: Any) -> None:
    """Ends like a script does."""
    ctx.get_data_feed().next_batch(2)
    sys.exit(args["code"])


def linger(args: Any, ctx: Any) -> None:
    import time

    time.sleep(600)


def take_only(args: Any, ctx: Any) -> None:
    """Takes rows, answers half of them from another thread, and waits for more."""
    import threading

    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(10)
        thread = threading.Thread(target=feed.batch_results, args=(batch[: len(batch) // 2],))
        thread.start()
        thread.join()


def fit_own_rows(args: Any, ctx: Any) -> None:
    """Datasets that are divided by hand. The weight becomes the sum of all rows by 8."""
    import os

    os.environ["TF_USE_LEGACY_KERAS"] = args["legacy"]
    import tensorflow as tf

    keras = tf.keras
    off = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.OFF
    off.experimental_distribute.auto_shard_policy = policy
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rows = tf.data.Dataset.range(64).map(lambda n: (tf.cast(n, tf.float32)[None], 0.0))
    own = rows.shard(ctx.num_workers, ctx.executor_id).batch(8)
    found = []
    for dataset in (own, own.with_options(off)):
        with strategy.scope():
            layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            model = keras.Sequential([keras.Input((1,)), layer])
            model.compile(keras.optimizers.SGD(0.5), lambda _, y: -y)
        model.fit(dataset, epochs=2, verbose=0)
        found.append(float(layer.kernel.numpy()[0, 0]))
    (Path(args["folder"]) / f"{ctx.executor_id}.json").write_text(json.dumps(found))


def save_with_keras_2(args: Any, ctx: Any) -> None:
    """All workers take part in saving, and one folder is left."""
    import os

    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf

    from tensorflowonspark import compat

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [layers.Dense(3, input_shape=(2,)), layers.BatchNormalization(), layers.Dense(1)]
        )
        model.compile("sgd", "mse")
    model.fit(tf.zeros((8, 2)), tf.zeros((8, 1)), verbose=0)
    compat.export_saved_model(model, args["export_dir"], ctx.job_name == "chief")


def fit_dataset(args: Any, ctx: Any) -> None:
    """DataFeed.dataset under the program's own strategy: rows come to the workers unevenly."""
    import tensorflow as tf

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    options = {
        "synchronization": tf.VariableSynchronization.ON_READ,
        "aggregation": tf.VariableAggregation.SUM,
        "trainable": False,
    }
    with strategy.scope():
        total = tf.Variable(0.0, dtype=tf.float64, **options)

        class Summing(tf.keras.Sequential):  # type: ignore[misc]
            def train_step(self, data: Any) -> Any:
                total.assign_add(tf.reduce_sum(tf.cast(data[1], tf.float64)))
                return super().train_step(data)

        model = Summing([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    model.fit(ctx.get_data_feed().dataset(32, features="x", label="y"), verbose=0)
    value = float(total.read_value())
    (Path(args["folder"]) / f"{ctx.job_name}-{ctx.task_index}.json").write_text(json.dumps(value))
