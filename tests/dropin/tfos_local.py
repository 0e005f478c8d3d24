"""The old API on a session of one process, which the old library could not use.

    python tfos_local.py FOLDER

Writes what happened to FOLDER/answer.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tfos_cases
from tensorflowonspark import TFCluster, TFParallel
from tensorflowonspark.pipeline import TFEstimator

SPARK = TFCluster.InputMode.SPARK


def read(folder: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def train(sc: Any, folder: Path) -> Any:
    """Three nodes on two slots."""
    args = {"folder": str(folder)}
    cluster = TFCluster.run(sc, tfos_cases.note, args, 3, 0, input_mode=SPARK, master_node="chief")
    cluster.train(sc.parallelize(range(100), 5), 2)
    cluster.shutdown()
    known = read(folder)
    return [sorted(known), sorted(row for node in known.values() for row in node["rows"])]


def infer(sc: Any, folder: Path) -> Any:
    cluster = TFCluster.run(sc, tfos_cases.square, {"batch_size": 7}, 2, 0, input_mode=SPARK)
    found = cluster.inference(sc.parallelize(range(50), 3)).collect()
    cluster.shutdown()
    return found


def fail(sc: Any, folder: Path) -> Any:
    cluster = TFCluster.run(sc, tfos_cases.fail, {}, 1, 0, input_mode=SPARK)
    try:
        cluster.train(sc.parallelize(range(10_000), 4))
    except Exception as error:
        cluster.end(error)
        return str(error)
    return None


def terminate(sc: Any, folder: Path) -> Any:
    cluster = TFCluster.run(sc, tfos_cases.terminate, {}, 1, 0, input_mode=SPARK)
    cluster.train(sc.parallelize(range(1_000_000), 4), 100)
    cluster.shutdown()
    return cluster.server.done


def alone(sc: Any, folder: Path) -> Any:
    TFParallel.run(sc, tfos_cases.alone, {"folder": str(folder)}, 2)
    return sorted(path.read_text() for path in folder.iterdir())


def estimate(sc: Any, folder: Path) -> Any:
    frame = SparkSession(sc).range(6).selectExpr("id as a", "array(id, id) as b")
    estimator: Any = TFEstimator(tfos_cases.note_tensors, {"folder": str(folder), "own": 1})
    estimator.setInputMapping({"a": "of_a", "b": "of_b"}).fit(frame)
    return sorted(read(folder)["tensors"]["of_b"])


def main(folder: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    answer: dict[str, Any] = {}
    for case in (train, infer, fail, terminate, alone, estimate):
        (folder / case.__name__).mkdir()
        answer[case.__name__] = case(spark.sparkContext, folder / case.__name__)
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
