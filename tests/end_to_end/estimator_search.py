"""A fit on two workers and a search over Spark Connect, in a process of its own.

    python estimator_search.py FOLDER

FOLDER/iris.parquet has the rows. Writes FOLDER/answer.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import sparktrain as st


def build() -> Any:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])


def make(folder: Path, **wishes: Any) -> st.KerasClassifier:
    kept: dict[str, Any] = {"model": build, "featureCols": ["measures"], "labelCol": "species"}
    kept.update(loss="sparse_categorical_crossentropy", learningRate=0.1, optimizer="adam")
    kept.update(standardize=True, batchSize=16, epochs=4, seed=1, progress=False)
    return st.KerasClassifier(**{**kept, "runDir": str(folder), **wishes})


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    frame = spark.read.parquet(str(folder / "iris.parquet")).coalesce(1)
    answer = {"two": fit(folder / "two", frame), "search": search(folder / "search", frame)}
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


def fit(folder: Path, frame: Any) -> dict[str, Any]:
    model = make(folder, numWorkers=2, validation=0.2).fit(frame)
    nodes = json.loads((folder / "result.json").read_text())["nodes"]
    history = {name: list(values) for name, values in model.history.items()}
    return {"rows": [one["rows"] for one in nodes], "history": history, "hits": hits(model, frame)}


def search(folder: Path, frame: Any) -> dict[str, Any]:
    """Two folds of two candidates, which share a run, and the best one on all rows."""
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    est = make(folder)
    found = CrossValidator(
        estimator=est,
        estimatorParamMaps=ParamGridBuilder().addGrid(est.learningRate, [1e-6, 0.1]).build(),
        evaluator=MulticlassClassificationEvaluator(labelCol="label_index"),
        numFolds=2,
        seed=1,
    ).fit(frame)
    runs = len(list(folder.rglob("run.json")))
    best = hits(found.bestModel, frame)
    return {"metrics": list(found.avgMetrics), "runs": runs, "hits": best}


def hits(model: Any, frame: Any) -> int:
    return int(model.transform(frame).filter("prediction = label_index").count())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
