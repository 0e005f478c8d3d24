"""The old API on the new engine: contracts of TFCluster, DataFeed, TFParallel, dfutil."""

from __future__ import annotations

import gc
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
import tfos_cases
from tensorflowonspark import TFCluster, TFParallel, dfutil, reservation

SPARK = TFCluster.InputMode.SPARK


def read(folder: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_train_feeds_rows_to_every_worker(spark: Any, tmp_path: Path) -> None:
    sc = spark.sparkContext
    args = {"folder": str(tmp_path)}
    cluster = TFCluster.run(sc, tfos_cases.note, args, 2, 0, input_mode=SPARK, master_node="chief")
    assert [node["job_name"] for node in cluster.cluster_info] == ["chief", "worker"]
    assert "authkey" in cluster.cluster_info[0] and cluster.cluster_info[0]["authkey"] is None
    rows = [(number, str(number)) for number in range(95)] + [None, 7]
    cluster.train(sc.parallelize(rows, 4), num_epochs=2)
    cluster.shutdown()
    known = read(tmp_path)
    assert set(known) == {"chief-0", "worker-0"}
    found = known["chief-0"]["rows"] + known["worker-0"]["rows"]
    expected = [list(row) if isinstance(row, tuple) else row for row in rows] * 2
    assert sorted(map(str, found)) == sorted(map(str, expected))
    for one in known.values():  # all batches are full but the last
        assert set(one["sizes"][:-1]) <= {10}
        assert one["num_workers"] == 2 and one["roles"] == {"chief": 1, "worker": 1}
        assert one["path"].startswith("file:") and one["path"].endswith("/here")
    assert {known["chief-0"]["executor_id"], known["worker-0"]["executor_id"]} == {0, 1}


def test_arguments_as_a_list_are_argv(spark: Any, tmp_path: Path) -> None:
    argv = ["program", str(tmp_path), "--steps", "3"]
    cluster = TFCluster.run(spark.sparkContext, tfos_cases.note, argv, 1, 0, input_mode=SPARK)
    cluster.train(spark.sparkContext.parallelize([1, 2, 3], 1), 1)
    cluster.shutdown()
    known = read(tmp_path)["worker-0"]
    assert known["argv"] == argv[1:] and known["rows"] == [1, 2, 3]
    assert known["roles"] == {"worker": 1}


def test_inference_answers_in_order(spark: Any) -> None:
    sc = spark.sparkContext
    args = {"batch_size": 7}
    base = sc.broadcast({"offset": 0})

    def function(args: Any, ctx: Any) -> Any:
        tfos_cases.square(args, ctx, base.value["offset"])
        return lambda: None  # nobody asks for it

    cluster = TFCluster.run(sc, function, args, 2, 0, input_mode=SPARK)
    answers = cluster.inference(sc.parallelize(range(1000), 5))
    assert answers.collect() == [number * number for number in range(1000)]
    assert answers.take(3) == [0, 1, 4]  # lazy: asked again
    assert cluster.inference(sc.parallelize([], 2)).collect() == []
    assert cluster.inference(sc.parallelize([2, 3], 4)).collect() == [4, 9]
    assert cluster.inference(spark.range(0, 5, 1, 2)).collect() == [0, 1, 4, 9, 16]
    with pytest.raises(AssertionError, match="Unknown queue: 'typo'"):
        cluster.train(sc.parallelize([1], 1), qname="typo")
    with pytest.raises(AssertionError, match="num_epochs=-1"):
        cluster.train(sc.parallelize([1], 1), -1)
    cluster.shutdown()


@pytest.mark.parametrize(("wrong", "message"), [("few", "too few results"), ("many", "8 results")])
def test_a_wrong_number_of_results(spark: Any, wrong: str, message: str) -> None:
    sc = spark.sparkContext
    args = {"batch_size": 7, "wrong": wrong}
    cluster = TFCluster.run(sc, tfos_cases.square, args, 1, 0, input_mode=SPARK)
    started = time.monotonic()
    with pytest.raises(Exception, match=message):
        cluster.inference(sc.parallelize(range(100), 1)).collect()
    assert time.monotonic() - started < 30
    with pytest.raises(st.NodeFailedError, match=message):
        cluster.shutdown()


def test_a_worker_that_fails_is_the_error(spark: Any) -> None:
    sc = spark.sparkContext
    cluster = TFCluster.run(sc, tfos_cases.fail, {}, 2, 0, input_mode=SPARK)
    started = time.monotonic()
    with pytest.raises(st.NodeFailedError, match="this worker has had enough"):
        cluster.train(sc.parallelize(range(100_000), 4))
    assert time.monotonic() - started < 20
    with pytest.raises(st.NodeFailedError, match="this worker has had enough"):
        cluster.shutdown()
    # The application goes on, and so does the next cluster.
    cluster = TFCluster.run(sc, tfos_cases.terminate, {}, 1, 0, input_mode=SPARK)
    cluster.train(sc.parallelize(range(1_000_000), 4), num_epochs=100)
    assert cluster.server.done
    cluster.shutdown()


def test_workers_go_on_when_one_terminates(spark: Any, tmp_path: Path) -> None:
    sc = spark.sparkContext
    args = {"folder": str(tmp_path)}
    cluster = TFCluster.run(sc, tfos_cases.terminate_first, args, 2, 0, input_mode=SPARK)
    cluster.train(sc.parallelize(range(1000), 8), num_epochs=1)
    cluster.train(sc.parallelize(range(1000, 2000), 8), num_epochs=1)
    assert cluster.server.done
    cluster.shutdown()
    rows = read(tmp_path)["worker-1"]["rows"]
    assert set(rows) & set(range(1000, 2000))  # of a feed that began behind the end of the other


@pytest.mark.slow
def test_rows_that_nobody_answers(spark: Any) -> None:
    sc = spark.sparkContext
    cluster = TFCluster.run(sc, tfos_cases.take_only, {}, 1, 0, input_mode=SPARK)
    with pytest.raises(Exception, match=r"for 1 s: 10 were taken, \d of them answered"):
        cluster.inference(sc.parallelize(range(10), 1), feed_timeout=1).collect()
    cluster.shutdown()


@pytest.mark.parametrize("code", [0, 3])
def test_a_program_that_leaves(spark: Any, code: int) -> None:
    sc = spark.sparkContext
    cluster = TFCluster.run(sc, tfos_cases.leave, {"code": code}, 1, 0, input_mode=SPARK)
    if code:
        with pytest.raises(st.NodeFailedError, match=r"sys\.exit\(3\)"):
            cluster.train(sc.parallelize(range(10), 1), 1)
            cluster.shutdown()
        with pytest.raises(st.NodeFailedError, match=r"sys\.exit\(3\)"):
            cluster.shutdown()
    else:
        cluster.train(sc.parallelize(range(10), 1), 1)
        cluster.shutdown()


def test_a_failure_behind_the_feed_is_not_lost(spark: Any) -> None:
    sc = spark.sparkContext
    cluster = TFCluster.run(sc, tfos_cases.late_failure, {}, 1, 0, input_mode=SPARK)
    cluster.train(sc.parallelize(range(10), 2), 1)
    with pytest.raises(st.NodeFailedError, match="the export failed"):
        cluster.shutdown(grace_secs=0)


def test_a_dataframe_goes_straight_into_tf_data(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 500, 1, 3).selectExpr(
        "array(cast(id as float), 1.0f) as x", "cast(id as float) as y"
    )
    args = {"folder": str(tmp_path)}
    cluster = TFCluster.run(
        spark.sparkContext, tfos_cases.count_columns, args, 1, 0, input_mode=SPARK
    )
    cluster.train(frame, num_epochs=1)
    cluster.shutdown()
    assert (tmp_path / "0.txt").read_text() == f"500 {float(sum(range(500)))}"


def test_workers_that_train_together_may_get_uneven_rows(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 501, 1, 3).selectExpr(
        "array(cast(id % 5 as float) / 5, 1.0f) as x", "cast(id as float) as y"
    )
    cluster = TFCluster.run(
        spark.sparkContext,
        tfos_cases.fit_dataset,
        {"folder": str(tmp_path)},
        2,
        0,
        input_mode=SPARK,
        master_node="chief",
    )
    cluster.train(frame, num_epochs=2)
    cluster.shutdown()
    assert read(tmp_path) == {"chief-0": 2.0 * sum(range(501)), "worker-0": 2.0 * sum(range(501))}


def test_what_the_old_library_refused(spark: Any) -> None:
    sc = spark.sparkContext
    with pytest.raises(Exception, match=r"only supported in InputMode\.TENSORFLOW"):
        TFCluster.run(sc, tfos_cases.note, {}, 2, 1, input_mode=SPARK, driver_ps_nodes=True)
    with pytest.raises(Exception, match=r"only supported in InputMode\.TENSORFLOW"):
        TFCluster.run(sc, tfos_cases.note, {}, 2, 0, input_mode=SPARK, eval_node=True)
    with pytest.raises(AssertionError, match="leaves no worker"):
        TFCluster.run(sc, tfos_cases.note, {}, 1, 1)


@pytest.mark.parametrize(("count", "use_barrier"), [(2, True), (5, False)])
def test_parallel(spark: Any, tmp_path: Path, count: int, use_barrier: bool) -> None:
    def alone(args: Any, ctx: Any) -> None:  # as that of a script, which tasks cannot import
        text = f"{ctx.executor_id} of {ctx.num_workers}"
        (Path(args["folder"]) / f"alone-{ctx.executor_id}").write_text(text)

    args = {"folder": str(tmp_path)}
    TFParallel.run(spark.sparkContext, alone, args, count, use_barrier)
    expected = {f"{number} of {count}" for number in range(count)}
    assert {path.read_text() for path in tmp_path.iterdir()} == expected


def test_dataframes_as_records(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [(1, 2.5, "a", bytearray(b"\xff"), [1.0, 2.0]), (2, 3.5, "b", bytearray(b"b"), [3.0, 4.0])],
        "n long, f float, s string, b binary, v array<float>",
    )
    path = str(tmp_path / "records")
    dfutil.saveAsTFRecords(frame, path)
    loaded = dfutil.loadTFRecords(spark.sparkContext, path, binary_features=["b"])
    assert dfutil.isLoadedDF(loaded) and not dfutil.isLoadedDF(frame)
    order = ["n", "f", "s", "b", "v"]
    rows = [tuple(row[name] for name in order) for row in loaded.orderBy("n").collect()]
    assert rows == [tuple(row) for row in frame.collect()]
    kinds = dict(loaded.dtypes)
    assert (kinds["f"], kinds["v"], kinds["b"]) == ("double", "array<double>", "binary")
    known = len(dfutil.loadedDF)
    del loaded
    gc.collect()
    assert len(dfutil.loadedDF) < known
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    default = hadoop.get("fs.defaultFS")
    try:
        assert dfutil.find_path(spark, "/x") == "/x"
        hadoop.set("fs.defaultFS", "hdfs://nn:8020/")
        assert dfutil.find_path(spark, "/x") == "hdfs://nn:8020/x"
        assert dfutil.find_path(spark, "s3a://b/x") == "s3a://b/x"
    finally:
        hadoop.set("fs.defaultFS", default)


def test_anybody_may_ask_to_stop() -> None:
    server = reservation.Server(1)
    _, port = server.start()
    try:
        client = reservation.Client(("127.0.0.1", port))
        assert client.register({"node": 1}) == "OK"
        assert client.await_reservations(5) == [{"node": 1}]
        assert client.request_stop() == "OK" and server.done
        client.close()
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("legacy", ["0", "1"])
def test_datasets_that_workers_divide_themselves(spark: Any, tmp_path: Path, legacy: str) -> None:
    args = {"folder": str(tmp_path), "legacy": legacy}
    cluster = TFCluster.run(
        spark.sparkContext, tfos_cases.fit_own_rows, args, 2, 0, master_node="chief"
    )
    cluster.shutdown()
    assert read(tmp_path) == {str(number): [252.0, 252.0] for number in range(2)}


@pytest.mark.slow
def test_keras_2_saves_on_all_workers(spark: Any, tmp_path: Path) -> None:
    from tensorflowonspark.pipeline import get_meta_graph_def

    args = {"export_dir": str(tmp_path / "model")}
    cluster = TFCluster.run(
        spark.sparkContext, tfos_cases.save_with_keras_2, args, 2, 0, master_node="chief"
    )
    cluster.shutdown(timeout=300)
    signature = get_meta_graph_def(args["export_dir"], "serve").signature_def["serving_default"]
    assert (set(signature.inputs), set(signature.outputs)) == ({"dense_input"}, {"dense_1"})
    assert not list(Path(tempfile.gettempdir()).glob("worker_model-*"))
