"""How fast rows reach the training step, against the limit and against the peers, in one run.

    python bench/feed.py [frames] [peer] [handover] [epochs] [files] [growth] [memory] [fashion]

frames   a cached DataFrame to batches of 256 in two trainers, against Spark's bare mapInArrow
peer     the same against TensorFlowOnSpark's DataFeed
handover blocks from agent to trainer, against Arrow Flight over a Unix socket
epochs   the second epoch against reading the same rows from local files with pyarrow
files    Parquet and TFRecord to batches, against pyarrow and tf.data doing the same
growth   rows/s for 1, 2 and 4 partitions a worker, and for growing data
memory   the peak memory of agent and trainer for a small and a large partition
fashion  a network on Fashion-MNIST, fed by Spark and fed from numpy by hand-started processes

Rates count from the moment when the first tenth of the rows was there, the same for all that are
compared: what it costs to start is measured by bench/startup.py.
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import feed_fashion
import feed_files
import feed_handover
import feed_peer

import sparktrain as st

ROUNDS = 5
#: How many rows there are of a kind, what they are made of, their shapes and bytes.
KINDS: dict[str, tuple[int, list[str], dict[str, Any], int]] = {
    "100 float32": (
        8_000_000,
        ["array(" + ",".join(f"cast(id * 0.001 + {i} as float)" for i in range(100)) + ") as x"],
        {"x": (100,)},
        408,
    ),
    "784 uint8": (5_000_000, ["cast(repeat('a', 784) as binary) as x"], {"x": (784,)}, 792),
    "224x224x3 uint8": (
        24_000,
        ["cast(repeat('abc', 50176) as binary) as x"],
        {"x": (224, 224, 3)},
        150_536,
    ),
    "30 mixed scalars": (
        10_000_000,
        [f"id + {i} as l{i}" for i in range(10)]
        + [f"id * 0.5D + {i} as d{i}" for i in range(5)]
        + [f"cast(id * 0.25 as decimal(20, 2)) as e{i}" for i in range(5)]
        + [f"cast(id + {i} as int) as i{i}" for i in range(5)]
        + [f"id % {i + 2} = 0 as b{i}" for i in range(5)],
        {},
        193,
    ),
}


def make_session() -> Any:
    # Room to cache the larger frames in the executors.
    return st.session(executor_memory_mb=5120)


def make_frame(spark: Any, kind: str, num_rows: int, num_partitions: int) -> Any:
    frame = spark.range(0, num_rows, 1, num_partitions)
    return frame.selectExpr(*KINDS[kind][1], "id as label")


def note_batches(batches: Any) -> Any:
    """Says when how many rows had come, for each of Spark's batches."""
    import time

    import pyarrow as pa

    times, rows = [], []
    for batch in batches:
        times.append(time.perf_counter())
        rows.append(batch.num_rows)
    yield pa.RecordBatch.from_pydict({"times": [times], "rows": [rows]})


def find_rate(times: list[float], rows: list[int]) -> float:
    """Rows a second from the moment when the first tenth was there."""
    total, seen = sum(rows), 0
    for position, count in enumerate(rows):
        seen += count
        if seen >= total / 10:
            return (total - seen) / (times[-1] - times[position])
    raise ValueError("no rows")


def time_bare(frame: Any) -> float:
    """Rows per second of Spark handing batches to Python, and nothing else."""
    schema = "times array<double>, rows array<long>"
    found = frame.mapInArrow(note_batches, schema).collect()
    if len(found) <= 2:
        return sum(find_rate(row.times, row.rows) for row in found)
    # Tasks behind one another: all batches in the order of their times, as one.
    events = sorted(event for row in found for event in zip(row.times, row.rows, strict=True))
    return find_rate([at for at, _ in events], [rows for _, rows in events])


