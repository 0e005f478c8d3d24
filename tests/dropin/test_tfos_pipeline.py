"""TFEstimator and TFModel on Spark: what they feed, how they fail, and how they are saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
import tfos_cases
from tensorflowonspark.pipeline import TFEstimator, TFModel

MAPPING = {"b": "of_b", "a": "of_a"}


def make_estimator(function: Any, folder: Path, **args: Any) -> Any:
    estimator: Any = TFEstimator(function, {"folder": str(folder), "own": "kept", **args})
    return estimator.setInputMapping(MAPPING).setBatchSize(2).setMasterNode("chief")


def read(folder: Path) -> Any:
    return json.loads((folder / "tensors.json").read_text())


def test_columns_are_fed_by_their_names_and_estimators_saved(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml import Pipeline, PipelineModel

    frame = spark.createDataFrame(
        [([1.0, 2.0], "x", 1), ([3.0, 4.0], "y", 2)], "b array<double>, c string, a long"
    )
    estimator = make_estimator(tfos_cases.note_tensors, tmp_path).setEpochs(2)
    Pipeline(stages=[estimator]).save(str(tmp_path / "pipeline"))
    pipeline = Pipeline.load(str(tmp_path / "pipeline"))
    (loaded,) = pipeline.getStages()
    assert loaded.uid == estimator.uid and loaded.getEpochs() == 2
    fitted = pipeline.fit(frame)
    known = read(tmp_path)
    assert sorted(known["of_a"]) == [1, 1, 2, 2] and known["kinds"] == ["int", "list"]
    assert sorted(known["of_b"]) == [[1.0, 2.0]] * 2 + [[3.0, 4.0]] * 2
    pairs = zip(known["of_a"], known["of_b"], strict=True)
    assert all(b[0] == 2 * a - 1 for a, b in pairs)
    assert (known["epochs"], known["own"]) == (2, "kept")

    fitted.save(str(tmp_path / "fitted"))
    (model,) = PipelineModel.load(str(tmp_path / "fitted")).stages
    assert isinstance(model, TFModel) and model.getBatchSize() == 2
    assert model.getInputMapping() == MAPPING and model.args == fitted.stages[0].args


def test_nulls_and_arrays_of_any_length_are_fed_as_they_are(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([([1.0], 1), ([2.0, 3.0], None)], "b array<double>, a long")
    make_estimator(tfos_cases.note_tensors, tmp_path).fit(frame.coalesce(1))
    known = read(tmp_path)
    assert known["of_a"] == [1, None] and known["of_b"] == [[1.0], [2.0, 3.0]]


def test_a_training_that_fails_ends_its_cluster_at_once(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr("id as a", "id as b")
    with pytest.raises(st.NodeFailedError, match="this worker has had enough"):
        make_estimator(tfos_cases.fail, tmp_path).fit(frame)
    # Rows that fail in Spark: the function, which waits for more, is not waited for.
    bad = frame.selectExpr("a", "assert_true(a < 50) is null as b")
    with pytest.raises(Exception, match=r"assert_true|is not true"):
        make_estimator(tfos_cases.note_tensors, tmp_path).fit(bad)


def test_a_saved_model_transforms(spark: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    spec = [tf.TensorSpec([None, 2], tf.float32, "x")]
    serve = tf.function(lambda x: {"total": tf.reduce_sum(x, 1), "all": x * 2}, spec)
    tf.saved_model.save(module, str(tmp_path / "model"), {"serving_default": serve})
    model: Any = TFModel({"any": {1, 2}})
    model.setExportDir(str(tmp_path / "model")).setInputMapping({"v": "x"}).setTagSet("serve")
    model.setOutputMapping({"total": "sum", "all": "twice"}).save(str(tmp_path / "saved"))
    loaded = TFModel.load(str(tmp_path / "saved"))
    assert loaded.args == model.args
    frame = spark.createDataFrame([([1.0, 2.0],), ([3.0, 4.0],)], "v array<double>").coalesce(1)
    rows = [(row["sum"], row["twice"]) for row in loaded.transform(frame).collect()]
    assert rows == [(3.0, [2.0, 4.0]), (7.0, [6.0, 8.0])]
    ragged = spark.createDataFrame([([1.0, 2.0],), ([3.0],)], "v array<double>").coalesce(1)
    with pytest.raises(Exception, match="arrays of unequal lengths: 2 values in row 0 and 1"):
        loaded.transform(ragged).collect()


def test_a_training_on_tf_data(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr("array(cast(id as float)) as x", "cast(id as float) as y")
    estimator: Any = TFEstimator(tfos_cases.count_columns, {"folder": str(tmp_path)})
    estimator.setInputMapping({"x": "x", "y": "y"}).fit(frame)
    assert (tmp_path / "0.txt").read_text() == f"100 {float(sum(range(100)))}"
