"""Clusters on another kind of session: a program of its own, for one Java per process.

    python cluster_sessions.py KIND FOLDER

KIND is a master such as local[2], or connect. Writes what happened to FOLDER/answer.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

import cluster_cases
import other_sessions
import sparktrain as st

QUIET: dict[str, Any] = {"progress": False, "distribution": "none"}


def feed(spark: Any, folder: Path) -> Any:
    """Uneven partitions, an empty one, two epochs; more partitions than slots and nodes."""
    frame = spark.range(0, 1000, 1, 5).where("id < 10 or id > 400")
    expected = sorted([*range(10), *range(401, 1000)] * 2)
    with st.cluster(
        cluster_cases.note_ids, num_workers=2, spark=spark, run_dir=folder, **QUIET
    ) as cluster:
        result = cluster.feed(frame, epochs=2)
        hosts = len({(node.host, node.pid) for node in cluster.nodes})
    found = cluster_cases.read_ids(str(folder))
    return [result.rows, len(result.by_node), hosts, found == expected]


def feed_rows(spark: Any, folder: Path) -> Any:
    rows = [None, (1, "a"), {"k": 2}, b"x", "text"]
    with st.cluster(
        cluster_cases.note_rows, num_workers=2, spark=spark, run_dir=folder, **QUIET
    ) as cluster:
        cluster.feed(spark.sparkContext.parallelize(rows, 3))
    texts = [line for path in folder.glob("*.rows") for line in path.read_text().splitlines()]
    return sorted(texts)


def predict(spark: Any, folder: Path) -> Any:
    with st.cluster(
        cluster_cases.answer_double, num_workers=2, spark=spark, run_dir=folder, **QUIET
    ) as cluster:
        rows = cluster.predict(spark.range(0, 500, 1, 3)).collect()
    return [[row.id for row in rows] == list(range(500)), all(r.double == 2 * r.id for r in rows)]


def fail(spark: Any, folder: Path) -> Any:
    """A trainer that is killed while feeding jobs run."""
    started = time.monotonic()
    try:
        with st.cluster(
            cluster_cases.fail_at, num_workers=2, spark=spark, run_dir=folder, args="kill", **QUIET
        ) as cluster:
            started = time.monotonic()
            cluster.feed(spark.range(0, 2_000_000, 1, 4), epochs=50)
    except st.SparktrainError as error:
        return [type(error).__name__, str(error), time.monotonic() - started]
    return None


def stop(spark: Any, folder: Path) -> Any:
    with st.cluster(
        cluster_cases.stop_early, num_workers=2, spark=spark, run_dir=folder, **QUIET
    ) as cluster:
        return cluster.feed(spark.range(0, 50_000_000, 1, 8), epochs=10).was_stopped


def stream(spark: Any, folder: Path) -> Any:
    source = str(folder / "source")
    spark.range(0, 300, 1, 3).write.parquet(source)
    frame = spark.readStream.schema("id long").parquet(source)
    with st.cluster(
        cluster_cases.note_ids, num_workers=2, spark=spark, run_dir=folder / "run", **QUIET
    ) as cluster:
        try:
            cluster.feed(frame, trigger={"availableNow": True}).wait(60)
        except st.ConfigError as error:
            return str(error)
    return cluster_cases.read_ids(cluster.run_dir) == list(range(300))


def fit(spark: Any, folder: Path) -> Any:
    """Keras on two workers that get uneven rows."""
    frame = spark.range(0, 501, 1, 3).selectExpr(
        "array(cast(id % 7 as float), 1.0f) as x", "cast(id % 7 as float) as y"
    )
    with st.cluster(
        cluster_cases.fit,
        num_workers=2,
        spark=spark,
        run_dir=folder,
        args={"batch_size": 64},
        progress=False,
    ) as cluster:
        cluster.feed(frame, epochs=2)
    return cluster.metrics[0]["rows"]


def coordinate(spark: Any, folder: Path) -> Any:
    """A parameter server."""
    frame = spark.range(0, 2000, 1, 4).selectExpr(
        "array(cast(id % 5 as float), 1.0f) as x", "cast(2 * (id % 5) + 1 as float) as y"
    )
    with st.cluster(
        cluster_cases.coordinate,
        num_workers=2,
        num_ps=1,
        spark=spark,
        run_dir=folder,
        progress=False,
    ) as cluster:
        cluster.feed(frame)
    (row,) = cluster.metrics
    return [row["steps"], row["last"] < row["first"] / 2]


def find_left() -> list[str]:
    """Keepers and trainers of this program that are still there."""
    deadline = time.monotonic() + 8
    while True:
        left = []
        for process in psutil.process_iter():
            try:
                line = " ".join(process.cmdline())
                mine = process.environ().get("CLUSTER_SESSIONS") == str(os.getpid())
            except psutil.Error:
                continue
            if mine and ("sparktrain.trainer" in line or "agent.keeper" in line):
                left.append(line)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def main(kind: str, folder: Path) -> None:
    os.environ["CLUSTER_SESSIONS"] = str(os.getpid())
    spark = other_sessions.make_session(kind)
    cases = [feed, predict, fail, stop, stream, fit, coordinate]
    if kind != "connect":  # which has no RDDs
        cases.insert(1, feed_rows)
    answer: dict[str, Any] = {}
    for case in cases:
        (folder / case.__name__).mkdir()
        answer[case.__name__] = case(spark, folder / case.__name__)
    answer["left"] = find_left()
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
