"""How fast rows reach the training step, against the limit and against the peers, in one run.

    python bench/feed.py [frames] [peer] [epochs] [files] [growth] [memory] [fashion]

frames   a cached DataFrame to batches of 256 in two trainers, against Spark's bare mapInArrow
peer     the same against TensorFlowOnSpark's DataFeed
epochs   the second epoch against reading the same rows from local files with pyarrow
files    Parquet and TFRecord to batches, against pyarrow and tf.data doing the same
growth   rows/s for 1, 2 and 4 partitions a worker, and for growing data
memory   the peak memory of agent and trainer for a small and a large partition
fashion  a network on Fashion-MNIST, fed by Spark and fed from numpy by hand-started processes

Rates of a feed are taken inside the trainers while a compiled step reads it: rows that arrived
between the first batch and the last, over that time. Rows that came before, while TensorFlow was
loading, do not count, although the step has to read them as well.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import feed_fashion
import feed_files
import feed_peer

import sparktrain as st

ROUNDS = 5
#: What a row is made of, and how many rows of it there are.
KINDS: dict[str, tuple[int, list[str], dict[str, Any]]] = {
    "100 float32": (
        8_000_000,
        ["array(" + ",".join(f"cast(id * 0.001 + {i} as float)" for i in range(100)) + ") as x"],
        {"x": (100,)},
    ),
    "784 uint8": (5_000_000, ["cast(repeat('a', 784) as binary) as x"], {"x": (784,)}),
    "224x224x3 uint8": (
        24_000,
        ["cast(repeat('abc', 50176) as binary) as x"],
        {"x": (224, 224, 3)},
    ),
    "30 scalars": (
        10_000_000,
        [f"id + {i} as l{i}" for i in range(10)]
        + [f"id * 0.5 + {i} as d{i}" for i in range(10)]
        + [f"cast(id + {i} as int) as i{i}" for i in range(5)]
        + [f"id % {i + 2} = 0 as b{i}" for i in range(5)],
        {},
    ),
}


def make_session() -> Any:
    # Room to cache the larger frames in the executors.
    return st.session(executor_memory_mb=5120)


def make_frame(spark: Any, kind: str, num_rows: int, num_partitions: int) -> Any:
    frame = spark.range(0, num_rows, 1, num_partitions)
    return frame.selectExpr(*KINDS[kind][1], "id as label")


def count(batches: Any) -> Any:
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


def time_bare(frame: Any) -> float:
    """Rows per second of Spark handing batches to Python, and nothing else."""
    started = time.perf_counter()
    rows = sum(row.rows for row in frame.mapInArrow(count, "rows long").collect())
    return float(rows / (time.perf_counter() - started))


def consume(ctx: Any) -> None:
    """Reads the feed to its end, then once more; writes what it took."""
    import json
    import threading
    import time
    from pathlib import Path

    import numpy as np
    import psutil
    import tensorflow as tf

    table = ctx.feed.tables["train"]
    dataset = ctx.dataset(batch_size=256)

    def read() -> int:
        """A step that does nothing, compiled as a step of fit is."""

        def step(rows: Any, batch: Any) -> Any:
            return rows + tf.shape(batch["label"], tf.int64)[0]

        return int(dataset.reduce(np.int64(0), step))

    def wait_for_the_last() -> None:
        while not table._is_complete:
            time.sleep(0.005)
        ended.append(time.perf_counter())

    next(iter(dataset))
    ended: list[float] = []
    waiting = threading.Thread(target=wait_for_the_last)
    began, arrived = time.perf_counter(), sum(entry.rows for entry in table._entries)
    waiting.start()
    rows = read()
    behind = time.perf_counter()
    waiting.join()
    seconds = ended[0] - began
    again = 0.0
    if ctx.args["again"]:
        began = time.perf_counter()
        read()
        again = rows / (time.perf_counter() - began)
    found = {
        "rate": (rows - arrived) / seconds,
        "share": 1 - arrived / rows,
        "behind": behind - ended[0],
        "rows": rows,
        "again": again,
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
    }
    Path(ctx.run_dir, f"rank-{ctx.rank}.json").write_text(json.dumps(found))


def time_feed(spark: Any, data: Any, again: bool = False) -> dict[str, float]:
    """The feed's rows per second over both workers."""
    with tempfile.TemporaryDirectory() as folder:
        st.run(
            consume,
            num_workers=2,
            spark=spark,
            data=data,
            args={"again": again},
            run_dir=folder,
            distribution="none",
            progress=False,
        )
        ranks = [json.loads(path.read_text()) for path in Path(folder).glob("rank-*.json")]
    return {
        "rate": sum(rank["rate"] for rank in ranks),
        "share": min(rank["share"] for rank in ranks),
        "behind": max(rank["behind"] for rank in ranks),
        "again": sum(rank["again"] for rank in ranks),
        "memory_mb": max(rank["memory_mb"] for rank in ranks),
    }


