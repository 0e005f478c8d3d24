"""An estimator over Spark Connect, in a process of its own that never saw the training code.

    python estimator_session.py FOLDER

FOLDER/fitted is a PipelineModel that another session saved. Writes FOLDER/answer.json.
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


def make_large() -> Any:
    """A model of this process that no message of Connect has room for."""
    import keras

    return keras.Sequential([keras.Input((1,)), keras.layers.Embedding(27_000_000, 1)])


def main(folder: Path) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]")
    # Every task has a worker of its own: models are loaded again, and nothing else changes.
    spark = builder.config("spark.python.worker.reuse", "false").getOrCreate()
    frame = spark.read.parquet(str(folder / "iris.parquet"))
    loaded = PipelineModel.load(str(folder / "fitted"))
    answer: dict[str, Any] = {"loaded": score(loaded, frame)}
    est = st.KerasClassifier(
        model=build,
        featureCols=["v"],
        labelCol="species",
        validation=0.2,
        standardize=True,
        loss="sparse_categorical_crossentropy",
        learningRate=0.1,
        batchSize=16,
        epochs=4,
        progress=False,
        runDir=str(folder / "run"),
    )
    assembler = VectorAssembler(inputCols=list("abcd"), outputCol="v")
    fitted = Pipeline(stages=[assembler, est]).fit(frame)
    answer["fitted"] = score(fitted, frame)
    fitted.write().overwrite().save(str(folder / "again"))
    fitted.write().overwrite().save(str(folder / "again"))
    answer["again"] = score(PipelineModel.load(str(folder / "again")), frame)
    path = fitted.stages[-1].export(str(folder / "flowers.keras"))
    answer["alone"] = score_alone(path, frame)
    try:
        fitted.stages[-1].transform(frame)
    except st.ConfigError as error:
        answer["error"] = str(error)
    try:
        st.predict(frame, make_large(), inputs="a")
    except st.ModelError as error:
        answer["large"] = str(error)
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


def score_alone(path: str, frame: Any) -> list[list[Any]]:
    """The same model as a file, without its contract: by predict(), and by a function."""
    columns = list("abcd")
    scored = st.predict(frame, path, inputs=columns, outputs="p", keep=["id", *columns])
    function = st.predict_udf(path, outputs=st.argmax("best"))
    rows = scored.withColumn("best", function(*columns)).orderBy("id").collect()
    return [[row["best"], [round(one, 5) for one in row["p"]]] for row in rows]


def score(model: Any, frame: Any) -> list[list[Any]]:
    scored = model.transform(frame).orderBy("id")
    rows = scored.select("prediction", "label_index", "probability").collect()
    return [[row[0], row[1], [round(one, 5) for one in row[2]]] for row in rows]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
