"""Fits in a real MLflow server with a SQLite store: one run each, and a model that it loads."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from mlflow_cases import break_it, build, build_flattening

mlflow: Any = pytest.importorskip("mlflow", reason="mlflow is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        command, cwd=folder, stdout=log, stderr=log, start_new_session=True, env={**os.environ}
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
                time.sleep(0.5)
        mlflow.set_tracking_uri(url)
        yield url
    finally:
        mlflow.set_tracking_uri("")
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
        log.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's own, and those of what it is made of
def test_each_fit_is_one_run(spark: Any, server: str) -> None:
    from pyspark.ml.tuning import ParamGridBuilder
    from sklearn.datasets import load_iris

    iris = load_iris()
    rows = [
        (int(label), [float(one) for one in row], *map(float, row))
        for row, label in zip(iris.data, iris.target, strict=True)
    ]
    frame = spark.createDataFrame(
        rows, "label int, features array<float>, a double, b double, c double, d double"
    )
    estimator = st.KerasEstimator(
        model=build,
        featureCols=["features"],
        labelCol="label",
        epochs=3,
        numWorkers=2,
        validation=0.2,
        progress=False,
        mlflow="flowers",
    )
    grid = ParamGridBuilder().addGrid(estimator.modelArgs, [{"units": 4}, {"units": 6}]).build()
    models = dict(estimator.fitMultiple(frame, grid))
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("flowers")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_id for run in runs} == {one.mlflow_run_id for one in models.values()}
    for position, model in models.items():
        run = client.get_run(model.mlflow_run_id)
        assert run.info.status == "FINISHED"
        assert run.data.params["modelArgs"] == f'{{"units": {4 + 2 * position}}}'
        assert run.data.params["epochs"] == "3" and run.data.params["model"] == "build"
        history = client.get_metric_history(model.mlflow_run_id, "val_loss")
        assert [one.step for one in history] == [1, 2, 3]
        assert [one.value for one in history] == model.history["val_loss"].tolist()

    model = models[1]
    expected = {tuple(row["features"]): row for row in model.transform(frame).collect()}
    uri = f"runs:/{model.mlflow_run_id}/model"
    loaded = mlflow.pyfunc.load_model(uri)
    assert [one.name for one in loaded.metadata.signature.inputs] == ["features"]
    outputs = [one.name for one in loaded.metadata.signature.outputs]
    assert outputs[:2] == ["prediction", "probability"]
    udf = mlflow.pyfunc.spark_udf(spark, uri, result_type="double", env_manager="local")
    found = frame.select("features", udf("features").alias("p")).collect()
    assert [row["p"] for row in found] == [
        expected[tuple(row["features"])]["prediction"] for row in found
    ]
    some = frame.select("features").limit(5).toPandas()
    for features, found_here in zip(
        some["features"], loaded.predict(some)["probability"], strict=True
    ):
        row = expected[tuple(float(one) for one in features)]
        np.testing.assert_allclose(found_here, row["probability"].toArray(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_fit_that_fails_is_a_run_that_failed(spark: Any, server: str) -> None:
    frame = spark.createDataFrame([([1.0, 2.0, 3.0, 4.0], 0)] * 8, "x array<float>, y int")
    estimator = st.KerasEstimator(
        model=break_it, featureCols=["x"], labelCol="y", progress=False, mlflow=True
    )
    broken = pytest.raises(st.NodeFailedError, match="this model is broken")
    with mlflow.start_run() as parent, broken:
        estimator.fit(frame)
    client = mlflow.MlflowClient()
    own = f"tags.mlflow.parentRunId = '{parent.info.run_id}'"
    (child,) = client.search_runs([parent.info.experiment_id], own)
    assert child.info.status == "FAILED"
    assert "this model is broken" in child.data.tags["sparktrain.error"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_nested_arrays_is_scored(spark: Any, server: str) -> None:
    values = np.random.default_rng(2).normal(size=(20, 2, 3)).astype("float32")
    rows = [(number, one.tolist(), number % 3) for number, one in enumerate(values)]
    frame = spark.createDataFrame(rows, "id int, img array<array<float>>, label int")
    estimator = st.KerasEstimator(
        model=build_flattening,
        featureCols=["img"],
        labelCol="label",
        progress=False,
        mlflow="pictures",
    )
    model = estimator.fit(frame)
    expected = {row["id"]: row["prediction"] for row in model.transform(frame).collect()}
    uri = f"runs:/{model.mlflow_run_id}/model"
    udf = mlflow.pyfunc.spark_udf(spark, uri, result_type="double", env_manager="local")
    found = frame.select("id", udf("img").alias("p")).collect()
    assert {row["id"]: row["p"] for row in found} == expected
    loaded = mlflow.pyfunc.load_model(uri)
    some = frame.select("id", "img").toPandas()
    here = loaded.predict(some[["img"]])["prediction"]
    assert dict(zip(some["id"], here, strict=True)) == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_deleted_experiment_is_refused_before_the_run(spark: Any, server: str) -> None:
    mlflow.MlflowClient().delete_experiment(mlflow.create_experiment("gone"))
    estimator = st.KerasEstimator(model=build, featureCols=["x"], labelCol="y", mlflow="gone")
    with pytest.raises(st.ConfigError, match=r"experiment 'gone' of MLflow is deleted.*[Rr]estore"):
        estimator.fit(spark.createDataFrame([([1.0], 0)], "x array<float>, y int"))