def consume(ctx: Any) -> None:
    """Reads the feed to its end, perhaps several times; writes when what came."""
    import numpy as np
    import tensorflow as tf

    dataset = ctx.dataset(batch_size=256)
    several = 1
    if ctx.args["step"]:
        # A step that does nothing but is compiled, as a step of fit is.
        def count(rows: Any, taken: Any) -> Any:
            return rows + tf.shape(taken["label"], tf.int64)[0]

        batches = dataset
    else:
        # Batches are taken and let go, several at a time, without a function for each.
        def count(rows: Any, taken: Any) -> Any:
            return rows + 1

        several = max((4 << 20) // ctx.args["batch_bytes"], 1)
        batches = dataset.window(several)

    times: list[float] = []
    sizes: list[int] = []
    add = ctx.meter.add

    def note(rows: int, size: int) -> None:
        times.append(time.perf_counter())
        sizes.append(rows)
        add(rows, size)

    ctx.meter.add = note

    def read() -> dict[str, list[float]]:
        """When each block was taken: all rows of those before it have become batches then."""
        times.clear()
        sizes.clear()
        found = int(batches.reduce(np.int64(0), count))
        assert found == sum(sizes) if ctx.args["step"] else found * several * 256 >= sum(sizes)
        return {"times": list(times), "rows": list(sizes)}

    passes = [read() for _ in range(ctx.args["passes"])]
    peaks = [find_peak(pid) for pid in (os.getppid(), os.getpid())]
    answer = {"passes": passes, "agent_mb": peaks[0], "trainer_mb": peaks[1]}
    Path(ctx.run_dir, f"rank-{ctx.rank}.json").write_text(json.dumps(answer))


def find_peak(pid: int) -> float:
    """The most memory, in MB, that a process had so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@dataclass(frozen=True)
class Fed:
    """What a feed to two workers took."""

    #: Rows a second over both workers, for each pass.
    rates: list[float]
    agent_mb: float
    trainer_mb: float


def time_feed(spark: Any, data: Any, row_bytes: int, step: bool = False, passes: int = 1) -> Fed:
    with tempfile.TemporaryDirectory() as folder:
        st.run(
            consume,
            num_workers=2,
            spark=spark,
            data=data,
            args={"step": step, "passes": passes, "batch_bytes": row_bytes * 256},
            run_dir=folder,
            distribution="none",
            progress=False,
        )
        ranks = [json.loads(path.read_text()) for path in Path(folder).glob("rank-*.json")]
    both = zip(*(rank["passes"] for rank in ranks), strict=True)
    return Fed(
        rates=[sum(find_rate(**one) for one in passed) for passed in both],
        agent_mb=max(rank["agent_mb"] for rank in ranks),
        trainer_mb=max(rank["trainer_mb"] for rank in ranks),
    )


def time_first(spark: Any, data: Any) -> float:
    """Of 100 float32 and a label, in the first pass."""
    return time_feed(spark, data, 408).rates[0]


def in_turns(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """Medians of several measures that take turns: the machine's moods hit all alike."""
    found: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for values, measure in zip(found, measures, strict=True):
            values.append(measure())
    return [statistics.median(values) for values in found]


def frames(spark: Any) -> None:
    """Batches taken and let go; and taken by a compiled step, which costs TensorFlow time too."""
    print(
        "\n| rows | bare mapInArrow, rows/s | feed, rows/s | ratio | with a step | second epoch |"
    )
    print("|---|---|---|---|---|---|")
    for kind, (num_rows, _, shapes, row_bytes) in KINDS.items():
        frame = make_frame(spark, kind, num_rows, 2).cache()
        frame.count()
        data = st.table(frame, shapes=shapes)
        second: list[float] = []

        def feed(
            step: bool,
            data: Any = data,
            row_bytes: int = row_bytes,
            second: list[float] = second,
        ) -> float:
            first, again = time_feed(spark, data, row_bytes, step, passes=2).rates
            if step:
                second.append(again)
            return first

        bare, fed, stepped = in_turns(
            ROUNDS, partial(time_bare, frame), partial(feed, False), partial(feed, True)
        )
        print(
            f"| {kind} | {bare:,.0f} | {fed:,.0f} | {fed / bare:.2f} | {stepped / bare:.2f}"
            f" | {statistics.median(second) / bare:.2f} |",
            flush=True,
        )
        frame.unpersist(blocking=True)


def peer(spark: Any) -> None:
    """TensorFlowOnSpark needs a session of its own, in a process of its own."""
    frame = make_frame(spark, "100 float32", 8_000_000, 2).cache()
    frame.count()
    data = st.table(frame, shapes={"x": (100,)})
    theirs, ours = in_turns(3, feed_peer.measure, partial(time_first, spark, data))
    frame.unpersist(blocking=True)
    print(
        f"\nTensorFlowOnSpark 2.2.5 DataFeed {theirs:,.0f} rows/s, feed {ours:,.0f} rows/s:", end=""
    )
    print(f" {ours / theirs:,.0f} times", flush=True)


def handover(spark: Any) -> None:
    feed_handover.compare(ROUNDS)


def epochs(spark: Any) -> None:
    feed_files.compare_epochs(spark, ROUNDS)


def files(spark: Any) -> None:
    feed_files.compare_files(ROUNDS)


def growth(spark: Any) -> None:
    print("\n| partitions a worker | GB | feed, rows/s | of bare mapInArrow |\n|---|---|---|---|")
    sizes = [(1, 3.3), (2, 3.3), (4, 3.3), (1, 0.1), (1, 1.0), (1, 10.0)]
    for parts, gigabytes in sizes:
        # Made on the way: 10 GB and their copy in the spill do not fit into memory twice. Rows
        # that cost Spark little to make, or else making them would be what is measured.
        frame = make_frame(spark, "784 uint8", int(gigabytes * 1e9 / 792), 2 * parts)
        data = st.table(frame, shapes={"x": (784,)})
        bare, rate = in_turns(
            3,
            partial(time_bare, frame),
            lambda data=data: time_feed(spark, data, 792).rates[0],  # type: ignore[misc]
        )
        print(f"| {parts} | {gigabytes} | {rate:,.0f} | {rate / bare:.2f} |", flush=True)


def memory(spark: Any) -> None:
    print("\n| GB of one partition | peak of an agent, MB | peak of a trainer, MB |\n|---|---|---|")
    for gigabytes in (0.1, 10):
        num_rows = int(2 * gigabytes * 1e9 / 408)
        data = st.table(make_frame(spark, "100 float32", num_rows, 2), shapes={"x": (100,)})
        fed = time_feed(spark, data, 408)
        print(f"| {gigabytes} | {fed.agent_mb:,.0f} | {fed.trainer_mb:,.0f} |", flush=True)


def fashion(spark: Any) -> None:
    feed_fashion.compare(spark, rounds=3)


def main() -> None:
    known = (frames, peer, handover, epochs, files, growth, memory, fashion)
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
