"""A classifier in a Pipeline: trained on two workers, scored, saved, loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler

import estimator_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)

FEATURES = list("abcd")


@pytest.fixture(scope="module")
def iris(spark_session: Any) -> Any:
    return cases.make_iris(spark_session)


def make_pipeline(**more: Any) -> Pipeline:
    wishes: dict[str, Any] = {
        "model": cases.build_flat,
        "modelArgs": {"units": 12},
        "featureCols": ["v"],
        "labelCol": "species",
        "validation": 0.2,
        "standardize": True,
        "loss": "sparse_categorical_crossentropy",
        "optimizer": "adam",
        "learningRate": 0.05,
        "metrics": ["accuracy"],
        "batchSize": 16,
        "epochs": 8,
        "numWorkers": 2,
        "seed": 3,
    }
    est = st.KerasClassifier(**{**wishes, **more})
    return Pipeline(stages=[VectorAssembler(inputCols=FEATURES, outputCol="v"), est])


@pytest.fixture(scope="module")
def fitted(iris: Any) -> PipelineModel:
    return make_pipeline().fit(iris)


@pytest.fixture(scope="module")
def model(fitted: PipelineModel) -> st.KerasModel:
    found = fitted.stages[-1]
    assert isinstance(found, st.KerasModel)
    return found


def test_it_learns_what_flowers_are(fitted: PipelineModel, iris: Any) -> None:
    scored = fitted.transform(iris)
    assert scored.columns == [
        *iris.columns,
        "v",
        "prediction",
        "probability",
        "rawPrediction",
        "predicted_label",
        "label_index",
    ]
    rows = scored.collect()
    assert len(rows) == 150
    for row in rows:
        assert row.label_index == row.label == cases.IRIS.index(row.species)
        assert row.prediction == np.argmax(row.probability.toArray())
        assert row.predicted_label == cases.IRIS[int(row.prediction)]
        assert abs(sum(row.probability) - 1) < 1e-5
    evaluator = MulticlassClassificationEvaluator(labelCol="label_index", metricName="accuracy")
    assert evaluator.evaluate(scored) > 0.9


def test_history_has_a_row_for_each_epoch(model: st.KerasModel) -> None:
    history = model.history
    assert list(history.index) == list(range(1, 9))
    assert set(history.columns) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history["loss"].iloc[-1] < history["loss"].iloc[0] / 2
    assert "Trainable params: 99" in model.summary()


def test_the_run_is_kept(model: st.KerasModel) -> None:
    result = json.loads((Path(model.run_dir) / "result.json").read_text())
    assert result["ok"] and len(result["nodes"]) == 2
    # Every row of the training part once in each of 8 epochs, over both workers.
    rows = [node["rows"] for node in result["nodes"]]
    assert sum(rows) % 8 == 0 and 100 <= sum(rows) // 8 <= 135
    assert max(rows) - min(rows) <= 8
    assert (Path(model.run_dir) / "model.keras").stat().st_size > 0


def test_the_contract_tells_what_goes_in(model: st.KerasModel, iris: Any) -> None:
    contract = model.contract
    assert contract.feeds[0][1] == ("v",) and contract.info.inputs[0].shape == (4,)
    assert model.classes == cases.IRIS
    assert contract.versions["keras"].startswith("3.")
    mean = iris.agg({"a": "avg"}).collect()[0][0]
    assert contract.moments["v"]["mean"][0] == pytest.approx(mean, abs=0.2)


def test_standardisation_is_in_the_model(fitted: PipelineModel, iris: Any) -> None:
    """The exported file alone, on raw rows, gives what transform() gives."""
    model = fitted.stages[-1]
    keras_model = model.keras_model()
    assert "Normalization" in [type(layer).__name__ for layer in keras_model.layers]
    rows = fitted.transform(iris).select(*FEATURES, "probability").limit(20).collect()
    raw = np.array([[row[name] for name in FEATURES] for row in rows], "float32")
    expected = np.array([row.probability.toArray() for row in rows])
    np.testing.assert_allclose(keras_model.predict(raw, verbose=0), expected, atol=1e-5)


def test_export_writes_a_file_of_keras(model: st.KerasModel, tmp_path: Path) -> None:
    path = model.export(str(tmp_path / "flowers.keras"))
    assert Path(path).read_bytes() == (Path(model.run_dir) / "model.keras").read_bytes()
    with pytest.raises(st.ConfigError, match=r"\.keras"):
        model.export(str(tmp_path / "flowers.h5"))


def test_curves_are_drawn(model: st.KerasModel, tmp_path: Path) -> None:
    figure = model.plot(str(tmp_path / "curves.png"))
    assert [axes.get_title() for axes in figure.axes] == ["loss", "accuracy"]
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["train", "validation"]
    assert list(lines[0].get_ydata()) == list(model.history["loss"])
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_wrong_frames_are_refused_before_any_job(model: st.KerasModel, iris: Any) -> None:
    with pytest.raises(st.ConfigError, match="'v'"):
        model.transform(iris)
    short = VectorAssembler(inputCols=["a", "b"], outputCol="v").transform(iris)
    text = iris.withColumnRenamed("species", "v")
    with pytest.raises(st.ConfigError, match="'v'"):
        model.transform(text)
    taken = short.withColumnRenamed("a", "prediction")
    with pytest.raises(st.ConfigError, match="'prediction'"):
        model.transform(taken)


def test_columns_can_be_renamed_and_left_out(model: st.KerasModel, iris: Any) -> None:
    other = model.copy()
    other.setPredictionCol("p").setProbabilityCol("").setRawPredictionCol("")
    other.setPredictedLabelCol("").setFeatureCols(["measures"])
    scored = other.transform(iris.drop("species"))
    assert scored.columns == [*iris.drop("species").columns, "p"]
    hits = scored.filter("p = label").count()
    assert hits > 130 and model.getPredictionCol() == "prediction"


def test_a_label_never_seen_has_its_own_position(fitted: PipelineModel, iris: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    odd = iris.limit(1).withColumn("species", F.lit("rose"))
    assert fitted.transform(odd).collect()[0].label_index == 3.0


def test_pipelines_are_saved_and_loaded(fitted: PipelineModel, iris: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "fitted")
    fitted.write().save(path)
    fitted.write().overwrite().save(path)
    again = PipelineModel.load(path)
    model, before = again.stages[-1], fitted.stages[-1]
    assert model.contract == before.contract and model.uid == before.uid
    assert model.history.equals(before.history) and model.summary() == before.summary()
    assert _score(again, iris) == _score(fitted, iris)
    pipeline = make_pipeline(earlyStopping=3)
    pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
    est = Pipeline.load(str(tmp_path / "pipeline")).getStages()[-1]
    assert isinstance(est, st.KerasClassifier) and est.getEarlyStopping() == 3
    assert est.getModel().__name__ == "build_flat" and est.getValidation() == 0.2


def _score(fitted: Any, frame: Any) -> list[Any]:
    return fitted.transform(frame).orderBy("id").select("id", "prediction").collect()


def test_what_cannot_be_loaded_is_named(
    model: st.KerasModel, spark: Any, iris: Any, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    model.save(str(path))
    with pytest.raises(st.ConfigError, match="holds a KerasModel"):
        st.KerasEstimator.load(str(path))
    with pytest.raises(st.ConfigError, match="Nothing can be loaded"):
        st.KerasModel.load(str(tmp_path / "none"))
    metadata = next(path.glob("metadata/part-*"))
    text = metadata.read_text()
    for checksum in path.glob("metadata/.*.crc"):
        checksum.unlink()
    metadata.write_text(text.replace('"format":1', '"format":2'))
    with pytest.raises(st.ConfigError, match=r"format 2.*reads up to 1"):
        st.KerasModel.load(str(path))
    metadata.write_text(text.replace('"parts":{', '"parts":{"more":"00",'))
    with pytest.raises(st.ConfigError, match="lacks the part 'more'"):
        st.KerasModel.load(str(path))
    metadata.write_text(text)
    part = next(path.glob("parts/part-*"))
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(st.ConfigError, match="parts"):
        st.KerasModel.load(str(path))
    with_frame = st.KerasEstimator(model=cases.build_flat, validation=iris)
    with pytest.raises(st.ConfigError, match="validation is a DataFrame"):
        with_frame.save(str(tmp_path / "est"))
