"""Equal to Keras by hand, other forms of models and columns, restarts, and what goes wrong."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from pyspark.ml.evaluation import BinaryClassificationEvaluator

import estimator_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)


@pytest.fixture(scope="module")
def iris(spark_session: Any) -> Any:
    return cases.make_iris(spark_session)


def make(**wishes: Any) -> st.KerasEstimator:
    kept = {"model": cases.build_flat, "featureCols": ["measures"], "labelCol": "label"}
    kept["loss"] = "sparse_categorical_crossentropy"
    return st.KerasEstimator(**{**kept, "batchSize": 16, "optimizer": "adam", **wishes})


def count_runs(folder: Path) -> int:
    return len([one for one in folder.iterdir() if (one / "run.json").exists()])


@pytest.mark.parametrize("num_workers", [1, 2])
def test_it_equals_keras_by_hand(spark: Any, num_workers: int) -> None:
    weights, losses = st.run(
        cases.train_by_hand, num_workers=1, args=(3, 16), progress=False, spark=spark
    ).value
    est = st.KerasRegressor(
        model=cases.build_line,
        featureCols=["x"],
        labelCol="y",
        weightCol="w",
        loss="mse",
        optimizer={"class_name": "SGD", "config": {"learning_rate": 0.5, "momentum": 0.9}},
        learningRate=0.01,
        batchSize=16,
        epochs=3,
        seed=5,
        shuffle=False,
        numWorkers=num_workers,
        progress=False,
    )
    frame = cases.make_line(spark)
    model = est.fit(frame)
    for found, expected in zip(model.keras_model().get_weights(), weights, strict=True):
        # One process does the same sums in the same order; two of them add up in another one.
        tolerance = {1: 0.0, 2: 2e-6}[num_workers]
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(model.history["loss"], losses, rtol=1e-5)
    scored = model.transform(frame)
    assert dict(scored.dtypes)["prediction"] == "double"
    steps = json.loads((Path(model.run_dir) / "result.json").read_text())["nodes"][0]["steps"]
    assert steps == 3 * 64 // 16


@pytest.mark.slow
def test_other_losses_of_classes(iris: Any, tmp_path: Path) -> None:
    """One run for three: labels take the form of each loss."""
    frame = iris.filter("label < 2")
    # With Adam at 0.3 all ReLU units of the third model die in 5 of 12 seeds of Keras alone;
    # at 0.05 all three models tell these flowers apart with every seed.
    est = make(runDir=str(tmp_path), epochs=12, learningRate=0.05, progress=False)
    logits = {"class_name": "BinaryCrossentropy", "config": {"from_logits": True}}
    maps = [
        {est.model: cases.build_sigmoid, est.loss: "binary_crossentropy"},
        {est.model: cases.build_logit, est.loss: logits},
        {est.loss: "categorical_crossentropy", est.modelArgs: {"classes": 2}},
    ]
    models = est.fit(frame, maps)
    assert count_runs(tmp_path) == 1
    evaluator = BinaryClassificationEvaluator(labelCol="label")
    for model, is_logits in zip(models, (False, True, False), strict=True):
        rows = model.transform(frame).collect()
        assert all(row.prediction == row.label for row in rows)
        for row in rows:
            first, second = row.probability
            assert abs(first + second - 1) < 1e-6 and (second >= 0.5) == (row.label == 1)
            assert len(row.rawPrediction) == 2
            if is_logits:
                assert row.rawPrediction[0] == -row.rawPrediction[1]
        assert evaluator.evaluate(model.transform(frame)) > 0.99


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
def test_models_as_objects_and_files(iris: Any, tmp_path: Path) -> None:
    """Each is trained from the weights it has; a compiled one as it was compiled."""
    import keras

    keras.utils.set_random_seed(1)
    compiled = cases.build_compiled()
    path = tmp_path / "given.keras"
    compiled.save(path)
    est = make(epochs=2, shuffle=False, progress=False, runDir=str(tmp_path / "runs"))
    est.clear(est.loss)
    est.clear(est.optimizer)
    maps = [
        {est.model: compiled},
        {est.model: str(path)},
        {est.model: cases.build_unbuilt, est.loss: "sparse_categorical_crossentropy"},
        {est.model: cases.build_compiled, est.learningRate: 0.0},
        {
            est.model: cases.build_flat,
            est.loss: est.loss.typeConverter(keras.losses.SparseCategoricalCrossentropy()),
            est.optimizer: keras.optimizers.SGD(0.5, momentum=0.9),
            est.learningRate: keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5),
            est.metrics: [keras.metrics.SparseCategoricalAccuracy(name="hits"), cases.count_rows],
            est.callbacks: [keras.callbacks.LambdaCallback(on_epoch_end=cases.say)],
        },
    ]
    models = est.fit(iris, maps)
    assert "said in epoch 1" in (Path(models[4].run_dir) / "logs/chief-0.log").read_text()
    assert list(models[4].history.columns) == ["count_rows", "hits", "loss"]
    assert models[4].keras_model().compiled  # its own metric came with it
    with zipfile.ZipFile(Path(models[4].export(str(tmp_path / "own.keras")))) as archive:
        optimizer = json.loads(archive.read("config.json"))["compile_config"]["optimizer"]
    assert optimizer["config"]["learning_rate"]["class_name"] == "ExponentialDecay"
    assert optimizer["config"]["momentum"] == 0.9
    first, second, third, fourth = ([*one.keras_model().get_weights()] for one in models[:4])
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], compiled.get_weights()[0])
    assert third[0].shape == (4, 8)
    keras.utils.set_random_seed(0)
    fresh = cases.build_flat().get_weights()
    assert all(np.allclose(a, b) for a, b in zip(fourth, fresh, strict=True))
    assert list(models[0].history.columns) == ["accuracy", "loss"]
    # Uncompiled, and it can be known: refused before any job.
    with pytest.raises(st.ConfigError, match="is not compiled"):
        make(model=cases.build_flat()).copy({est.loss: None}).setLoss(None).fit(iris)


@pytest.mark.slow
def test_several_inputs_and_outputs(iris: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    frame = iris.withColumn("w", F.lit(1.0)).withColumn("held", F.col("id") % 5 == 0)
    est = st.KerasEstimator(
        model=cases.build_two,
        featureCols={"some": ["a", "b"], "wide": "measures"},
        labelCol={"size": "d", "kind": "species"},
        loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
        lossWeights={"kind": 1.0, "size": 0.1},
        metrics={"kind": ["accuracy"], "size": ["mae"]},
        weightCol="w",
        validation="held",
        optimizer="adam",
        learningRate=0.02,
        batchSize=16,
        epochs=12,
        numWorkers=2,
        outputCols={"size": "width"},
        standardize=["a"],
        progress=False,
    )
    model = est.fit(frame)
    assert {"val_kind_accuracy", "kind_loss", "val_size_mae"} <= set(model.history.columns)
    scored = model.transform(frame)
    assert dict(scored.dtypes)["width"] == "double"
    rows = scored.collect()
    hits = sum(cases.IRIS[int(np.argmax(row.kind))] == row.species for row in rows)
    assert hits > 120
    assert np.mean([abs(row.width - row.d) for row in rows]) < 0.5
    result = json.loads((Path(model.run_dir) / "result.json").read_text())
    assert sum(node["rows"] for node in result["nodes"]) == 120 * 12  # 30 of 150 are held out


@pytest.mark.slow
def test_images_from_flat_rows(spark: Any) -> None:
    model = make(
        model=cases.build_image,
        featureCols=["pixels"],
        epochs=3,
        batchSize=64,
        learningRate=0.01,
        validation=cases.make_digits(spark, 100),
        metrics=["accuracy"],
        callbacks=None,
        progress=False,
    ).fit(cases.make_digits(spark))
    assert model.history["val_accuracy"].iloc[-1] > 0.8


@pytest.mark.slow
def test_a_lost_node_goes_on_where_it_was(iris: Any, tmp_path: Path) -> None:
    est = make(
        epochs=5,
        earlyStopping=50,
        callbacks=cases.KillOnce(str(tmp_path / "killed"), 3),
        maxRestarts=1,
        numWorkers=2,
        runDir=str(tmp_path / "run"),
        learningRate=0.5,
        progress=False,
    )
    model = est.fit(iris)
    assert (tmp_path / "killed").exists()
    assert list(model.history.index) == [1, 2, 3, 4, 5]
    log = (tmp_path / "run/logs/chief-0.log").read_text()
    assert "resumed behind epoch 3" in log
    assert not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.slow
def test_a_fit_called_again_goes_on_but_not_as_another_one(iris: Any, tmp_path: Path) -> None:
    import keras

    class Mine(keras.metrics.SparseCategoricalAccuracy):  # type: ignore[misc]
        """Pickled, and its names are counted."""

    def fit(marker: str, **wishes: Any) -> Any:
        kill = cases.KillOnce(str(tmp_path / marker), 2)
        run_dir, metrics = (
            str(tmp_path / "run"),
            [Mine(), keras.metrics.SparseTopKCategoricalAccuracy(k=2)],
        )
        est = make(epochs=3, callbacks=kill, numWorkers=2, runDir=run_dir, progress=False)
        est.setMetrics(metrics)
        # Means that are merged from other parts differ in their last digits.
        frame = iris.repartition(7) if (tmp_path / marker).exists() else iris
        return est.setParams(standardize=True, **wishes).fit(frame)

    log = tmp_path / "run/logs/chief-0.log"
    with pytest.raises(st.NodeLostError):
        fit("first")
    assert len(fit("first").history) == 3
    assert log.read_text().count("resumed behind epoch 2") == 1
    with pytest.raises(st.NodeLostError):
        fit("second")
    assert len(fit("second", learningRate=0.3).history) == 3
    assert log.read_text().count("resumed behind epoch 2") == 1


@pytest.mark.slow
def test_two_workers_stop_together_at_the_limit(iris: Any) -> None:
    model = make(epochs=10_000, timeLimit=2, numWorkers=2, progress=False).fit(iris)
    assert 1 <= len(model.history) < 10_000
    assert model.contract.stopped == "timeLimit of 2 s"


def test_nan_stops_with_step_and_ranges(iris: Any) -> None:
    frame = iris.selectExpr(
        "label", "if(id = 77, array(float('nan'), 1F, 2F, 3F), measures) as measures"
    )
    with pytest.raises(st.NodeFailedError) as caught:
        make(model=cases.build_linear, epochs=2, progress=False).fit(frame)
    text = caught.value.what
    assert "the loss is nan in epoch 1, step" in text
    assert "measures from 0.1 to 7.9 and 1 NaN" in text and "label from 0 to 2" in text


def test_what_the_trainer_refuses_is_named(iris: Any, tmp_path: Path) -> None:
    """One after the other: each fails alone, those beside it are trained."""
    est = make(progress=False, runDir=str(tmp_path))
    maps = [
        {est.model: cases.build_compiled, est.loss: None},
        {est.model: cases.build_line},
        {est.model: cases.build_flat, est.loss: None},
    ]
    found: dict[int, Any] = {}
    fits = est.fitMultiple(iris.withColumn("label", iris["label"] + (iris["id"] % 2) * 4), maps)
    errors = []
    for _ in maps:
        try:
            number, model = next(fits)
            found[number] = model
        except st.NodeFailedError as error:
            errors.append(error.what)
    assert not found
    shown = "\n".join(errors)
    assert "It has the label" in shown and "has 3 classes" in shown
    assert "'measures'" in shown and "(4,)" in shown and "(5,)" in shown
    assert "'build_flat' is not compiled" in shown


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"featureCols": ["none"]}, ["'none'", "featureCols", "species"]),
        ({"labelCol": "none"}, ["'none'", "labelCol"]),
        ({"weightCol": "species"}, ["'species'", "weightCol"]),
        ({"labelCol": "a"}, ["'a'", "label", "4.3", "7.9", "whole numbers"]),
        ({"labelCol": "species", "classes": ["setosa"]}, ["'species'", "none of the classes"]),
        ({"classes": ["x", "y"]}, ["'label'", "label 2", "names 2"]),
        ({"labelCol": "species", "loss": "mse"}, ["'species'", "strings", "KerasClassifier"]),
        ({"validation": "id"}, ["'id'", "int", "boolean"]),
        ({"outputCols": {"o": "p"}}, ["outputCols", "classifier"]),
        ({"standardize": ["id"]}, ["'id'", "featureCols"]),
        ({"fill": {"id": 0}}, ["'id'", "fill"]),
        ({"model": None}, ["no model"]),
        ({"featureCols": None}, ["no featureCols"]),
        ({"numWorkers": 9}, ["9 task slots"]),
    ],
)
def test_the_driver_refuses_before_any_run(
    iris: Any, tmp_path: Path, wishes: dict[str, Any], words: list[str]
) -> None:
    est = make(runDir=str(tmp_path / "run"))
    for name, value in wishes.items():
        est._set(**{name: value})
    with pytest.raises(st.ConfigError) as caught:
        est.fit(iris)
    for word in words:
        assert word in str(caught.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_layers_of_ones_own_and_names_of_two_classes(iris: Any, spark: Any, tmp_path: Path) -> None:
    """A subclass of Model behind standardisation, scored, saved, loaded, and on a stream."""
    frame = iris.filter("label < 2").selectExpr("id", "measures", "binary(species) as species")
    model = make(
        model=cases.build_own,
        labelCol="species",
        loss="binary_crossentropy",
        standardize=True,
        learningRate=0.1,
        epochs=8,
        progress=False,
        runDir=str(tmp_path / "run"),
    ).fit(frame)
    assert model.classes == ("setosa", "versicolor")
    scored = model.transform(frame)
    evaluator = BinaryClassificationEvaluator(labelCol="label_index")
    assert evaluator.evaluate(scored) > 0.99
    rows = scored.orderBy("id").select("prediction", "predicted_label").collect()
    assert {(row[0], row[1]) for row in rows} == {(0.0, "setosa"), (1.0, "versicolor")}
    model.write().save(str(tmp_path / "model"))
    again = st.KerasModel.load(str(tmp_path / "model"))
    assert again.transform(frame).orderBy("id").select(
        "prediction", "predicted_label").collect() == rows  # fmt: skip
    assert again.keras_model().name == model.keras_model().name
    # Without inputs: the columns that it was trained on.
    plain = st.predict(frame, model, outputs="p").orderBy("id").collect()
    assert [float(row["p"][0] >= 0.5) for row in plain] == [row[0] for row in rows]
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    query = (
        model.transform(stream)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    written = spark.read.parquet(str(tmp_path / "out")).orderBy("id")
    assert written.select("prediction", "predicted_label").collect() == rows
