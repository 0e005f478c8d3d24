"""Feeding a cluster, against TensorFlowOnSpark: the same programs in two environments.

    python bench/cluster.py [train] [dataset] [infer] [transform] [fail] [parts] [overlap]

train      rows/s of an RDD of 100 floats and a number through DataFeed.next_batch(256)
dataset    the same rows as a DataFrame through DataFeed.dataset, to the peer's next_batch
infer      rows/s of inference()
transform  rows/s of TFModel.transform
fail       seconds from an exception in a worker to the error at the driver
parts      seconds for a partition of 50 rows, of 40
overlap    training on a DataFrame that takes as long to compute as to train on, against one
           after the other
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import feed_peer

PROGRAM = Path(__file__).with_name("cluster_program.py")
#: Rows for theirs and for ours: each runs for some seconds.
ROWS = {
    "train": (20_000, 400_000),
    "dataset": (20_000, 3_000_000),
    "infer": (10_000, 300_000),
    "transform": (40_000, 800_000),
    "fail": (20_000, 20_000),
    "parts": (2_000, 2_000),
}
GOALS = {"train": 12, "dataset": 60, "infer": 12, "transform": 10}


def make_model(folder: Path) -> None:
    """A small network as a SavedModel, for transform."""
    program = """
import sys, tensorflow as tf
class Net(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.random.normal((100, 10)))
    @tf.function(input_signature=[tf.TensorSpec((None, 100), tf.float32, name="x")])
    def __call__(self, x):
        return {"y": tf.nn.softmax(x @ self.w)}
net = Net()
tf.saved_model.save(net, sys.argv[1], signatures={"serving_default": net.__call__})
"""
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, capture_output=True)


def measure(python: Path, part: str, rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        if part == "transform":
            make_model(Path(folder) / "model")
        env = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        env.update(SPARKTRAIN_PROGRESS="off", SPARKTRAIN_RUNS_DIR=folder + "/runs")
        env.pop("SPARK_HOME", None)
        done = subprocess.run(
            [str(python), str(PROGRAM), part, str(rows), folder],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"{python} {part}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


def compare(part: str, rounds: int) -> None:
    """Both in turns; prints the medians and their ratio."""
    theirs_python, ours_python = feed_peer._make_environment(), Path(sys.executable)
    their_rows, our_rows = ROWS[part]
    values: dict[str, list[float]] = {"theirs": [], "ours": []}
    for _ in range(rounds):
        their_part = "train" if part == "dataset" else part
        for who, python, what, rows in (
            ("theirs", theirs_python, their_part, their_rows),
            ("ours", ours_python, part, our_rows),
        ):
            found = measure(python, what, rows)
            is_rate = part not in ("fail", "parts")
            values[who].append(found["rows"] / found["seconds"] if is_rate else found["seconds"])
    theirs, ours = (statistics.median(values[who]) for who in ("theirs", "ours"))
    if part in GOALS:
        goal = f" | {GOALS[part]} |"
        print(f"| {part}, rows/s | {theirs:,.0f} | {ours:,.0f} | {ours / theirs:.1f}{goal}")
    else:
        print(f"| {part}, s | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f} | |")


def work(seconds: float) -> Callable[[Any], Any]:
    """Passes batches on, each after a while of computing."""

    def pass_on(batches: Any) -> Any:
        for batch in batches:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
            yield batch

    return pass_on


def train_slowly(ctx: Any) -> None:
    """Takes some milliseconds for each batch."""
    for _ in ctx.dataset(batch_size=1000):
        end = time.thread_time() + ctx.args
        while time.thread_time() < end:
            pass


def measure_overlap(rounds: int) -> None:
    import sparktrain as st

    ratios = []
    # One core computes, the other one trains.
    spark = st.session(num_executors=1)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    for _ in range(rounds):
        slow = spark.range(0, 100_000, 1, 2).mapInArrow(work(0.05), "id long")
        began = time.time()
        cached = slow.cache()
        cached.count()
        computed = time.time() - began
        with st.cluster(
            train_slowly, num_workers=1, spark=spark, args=0.05, progress=False
        ) as cluster:
            cluster.feed(spark.range(2000))  # TensorFlow is loaded
            began = time.time()
            cluster.feed(cached)
            trained = time.time() - began
        cached.unpersist()
        with st.cluster(
            train_slowly, num_workers=1, spark=spark, args=0.05, progress=False
        ) as cluster:
            cluster.feed(spark.range(2000))
            began = time.time()
            cluster.feed(spark.range(0, 100_000, 1, 2).mapInArrow(work(0.05), "id long"))
            both = time.time() - began
        ratios.append(both / (computed + trained))
        print(f"  compute {computed:.1f} s, train {trained:.1f} s, together {both:.1f} s")
    spark.stop()
    print(f"| overlap | | | {statistics.median(ratios):.2f} | at most 0.65 |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help=", ".join([*ROWS, "overlap"]))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    parts = options.parts or [*ROWS, "overlap"]
    print(f"load before: {os.getloadavg()[0]:.1f}")
    print("\n| | TensorFlowOnSpark 2.2.5 | sparktrain | ratio | goal |\n|---|---|---|---|---|")
    for part in parts:
        if part == "overlap":
            measure_overlap(options.rounds)
        else:
            compare(part, options.rounds)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
