"""Reading and writing TFRecord files in Spark, against the jar and against Python's protobuf.

    python bench/tfrecord.py [rates] [columns] [growth] [--cores 1 2] [--jar PATH] [--rounds 5]

rates    rows/s of five kinds of rows, read into nothing and written, in turns: this source,
         spark-tfrecord 0.7.0 on the JVM, and Examples made one by one by Python's protobuf,
         of the rows of an RDD and of Arrow batches
columns  seconds to read 1 to 100 of 100 columns
growth   MB/s for the same bytes in 1 to 10,000 files, and for files of 10 MB to 1 GB

The jar is fetched with mvn; --jar names one that is there already. Files are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tfrecord_peers as peers
from pyspark import cloudpickle

import sparktrain as st

#: Rows for one core, and what a row is made of.
KINDS: dict[str, tuple[int, list[str]]] = {
    "100 floats": (
        500_000,
        ["array(" + ",".join(f"cast(id * 0.001 + {i} as float)" for i in range(100)) + ") as x"],
    ),
    "30 mixed columns": (
        350_000,
        [f"id + {i} as l{i}" for i in range(10)]
        + [f"cast(id * 0.5 + {i} as float) as f{i}" for i in range(10)]
        + [f"cast(id + {i} as string) as s{i}" for i in range(10)],
    ),
    "images of 784 bytes": (600_000, ["cast(repeat('a', 784) as binary) as x", "id as label"]),
    "images of 150 KB": (4_000, ["cast(repeat('abc', 50176) as binary) as x", "id as label"]),
    "ragged strings": (
        1_000_000,
        [
            "transform(sequence(1, cast(1 + id % 12 as int)),"
            " i -> concat('word', cast(i * id as string))) as w",
            "id as label",
        ],
    ),
}
# Executors do not have this folder.
by_value: Any = cloudpickle.register_pickle_by_value
by_value(peers)
#: Python's protobuf gets this share of the rows: it would take minutes otherwise.
PROTOBUF_SHARE = 8
PROTOBUF = [
    ("protobuf rows", peers.write_by_rows, peers.read_by_rows),
    ("protobuf batches", peers.write_by_batches, peers.read_by_batches),
]


def make_session(cores: int, jar: str | None) -> Any:
    conf = {"spark.jars": jar} if jar else {}
    return st.session(num_executors=1, executor_cores=cores, executor_memory_mb=6144, conf=conf)


def clock(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def swallow(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def time_rates(cores: int, jar: str | None, rounds: int) -> dict[str, Any]:
    """Rows/s by kind of row, direction and way; medians."""
    spark = make_session(cores, jar)
    ways = {"ours": "tfrecord", **({"jar": peers.JAR_FORMAT} if jar else {})}
    found: dict[str, Any] = {}
    for kind, (num_rows, expressions) in KINDS.items():
        num_rows *= cores
        frame = spark.range(0, num_rows, 1, 2 * cores).selectExpr(*expressions).cache()
        small = spark.range(0, num_rows // PROTOBUF_SHARE, 1, 2 * cores).selectExpr(*expressions)
        small = small.cache()
        frame.count(), small.count()
        rates: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for number in range(rounds + 2):  # two to warm up: the JVM compiles
                for way, name in ways.items():
                    path = f"{folder}/{way}"
                    shutil.rmtree(path, ignore_errors=True)
                    writer = frame.write.format(name).mode("append")
                    note(rates, number, f"write {way}", num_rows, partial(writer.save, path))
                for way, name in ways.items():
                    # Both read the same files.
                    reader = spark.read.format(name).schema(frame.schema)
                    files = reader.load(f"{folder}/ours")
                    note(rates, number, f"read {way}", num_rows, partial(swallow, files))
                if 0 < number < 2 + min(rounds, 3):
                    rows = num_rows // PROTOBUF_SHARE
                    for way, write, read in PROTOBUF:
                        path = f"{folder}/{way}"
                        shutil.rmtree(path, ignore_errors=True)
                        note(rates, number, f"write {way}", rows, write(small, path).collect)
                        found_rows = read(spark, path, small.schema)
                        note(rates, number, f"read {way}", rows, partial(swallow, found_rows))
            check_same(spark, ways, folder, frame)
        frame.unpersist()
        small.unpersist()
        found[kind] = {name: statistics.median(values) for name, values in rates.items()}
        print(f"  {cores} core(s), {kind}: {json.dumps(found[kind])}", file=sys.stderr, flush=True)
    return found


def note(
    rates: dict[str, list[float]], number: int, name: str, rows: int, work: Callable[[], Any]
) -> None:
    seconds = clock(work)
    if number >= 2:
        rates.setdefault(name, []).append(rows / seconds)


def check_same(spark: Any, ways: dict[str, str], folder: str, frame: Any) -> None:
    """Each reads what each wrote: the same rows."""
    columns = [f"sum(hash({name})) as {name}" for name in frame.columns]
    expected = frame.selectExpr("count(*) as n", *columns).collect()
    for written in ways:
        for name in ways.values():
            files = spark.read.format(name).schema(frame.schema).load(f"{folder}/{written}")
            assert files.selectExpr("count(*) as n", *columns).collect() == expected


def time_columns(rounds: int) -> dict[int, float]:
    """Seconds by the number of columns that are read."""
    spark = make_session(2, None)
    frame = spark.range(0, 200_000, 1, 4).selectExpr(*(f"id + {i} as c{i:03d}" for i in range(100)))
    found: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        st.tfrecord.write(frame, f"{folder}/out")
        for number in range(rounds + 2):
            for count in (1, 10, 50, 100):
                schema = ", ".join(f"c{i:03d} long" for i in range(0, 100, 100 // count))
                files = st.tfrecord.read(spark, f"{folder}/out", schema=schema)
                seconds = clock(partial(swallow, files))
                if number >= 2:
                    found.setdefault(count, []).append(seconds)
    return {count: statistics.median(values) for count, values in found.items()}


def time_growth(rounds: int) -> dict[str, dict[int, float]]:
    """MB/s by the number of files of 100 MB in all, and by the MB of one file."""
    spark = make_session(2, None)
    found: dict[str, dict[int, float]] = {"files": {}, "megabytes": {}}
    row = "cast(repeat('a', 984) as binary) as x"
    for count in (1, 10, 100, 1_000, 10_000):
        found["files"][count] = time_files(spark, row, count, 100, rounds)
    for megabytes in (10, 100, 300, 1_000):
        found["megabytes"][megabytes] = time_files(spark, row, 1, megabytes, rounds)
    return found


def time_files(spark: Any, row: str, count: int, megabytes: int, rounds: int) -> float:
    rows = megabytes * 1_000
    with tempfile.TemporaryDirectory() as folder:
        frame = spark.range(0, rows, 1, min(count, 2)).selectExpr(row)
        st.tfrecord.write(frame, f"{folder}/out", maxRecordsPerFile=-(-rows // count))
        paths = list(Path(folder, "out").glob("part-*"))
        assert len(paths) >= count
        size = sum(path.stat().st_size for path in paths)
        times = []
        for _ in range(rounds + 1):
            files = st.tfrecord.read(spark, f"{folder}/out", schema="x binary")
            times.append(clock(partial(swallow, files)))
    return size / 1e6 / statistics.median(times[1:])


def show_rates(found: dict[int, dict[str, Any]], has_jar: bool) -> None:
    for direction in ("read", "write"):
        print(f"\n{direction}, rows/s (median)\n")
        print("| rows | cores | sparktrain | the jar | ratio | protobuf, rows | ratio", end="")
        print(" | protobuf, Arrow batches | ratio |")
        print("|---|---|---|---|---|---|---|---|---|")
        for kind in KINDS:
            for cores, kinds in found.items():
                rates = kinds[kind]
                ours = rates[f"{direction} ours"]
                cells = [kind, str(cores), f"{ours:,.0f}"]
                for way in ("jar", "protobuf rows", "protobuf batches"):
                    other = rates.get(f"{direction} {way}")
                    cells += [f"{other:,.0f}", f"{ours / other:.2f}"] if other else ["-", "-"]
                print(f"| {' | '.join(cells)} |")
    if not has_jar:
        print("\nThe jar is not in this machine's Maven registry: no comparison with it.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help="rates, columns, growth")
    parser.add_argument("--cores", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--jar", help="path of spark-tfrecord's jar")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    parts = wanted.parts or ["rates", "columns", "growth"]
    if wanted.alone:
        print(json.dumps(time_rates(wanted.alone, wanted.jar, wanted.rounds)))
        return
    print(f"load before: {os.getloadavg()[0]:.1f}")
    if "rates" in parts:
        jar = wanted.jar or peers.fetch_jar()
        found = {}
        for cores in wanted.cores:  # each in a process of its own: a Spark has its cores for good
            words = [sys.executable, __file__, "--alone", str(cores)]
            words += ["--rounds", str(wanted.rounds), *(["--jar", jar] if jar else [])]
            answer = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            found[cores] = json.loads(answer.stdout.splitlines()[-1])
        show_rates(found, jar is not None)
    if "columns" in parts:
        print("\n| columns read of 100 | seconds |\n|---|---|")
        for count, seconds in time_columns(wanted.rounds).items():
            print(f"| {count} | {seconds:.2f} |")
    if "growth" in parts:
        for name, rates in time_growth(wanted.rounds).items():
            print(f"\n| {name} | MB/s |\n|---|---|")
            for number, rate in rates.items():
                print(f"| {number:,} | {rate:.0f} |")


if __name__ == "__main__":
    main()
