"""Epochs from the spill and files, against pyarrow and tf.data doing the same by hand.

Each is read twice: by a loop in Python, and by TensorFlow itself, as `fit` reads a dataset or the
generator that it is given.
"""

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
HEADER = """| Python loop, rows/s | ours to it | in TensorFlow, rows/s | ours to it |
|---|---|---|---|---|"""


def make_table(num_rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    values = pa.array(rng.random(num_rows * WIDTH, np.float32))
    x = pa.FixedSizeListArray.from_arrays(values, WIDTH)
    return pa.table({"x": x, "label": pa.array(np.arange(num_rows))})


def time_loop(make: Callable[[], Iterator[Any]]) -> float:
    """Rows per second of a pass in Python."""
    started = time.perf_counter()
    rows = sum(len(label) for _, label in make())
    return rows / (time.perf_counter() - started)


def time_inside(dataset: Any) -> float:
    """Rows per second of a pass in TensorFlow."""
    import tensorflow as tf

    def count(rows: Any, pair: Any) -> Any:
        return rows + tf.shape(pair[1], tf.int64)[0]

    started = time.perf_counter()
    rows = int(dataset.reduce(np.int64(0), count))
    return rows / (time.perf_counter() - started)


def as_fit_does(make: Callable[[], Iterator[Any]]) -> Any:
    """The dataset that Keras makes of a generator."""
    import tensorflow as tf

    signature = (
        tf.TensorSpec((None, WIDTH), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    return tf.data.Dataset.from_generator(make, output_signature=signature).prefetch(
        tf.data.AUTOTUNE
    )


def measure_in_turns(
    ways: dict[str, tuple[Callable[[], Iterator[Any]], Any]], rounds: int
) -> dict[str, list[float]]:
    """Median rates of each way, in a loop and inside TensorFlow."""
    found: dict[str, list[list[float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, (make, dataset) in ways.items():
            rates = [time_loop(make), time_inside(dataset)]
            if number:  # the first one warms up
                found[name].append(rates)
    return {
        name: [statistics.median(values) for values in zip(*rates, strict=True)]
        for name, rates in found.items()
    }


def show(what: str, ours: str, found: dict[str, list[float]]) -> None:
    for name, (loop, inside) in found.items():
        ratios = [found[ours][0] / loop, found[ours][1] / inside]
        print(
            f"| {what}{name} | {loop:,.0f} | {ratios[0]:.2f} | {inside:,.0f} | {ratios[1]:.2f} |",
            flush=True,
        )


def read_by_hand(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Batches of 256 as tensors, as somebody would write it with pyarrow."""
    import tensorflow as tf

    for block in batches:
        x = block.column("x").flatten().to_numpy().reshape(-1, WIDTH)
        label = block.column("label").to_numpy()
        for start in range(0, len(label), BATCH):
            yield (
                tf.convert_to_tensor(x[start : start + BATCH]),
                tf.convert_to_tensor(label[start : start + BATCH]),
            )


def run_alone(function: Any, data: Any, args: Any) -> dict[str, list[float]]:
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
        answer: dict[str, list[float]] = json.loads(Path(folder, "answer.json").read_text())
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

        def by_arrow() -> Iterator[Any]:
            return own.read_by_hand(own._read_arrow(arrow))

        def by_parquet() -> Iterator[Any]:
            return own.read_by_hand(pq.ParquetFile(parquet).iter_batches(10_000))

        ways: dict[str, Any] = {
            "the spill": (lambda: iter(dataset), dataset),
            "an Arrow file by hand": (by_arrow, own.as_fit_does(by_arrow)),
            "a Parquet file by hand": (by_parquet, own.as_fit_does(by_parquet)),
        }
        found = own.measure_in_turns(ways, ctx.args["rounds"])
        Path(ctx.run_dir, "answer.json").write_text(json.dumps(found))

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
    print(f"\n| second epoch from {HEADER}")
    show("", "the spill", found)


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
            for path in ctx.args["paths"]:
                yield from own.read_by_hand(pq.ParquetFile(path).iter_batches(10_000))

        def parse() -> Any:
            features = {
                "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
                "label": tf.io.FixedLenFeature([], tf.int64),
            }
            records = tf.data.TFRecordDataset(ctx.args["paths"]).batch(BATCH)
            parsed = records.map(
                lambda serialized: tf.io.parse_example(serialized, features),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            return parsed.map(lambda row: (row["x"], row["label"])).prefetch(tf.data.AUTOTUNE)

        ways: dict[str, Any] = {"st.files": (lambda: iter(dataset), dataset)}
        if ctx.args["format"] == "parquet":
            ways["pyarrow by hand"] = (plain, own.as_fit_does(plain))
        else:
            parsed = parse()
            ways["tf.data by hand"] = (lambda: iter(parsed), parsed)
        found = own.measure_in_turns(ways, ctx.args["rounds"])
        Path(ctx.run_dir, "answer.json").write_text(json.dumps(found))

    print(f"\n| files with {HEADER}")
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
            show(f"{format}: ", "st.files", found)
