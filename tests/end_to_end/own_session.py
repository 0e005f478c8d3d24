"""A saved model in a process that has none of the modules its layers were written in.

    python own_session.py FOLDER

FOLDER has a saved model "model" and rows "rows.parquet". Writes FOLDER/answer.json.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import sparktrain as st


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    frame = spark.read.parquet(str(folder / "rows.parquet"))
    model = st.KerasModel.load(str(folder / "model"))
    answer: dict[str, Any] = {
        "is known": importlib.util.find_spec("own_layers") is not None,
        "scored": [row["prediction"] for row in model.transform(frame).orderBy("y").collect()],
        "plain": [row["p"][0] for row in st.predict(frame, model, outputs="p").sort("y").collect()],
    }
    keras_model = model.keras_model()
    answer["compiled"] = bool(keras_model.compiled)
    answer["loss"] = getattr(keras_model.loss, "__name__", str(keras_model.loss))
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