def feed_rate(spark: Any, data: Any) -> float:
    return time_feed(spark, data)["rate"]


def in_turns(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """Medians of several measures that take turns: the machine's moods hit all alike."""
    found: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for values, measure in zip(found, measures, strict=True):
            values.append(measure())
    return [statistics.median(values) for values in found]


def frames(spark: Any) -> None:
    print("\n| rows | bare mapInArrow, rows/s | feed, rows/s | ratio | second epoch, rows/s |")
    print("|---|---|---|---|---|")
    for kind, (num_rows, _, shapes) in KINDS.items():
        frame = make_frame(spark, kind, num_rows, 2).cache()
        frame.count()
        data = st.table(frame, shapes=shapes)
        again: list[float] = []

        def feed(data: Any = data, again: list[float] = again) -> float:
            found = time_feed(spark, data, again=True)
            again.append(found["again"])
            if found["share"] < 0.2 or found["behind"] > 1:
                print(f"({found['share']:.0%} left to measure, {found['behind']:.1f} s behind)")
            return found["rate"]

        bare, fed = in_turns(ROUNDS, partial(time_bare, frame), feed)
        second = statistics.median(again)
        print(
            f"| {kind} | {bare:,.0f} | {fed:,.0f} | {fed / bare:.2f} | {second:,.0f} |", flush=True
        )
        frame.unpersist(blocking=True)


def peer(spark: Any) -> None:
    """TensorFlowOnSpark needs a session of its own, in a process of its own."""
    frame = make_frame(spark, "100 float32", 8_000_000, 2).cache()
    frame.count()
    data = st.table(frame, shapes={"x": (100,)})
    theirs, ours = in_turns(3, feed_peer.measure, partial(feed_rate, spark, data))
    frame.unpersist(blocking=True)
    print(
        f"\nTensorFlowOnSpark 2.2.5 DataFeed {theirs:,.0f} rows/s, feed {ours:,.0f} rows/s:", end=""
    )
    print(f" {ours / theirs:,.0f} times", flush=True)


def epochs(spark: Any) -> None:
    feed_files.compare_epochs(spark, ROUNDS)


def files(spark: Any) -> None:
    feed_files.compare_files(ROUNDS)


def growth(spark: Any) -> None:
    print("\n| partitions a worker | GB | feed, rows/s |\n|---|---|---|")
    for parts, num_rows in ((1, 8_000_000), (2, 8_000_000), (4, 8_000_000)):
        frame = make_frame(spark, "100 float32", num_rows, 2 * parts).cache()
        frame.count()
        data = st.table(frame, shapes={"x": (100,)})
        (rate,) = in_turns(3, partial(feed_rate, spark, data))
        print(f"| {parts} | {num_rows * 408 / 1e9:.1f} | {rate:,.0f} |", flush=True)
        frame.unpersist(blocking=True)
    for gigabytes in (1, 3, 10):
        num_rows = int(gigabytes * 1e9 / 408)
        data = st.table(make_frame(spark, "100 float32", num_rows, 2), shapes={"x": (100,)})
        found = time_feed(spark, data)
        print(f"| 1 (made on the way) | {gigabytes} | {found['rate']:,.0f} |", flush=True)


def memory(spark: Any) -> None:
    print("\n| GB of one partition | trainer's memory at the end, MB |\n|---|---|")
    for gigabytes in (0.1, 10):
        num_rows = int(2 * gigabytes * 1e9 / 408)
        data = st.table(make_frame(spark, "100 float32", num_rows, 2), shapes={"x": (100,)})
        found = time_feed(spark, data)
        print(f"| {gigabytes} | {found['memory_mb']:,.0f} |", flush=True)


def fashion(spark: Any) -> None:
    feed_fashion.compare(spark, rounds=3)


def main() -> None:
    known = (frames, peer, epochs, files, growth, memory, fashion)
    names = {function.__name__: function for function in known}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *names], help="all by default")
    chosen = parser.parse_args().parts or list(names)
    print(
        f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, Python {sys.version[:6]}"
    )
    spark = make_session()
    spark.range(2).collect()
    for name in chosen:
        names[name](spark)
    print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
