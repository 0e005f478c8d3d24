"""Saved estimators and searches in a process that has none of the modules of their code.

    python kept_session.py FOLDER

FOLDER has a pipeline "pipeline" with a search inside, a fitted search "search", and rows
"rows.parquet". Writes FOLDER/answer.json.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.tuning import CrossValidatorModel
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    frame = spark.read.parquet(str(folder / "rows.parquet"))
    search = CrossValidatorModel.load(str(folder / "search"))
    pipeline = Pipeline.load(str(folder / "pipeline"))
    answer: dict[str, Any] = {
        "is known": importlib.util.find_spec("own_layers") is not None,
        "keras": "keras" in sys.modules,
        "scored": [row["prediction"] for row in search.transform(frame).orderBy("y").collect()],
    }
    fitted = pipeline.fit(frame)
    fitted.write().overwrite().save(str(folder / "fitted"))
    (inner,) = PipelineModel.load(str(folder / "fitted")).stages[0].stages
    answer["metrics"] = list(inner.validationMetrics)
    answer["history"] = list(inner.bestModel.history.columns)
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
