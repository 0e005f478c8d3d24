"""Scoring: st.predict against the model itself, against predict_batch_udf, and against TFModel.

    python bench/inference.py [mlp] [cnn] [lstm] [estimator] [--rounds 5] [--no-peer]

Each model scores rows that Spark has in memory (arrays of floats; for cnn the bytes of pictures),
on 1 and on 2 cores, in turns:
    limit      predict_on_batch on arrays in memory, a process with one thread for each core
    ours       st.predict
    bare       mapInArrow that reads the rows and answers with ten zeros each: what Spark takes
    udf        pyspark.ml.functions.predict_batch_udf with predict_on_batch, in a cluster of its own
    peer       TFModel.transform of TensorFlowOnSpark 2.2.5, on two executors
"Both in turns" is limit and bare one after the other: where all cores are busy, nobody who reads
rows through Spark can be faster.
estimator: KerasEstimator.fit against run() with the same model, rows and epochs.
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import feed_peer
from inference_models import BATCH, SIZES, TIMES

HERE = Path(__file__).parent


def start(arguments: list[Any], count: int, stack: ExitStack) -> list[Any]:
    """Processes that wait to be told to score."""
    script, *rest = arguments
    command = [sys.executable, str(HERE / script), *map(str, rest)]
    found = []
    for _ in range(count):
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        stack.callback(process.wait)
        stack.callback(process.stdin.close)  # type: ignore[union-attr]
        found.append(process)
    for process in found:
        assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]
    return found


def tell(processes: list[Any]) -> float:
    """Seconds until all have scored their rows."""
    began = time.perf_counter()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.stdout.readline()
    return time.perf_counter() - began


def make_frame(spark: Any, name: str, cores: int) -> Any:
    """The rows in Spark's memory, in two partitions for each core: some seconds a task."""
    count, width = SIZES[name][0] // TIMES // 4, SIZES[name][1]
    is_bytes = name == "cnn"

    def rows(batches: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                generator = np.random.default_rng(number)
                ids = pa.array(np.arange(number * count, (number + 1) * count))
                if is_bytes:
                    pixels = generator.integers(0, 256, (count, width), dtype="uint8")
                    x = pa.array([row.tobytes() for row in pixels], pa.binary())
                else:
                    flat = pa.array(generator.random(count * width, np.float32))
                    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
                    x = pa.ListArray.from_arrays(pa.array(offsets), flat)
                yield pa.RecordBatch.from_arrays([ids, x], names=["id", "x"])

    kind = "binary" if is_bytes else "array<float>"
    frame = spark.range(0, 4, 1, 4).mapInArrow(rows, f"id long, x {kind}").cache()
    frame.count()
    whole = frame
    for _ in range(TIMES - 1):
        whole = whole.union(frame)
    return whole.coalesce(2 * cores)


def make_bare(frame: Any) -> Any:
    def answer(batches: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            offsets = pa.array(np.arange(0, batch.num_rows * 10 + 1, 10, dtype=np.int32))
            zeros = pa.array(np.zeros(batch.num_rows * 10, np.float32))
            lists = pa.ListArray.from_arrays(offsets, zeros)
            yield pa.RecordBatch.from_arrays([batch.column("id"), lists], names=["id", "p"])

    return frame.mapInArrow(answer, "id long, p array<float>")


def run_out(frame: Any) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def measure(name: str, cores: int, folder: Path, rounds: int) -> dict[str, float]:
    """Median rows/s of each."""
    import sparktrain as st

    spark = st.session(num_executors=cores)
    path = folder / f"{name}.keras"
    times: dict[str, list[float]] = {"limit": [], "ours": [], "bare": [], "udf": []}
    with ExitStack() as stack:
        frame = make_frame(spark, name, cores)
        began = time.perf_counter()
        ours = st.predict(frame, path, inputs="x", outputs="p", keep=["id"], batch_size=BATCH)
        print(f"  {name}: looked at in {time.perf_counter() - began:.1f} s", flush=True)
        bare = make_bare(frame)
        print(f"  {name}: first, with loading, ours {run_out(ours):.1f} s", flush=True)
        limit = start(["inference_limit.py", name, folder, SIZES[name][0] // cores], cores, stack)
        udf = start(["inference_udf.py", name, folder, cores], 1, stack)
        for _ in range(rounds + 1):
            times["limit"].append(tell(limit))
            times["ours"].append(run_out(ours))
            times["bare"].append(run_out(bare))
            times["udf"].append(tell(udf))
    spark.stop()
    count = SIZES[name][0]
    # The first round warms Java up.
    return {who: count / statistics.median(some[1:]) for who, some in times.items()}


def measure_peer(name: str, folder: Path, rounds: int) -> float:
    """Rows/s of TFModel.transform, in its own environment and with fewer rows."""
    python = feed_peer._make_environment()
    rows = {"mlp": 40_000, "cnn": 6_000, "lstm": 4_000}[name]
    env = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    env.pop("SPARK_HOME", None)
    command = [str(python), str(HERE / "inference_peer.py"), str(folder / name), str(rows)]
    done = subprocess.run(
        [*command, str(SIZES[name][1]), str(rounds)],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"{python}: {done.stderr[-2000:]}")
    seconds: list[float] = json.loads(lines[-1].removeprefix("RESULT "))
    return rows / statistics.median(seconds)


def compare(name: str, rounds: int, with_peer: bool) -> list[str]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # In a process of its own: here TensorFlow would hold threads and memory.
        code = (
            f"import inference_models, pathlib; inference_models.write({name!r},"
            f" pathlib.Path({temporary!r}))"
        )
        subprocess.run([sys.executable, "-c", code], cwd=HERE, check=True, capture_output=True)
        lines = []
        for cores in (1, 2):
            found = measure(name, cores, folder, rounds)
            ours = found["ours"]
            line = f"| {name}, {cores} | {found['limit']:,.0f} | {ours:,.0f} |"
            both = 1 / (1 / found["limit"] + 1 / found["bare"])
            line += f" {ours / found['limit']:.2f} | {found['bare']:,.0f} | {ours / both:.2f} |"
            line += f" {found['udf']:,.0f} |"
            line += f" {ours / found['udf']:.2f} |"
            if with_peer and cores == 2:
                peer = measure_peer(name, folder, min(rounds, 3))
                line += f" {peer:,.0f} | {ours / peer:.1f} |"
            else:
                line += " | |"
            print(line, flush=True)  # as it comes: the whole takes long
            lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help=", ".join([*SIZES, "estimator"]))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    parts = options.parts or [*SIZES, "estimator"]
    print(f"load before: {os.getloadavg()[0]:.1f}")
    lines = []
    for part in parts:
        if part != "estimator":
            lines += compare(part, options.rounds, not options.no_peer)
    if lines:
        print(
            "\n| model, cores | predict_on_batch, rows/s | st.predict | to it (goal 0.9) |"
            " bare mapInArrow | ours to both in turns | predict_batch_udf |"
            " ours to it (goal 1.3) | TFModel | ours to it (goal 10) |\n"
            "|---|---|---|---|---|---|---|---|---|---|"
        )
        print("\n".join(lines), flush=True)
    if "estimator" in parts:
        import inference_estimator

        inference_estimator.main(options.rounds)


if __name__ == "__main__":
    main()
