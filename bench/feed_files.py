"""Epochs from the spill and files, against pyarrow and tf.data doing the same by hand."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sparktrain as st

NUM_ROWS = 400_000
WIDTH = 100
BATCH = 256


def make_table(num_rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    values = pa.array(rng.random(num_rows * WIDTH, np.float32))
    x = pa.FixedSizeListArray.from_arrays(values, WIDTH)
    return pa.table({"x": x, "label": pa.array(np.arange(num_rows))})


def time_passes(make: Callable[[], Iterator[Any]], rounds: int) -> float:
    """The median rate, in rows per second, of whole passes."""
    rates = []
    for _ in range(rounds):
        started = time.perf_counter()
        rows = sum(len(batch) for batch in make())
        rates.append(rows / (time.perf_counter() - started))
    return statistics.median(rates)


def read_by_hand(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Batches of 256 as tensors, as somebody would write it with pyarrow."""
    import tensorflow as tf

    for block in batches:
        x = block.column("x").flatten().to_numpy().reshape(-1, WIDTH)
        label = block.column("label").to_numpy()
        for start in range(0, len(label), BATCH):
            tf.convert_to_tensor(x[start : start + BATCH])
            yield tf.convert_to_tensor(label[start : start + BATCH])


def run_alone(function: Any, data: Any, args: Any) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        st.run(
            function,
            num_workers=1,
            data=data,
            args=args,
            run_dir=folder,
            distribution="none",
            progress=False,
        )
        answer: dict[str, float] = json.loads(Path(folder, "answer.json").read_text())
    return answer


def _read_arrow(path: str) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def compare_epochs(spark: Any, rounds: int) -> None:
    """Second and later epochs of a fed table, in the same process as the reads by hand."""

    def measure(ctx: Any) -> None:
        import feed_files as own

        dataset = ctx.dataset(batch_size=BATCH, features="x", label="label")
        for _ in dataset:
            pass
        arrow, parquet = ctx.args["arrow"], ctx.args["parquet"]
        found: dict[str, list[float]] = {"spill": [], "arrow": [], "parquet": []}
        ways: dict[str, Callable[[], Iterator[Any]]] = {
            "spill": lambda: (label for _, label in dataset),
            "arrow": lambda: own.read_by_hand(own._read_arrow(arrow)),
            "parquet": lambda: own.read_by_hand(pq.ParquetFile(parquet).iter_batches(10_000)),
        }
        for _ in range(ctx.args["rounds"]):
            for name, way in ways.items():
                found[name].append(own.time_passes(way, 1))
        medians = {name: statistics.median(values) for name, values in found.items()}
        Path(ctx.run_dir, "answer.json").write_text(json.dumps(medians))

    with tempfile.TemporaryDirectory() as folder:
        table = make_table(NUM_ROWS)
        arrow, parquet = f"{folder}/rows.arrow", f"{folder}/rows.parquet"
        with pa.OSFile(arrow, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=10_000)
        lists = table.set_column(0, "x", table["x"].cast(pa.list_(pa.float32())))
        pq.write_table(lists, parquet)
        frame = spark.read.parquet(parquet).coalesce(1)
        data = st.table(frame, shapes={"x": (WIDTH,)})
        args = {"arrow": arrow, "parquet": parquet, "rounds": rounds}
        found = run_alone(measure, data, args)
    print("\n| second epoch, one process | rows/s | ratio |\n|---|---|---|")
    print(f"| spill | {found['spill']:,.0f} | |")
    for name in ("arrow", "parquet"):
        ratio = found["spill"] / found[name]
        print(f"| {name} file with pyarrow | {found[name]:,.0f} | {ratio:.2f} |", flush=True)


def write_records(path: str, num_rows: int) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(num_rows):
            values = tf.train.FloatList(value=rng.random(WIDTH, np.float32))
            label = tf.train.Int64List(value=[number])
            feature = {
                "x": tf.train.Feature(float_list=values),
                "label": tf.train.Feature(int64_list=label),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


def compare_files(rounds: int) -> None:
    def measure(ctx: Any) -> None:
        import feed_files as own
        import tensorflow as tf

        dataset = ctx.dataset(batch_size=BATCH, features="x", label="label")

        def plain() -> Iterator[Any]:
            if ctx.args["format"] == "parquet":
                for path in ctx.args["paths"]:
                    yield from own.read_by_hand(pq.ParquetFile(path).iter_batches(10_000))
                return
            features = {
                "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
                "label": tf.io.FixedLenFeature([], tf.int64),
            }
            records = tf.data.TFRecordDataset(ctx.args["paths"]).batch(BATCH)
            parsed = records.map(
                lambda serialized: tf.io.parse_example(serialized, features),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            for row in parsed.prefetch(tf.data.AUTOTUNE):
                yield row["label"]

        found: dict[str, list[float]] = {"ours": [], "plain": []}
        for number in range(ctx.args["rounds"] + 1):
            ours = own.time_passes(lambda: (label for _, label in dataset), 1)
            theirs = own.time_passes(plain, 1)
            if number:  # the first one warms up
                found["ours"].append(ours)
                found["plain"].append(theirs)
        medians = {name: statistics.median(values) for name, values in found.items()}
        Path(ctx.run_dir, "answer.json").write_text(json.dumps(medians))

    print("\n| files to batches, one process | by hand, rows/s | st.files, rows/s | ratio |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for format, num_rows in (("parquet", NUM_ROWS // 4), ("tfrecord", 50_000)):
            paths = [f"{folder}/part-{number}.{format}" for number in range(4)]
            for path in paths:
                if format == "parquet":
                    table = make_table(num_rows)
                    lists = table.set_column(0, "x", table["x"].cast(pa.list_(pa.float32())))
                    pq.write_table(lists, path)
                else:
                    write_records(path, num_rows)
            options: dict[str, Any] = {"shapes": {"x": (WIDTH,)}}
            if format == "tfrecord":
                options["schema"] = {"x": "array<float>", "label": "long"}
            data = st.files(paths, format=format, **options)
            args = {"format": format, "paths": paths, "rounds": rounds}
            found = run_alone(measure, data, args)
            ratio = found["ours"] / found["plain"]
            line = f"| {format} | {found['plain']:,.0f} | {found['ours']:,.0f} | {ratio:.2f} |"
            print(line, flush=True)
