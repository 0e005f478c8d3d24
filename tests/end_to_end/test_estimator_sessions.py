"""The estimator over Spark Connect, and a model in a session without the training code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.feature import VectorAssembler

import estimator_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)

SCRIPT = Path(__file__).with_name("estimator_session.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_over_connect_and_without_the_training_code(spark: Any, tmp_path: Path) -> None:
    iris = cases.make_iris(spark)
    iris.write.parquet(str(tmp_path / "iris.parquet"))
    est = st.KerasClassifier(
        model=cases.build_flat,
        featureCols=["v"],
        labelCol="species",
        loss="sparse_categorical_crossentropy",
        learningRate=0.05,
        epochs=3,
        progress=False,
    )
    assembler = VectorAssembler(inputCols=list("abcd"), outputCol="v")
    fitted = Pipeline(stages=[assembler, est]).fit(iris)
    fitted.write().save(str(tmp_path / "fitted"))
    process = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert process.returncode == 0, process.stdout[-3000:]
    answer = json.loads((tmp_path / "answer.json").read_text())
    rows = fitted.transform(iris).orderBy("id")
    rows = rows.select("prediction", "label_index", "probability").collect()
    for found, row in zip(answer["loaded"], rows, strict=True):
        assert found[:2] == [row[0], row[1]]
        assert found[2] == pytest.approx(list(row[2]), abs=1e-4)
    hits = sum(prediction == index for prediction, index, _ in answer["fitted"])
    assert hits > 110 and answer["again"] == answer["fitted"]
    assert "'v'" in answer["error"]
    assert "more than Spark Connect lets through" in answer["large"]
    for (best, scores), (prediction, _, probability) in zip(
        answer["alone"], answer["fitted"], strict=True
    ):
        assert best == prediction and scores == pytest.approx(probability, abs=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_and_a_search_over_connect(spark: Any, tmp_path: Path) -> None:
    cases.make_iris(spark).write.parquet(str(tmp_path / "iris.parquet"))
    process = subprocess.run(
        [sys.executable, str(SCRIPT.with_name("estimator_search.py")), str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert process.returncode == 0, process.stdout[-3000:]
    answer = json.loads((tmp_path / "answer.json").read_text())
    two, search = answer["two"], answer["search"]
    assert len(two["rows"]) == 2 and max(two["rows"]) - min(two["rows"]) <= 4
    assert len(two["history"]["val_loss"]) == 4 and two["hits"] > 110
    assert two["history"]["loss"][-1] < two["history"]["loss"][0]
    poor, good = search["metrics"]
    # A run for each fold, and one for the best candidate on all rows.
    assert poor < 0.7 < good and search["runs"] == 3 and search["hits"] > 110
