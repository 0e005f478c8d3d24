"""A program of its own for each kind of session: one Java per process.

    python other_sessions.py KIND FOLDER

Writes what happened to FOLDER/answer.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import sparktrain as st


def train(ctx: Any) -> dict[str, Any]:
    """A real fit, to see that training works; then a look around."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    with ctx.strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    features = np.arange(48, dtype="float32").reshape(16, 3) / 48
    labels = features.sum(axis=1, keepdims=True)
    history = model.fit(
        features, labels, batch_size=8, epochs=2, verbose=0, callbacks=ctx.callbacks()
    )
    ctx.export(model)
    print("trained")
    return {"loss": history.history["loss"], "workers": ctx.strategy.num_replicas_in_sync}


def wait_for_ever(ctx: Any) -> None:
    import os
    import time

    Path(ctx.run_dir, f"new-{ctx.rank}").write_text(str(os.getpid()))
    Path(ctx.run_dir, f"new-{ctx.rank}").rename(Path(ctx.run_dir, f"pid-{ctx.rank}"))
    time.sleep(600)


def make_session(kind: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    if kind == "connect":
        return SparkSession.builder.remote("local[2]").getOrCreate()
    is_dynamic = kind == "dynamic-allocation"
    builder = SparkSession.builder.master("local-cluster[1,1,1024]" if is_dynamic else kind)
    builder.config("spark.dynamicAllocation.enabled", str(is_dynamic).lower())
    builder.config("spark.ui.enabled", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def main(kind: str, folder: Path) -> None:
    if kind == "killed-driver":
        st.run(wait_for_ever, num_workers=2, run_dir=folder, distribution="none")
        return
    spark = make_session(kind)
    if kind == "dynamic-allocation":
        try:
            st.run(raise_error, num_workers=1, spark=spark)
        except st.ConfigError as error:
            (folder / "answer.json").write_text(json.dumps(str(error)))
        return
    result = st.run(train, num_workers=2, spark=spark, run_dir=folder / "run")
    answer: dict[str, Any] = {
        "value": result.value,
        "metrics": result.metrics,
        "nodes": [node.name for node in result.nodes],
        "model": Path(result.model_path or "").name,
    }
    for name, wrong in (
        ("slots", {"num_workers": 3}),
        ("failure", {"num_workers": 2, "args": "fail"}),
    ):
        try:
            st.run(raise_error, spark=spark, distribution="none", run_dir=folder / name, **wrong)
        except st.SparktrainError as error:
            answer[name] = [type(error).__name__, str(error)]
    answer["left"] = find_left_without_link(spark, folder / "left")
    answer["tfrecord"] = copy_records(spark, folder)
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


def find_left_without_link(spark: Any, folder: Path) -> list[int]:
    """Trainers still there some seconds after a time-out, when only Spark can end them."""
    import psutil

    from sparktrain.driver import spark_facts

    spark_facts.find_driver_address = lambda spark: ("127.0.0.1", "127.0.0.2")
    try:
        st.run(
            wait_for_ever,
            num_workers=2,
            spark=spark,
            run_dir=folder,
            distribution="none",
            timeout_s=20,
        )
    except st.RunTimeoutError:
        pids = [int(path.read_text()) for path in folder.glob("pid-*")]
    assert len(pids) == 2
    deadline = time.monotonic() + 8
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [pid for pid in pids if psutil.pid_exists(pid)]


def copy_records(spark: Any, folder: Path) -> list[Any]:
    """TFRecord files written and read: the format is found by its name alone."""
    frame = spark.range(20).selectExpr("id", "array(float(id), 0.5F) as x", "id % 2 as part")
    st.tfrecord.write(frame, str(folder / "records"), partition_by=["part"])
    st.tfrecord.write(frame, str(folder / "records"), mode="ignore")
    try:
        st.tfrecord.write(frame, str(folder / "records"))
    except st.ConfigError as error:
        problem = error.problem
    found = spark.read.format("tfrecords").load(str(folder / "records"))
    total = found.selectExpr("sum(id + x[0] + part)").collect()[0][0]
    return [dict(found.dtypes), total, problem]


def raise_error(ctx: Any) -> None:
    import time

    if ctx.rank == 1:
        raise ValueError("on purpose")
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
