"""What a launch costs: `run()` against the same two nodes started by hand, in one run.

    python bench/startup.py            (make bench)

1. Seconds from the call to the first training step, Spark already up.
2. Steps per second of two workers; and with ctx.callbacks() against without, in turns in one run.
3. Seconds for a function that does nothing on 2, 4, 8 and 16 nodes.

By hand means: two processes with TF_CONFIG, the same strategy and the same function.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cloudpickle

import sparktrain as st

ROUNDS = 5
STEPS, EPOCHS, BATCH = 150, 3, 64


def make_model(strategy: Any) -> tuple[Any, Any]:
    """A small convolutional network and random images for it."""
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    images = rng.random((BATCH * STEPS, 16, 16, 1), "float32")
    labels = rng.integers(0, 10, BATCH * STEPS)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((16, 16, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
    return model, dataset


def train(strategy: Any) -> dict[str, float]:
    """Notes the moment of the first step, and the speed from the second epoch on."""
    import keras

    moments: dict[str, float] = {}

    class Moments(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            moments.setdefault("first_step", time.time())

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == EPOCHS - 1:
                seconds = time.perf_counter() - self.began
                moments["steps_per_s"] = (EPOCHS - 1) * STEPS / seconds

    model, dataset = make_model(strategy)
    model.fit(dataset, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[Moments()])
    return moments


def train_under_spark(ctx: Any) -> dict[str, float]:
    return train(ctx.strategy)


def train_in_turns(ctx: Any) -> dict[str, list[float]]:
    """Steps per second of whole fits without callbacks and with all of ours, in turns."""
    model, dataset = make_model(ctx.strategy)
    model.fit(dataset, epochs=1, verbose=0, shuffle=False)
    speeds: dict[str, list[float]] = {"none": [], "all": []}
    for _ in range(2 * ROUNDS):
        for kind, found in speeds.items():
            callbacks = ctx.callbacks() if kind == "all" else []
            began = time.perf_counter()
            model.fit(dataset, epochs=1, verbose=0, shuffle=False, callbacks=callbacks)
            found.append(STEPS / (time.perf_counter() - began))
    return speeds


def by_hand_node(rank: int, ports: list[int], answer: Path) -> None:
    """One of the two processes started by hand."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    hosts = {"chief": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
    task = {"type": "worker" if rank else "chief", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": hosts, "task": task})
    from sparktrain.trainer.strategy import KerasMultiWorkerStrategy

    moments = train(KerasMultiWorkerStrategy())
    if rank == 0:
        answer.write_text(json.dumps(moments))


def run_by_hand(folder: Path) -> tuple[float, float]:
    """(seconds to the first step, steps per second)."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as two:
        ports = [one.getsockname()[1], two.getsockname()[1]]
    answer = folder / "answer.json"
    started = time.time()
    command = [sys.executable, __file__, "--answer", str(answer), "--ports", *map(str, ports)]
    # As under Spark, which gives a task with one core one OpenMP thread.
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    nodes = [subprocess.Popen([*command, "--rank", str(rank)], env=env) for rank in (0, 1)]
    for node in nodes:
        assert node.wait(300) == 0
    moments = json.loads(answer.read_text())
    return moments["first_step"] - started, moments["steps_per_s"]


def run_under_spark() -> tuple[float, float]:
    started = time.time()
    result = st.run(train_under_spark, num_workers=2, progress=False)
    return result.value["first_step"] - started, result.value["steps_per_s"]


def compare(folder: Path) -> None:
    spark = st.session()
    spark.range(1).count()
    st.run(lambda ctx: None, num_workers=2, distribution="none", progress=False)
    rows: dict[str, list[tuple[float, float]]] = {"hand": [], "run": []}
    for number in range(ROUNDS):
        # In turns, so that a slow minute of the machine hits both alike.
        rows["hand"].append(run_by_hand(folder))
        rows["run"].append(run_under_spark())
        print(f"round {number + 1}: {rows['hand'][-1]} {rows['run'][-1]}", flush=True)
    first = {name: statistics.median(row[0] for row in found) for name, found in rows.items()}
    speed = {name: statistics.median(row[1] for row in found) for name, found in rows.items()}
    print("\n| two workers, median of 5 | by hand | run() | difference or ratio | goal |")
    print("|---|---|---|---|---|")
    print(
        f"| seconds to the first step | {first['hand']:.2f} | {first['run']:.2f}"
        f" | {first['run'] - first['hand']:+.2f} s | at most +2 s |"
    )
    print(
        f"| steps/s | {speed['hand']:.1f} | {speed['run']:.1f}"
        f" | {speed['run'] / speed['hand']:.3f} | at least 0.97 |"
    )


def compare_callbacks() -> None:
    speeds = st.run(train_in_turns, num_workers=2, progress=False).value
    pairs = zip(speeds["all"], speeds["none"], strict=True)
    ratio = statistics.median(one / other for one, other in pairs)
    none, own = (statistics.median(speeds[kind]) for kind in ("none", "all"))
    print("\n| two workers under run(), median of 10 pairs | none | ctx.callbacks() | ratio |")
    print("|---|---|---|---|")
    print(f"| steps/s of whole fits | {none:.1f} | {own:.1f} | {ratio:.3f} |", flush=True)


def grow() -> None:
    """In a process of its own: another Spark, with 16 slots."""
    st.session(num_executors=4, executor_cores=4, executor_memory_mb=512)
    print("\n| nodes, function that does nothing | seconds, median of 5 | per node |")
    print("|---|---|---|")
    for num_workers in (2, 4, 8, 16):
        seconds = []
        for number in range(ROUNDS + 1):
            started = time.perf_counter()
            st.run(lambda ctx: None, num_workers=num_workers, distribution="none", progress=False)
            if number:  # the first one starts Python in the executors
                seconds.append(time.perf_counter() - started)
        median = statistics.median(seconds)
        print(f"| {num_workers} | {median:.2f} | {median / num_workers:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int)
    parser.add_argument("--ports", type=int, nargs=2)
    parser.add_argument("--answer", type=Path)
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--callbacks", action="store_true")
    options = parser.parse_args()
    if options.rank is not None:
        by_hand_node(options.rank, options.ports, options.answer)
    elif options.grow:
        grow()
    elif options.callbacks:
        compare_callbacks()
    else:
        print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SPARKTRAIN_RUNS_DIR"] = folder
            subprocess.run([sys.executable, __file__, "--grow"], check=True)
            compare(Path(folder))
            compare_callbacks()


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    main()
