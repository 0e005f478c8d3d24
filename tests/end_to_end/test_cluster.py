"""Clusters: trainers that outlive their tasks, fed by jobs, asked by jobs, and always ended."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from pyspark.errors import PySparkException

import cluster_cases
import sparktrain as st

QUIET: dict[str, Any] = {"progress": False, "distribution": "none"}


def test_every_row_once_an_epoch(spark: Any) -> None:
    frame = spark.range(0, 5000, 1, 5).where("id % 1000 != 7 or id > 4000")
    frame = frame.union(spark.range(0).repartition(2))  # and empty partitions
    with st.cluster(cluster_cases.note_ids, num_workers=2, spark=spark, **QUIET) as cluster:
        result = cluster.feed(frame, epochs=2)
        more = cluster.feed(spark.range(10_000, 10_003, 1, 1))
        assert {node.status for node in cluster.nodes} == {"running"}
    ids = sorted(row.id for row in frame.collect())
    assert cluster_cases.read_ids(cluster.run_dir) == sorted([*ids, *ids, 10_000, 10_001, 10_002])
    assert result.rows == 2 * len(ids) and not result.was_stopped
    assert set(result.by_node) == {"chief:0", "worker:0"} and more.rows == 3
    with pytest.raises(st.ConfigError, match="has ended"):
        cluster.feed(frame)


def test_rows_of_any_kind(spark: Any) -> None:
    from pyspark.sql import Row

    rows = [None, (1, "a"), {"k": [1.5]}, b"bytes", "text", Row(a=1, b="x"), [1, 2], 7]
    arrays = [np.arange(3, dtype=np.float32), np.zeros((1, 2))]
    with st.cluster(cluster_cases.note_rows, num_workers=2, spark=spark, **QUIET) as cluster:
        assert cluster.feed(spark.sparkContext.parallelize(rows + arrays, 3)).rows == 10
        with pytest.raises(st.SchemaError, match="fed rows of an RDD under this name"):
            cluster.feed(spark.range(3))
        with pytest.raises(TimeoutError, match="not taken within timeout_s"):
            cluster.feed(spark.range(3), name="other", timeout_s=3)  # nobody asks for it
    lines = [
        line
        for path in Path(cluster.run_dir).glob("*.rows")
        for line in path.read_text().splitlines()
    ]
    expected = [repr(row) for row in rows]
    assert sorted(line for line in lines if "array" not in line) == sorted(expected)
    assert any("dtype=float32" in line for line in lines)


def test_a_task_that_is_tried_again_loses_and_doubles_nothing(spark: Any) -> None:
    def fail_once(batches: Any) -> Any:
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()  # type: ignore[union-attr]
        for number, batch in enumerate(batches):
            yield batch
            if number == 2 and attempt < 2:
                raise RuntimeError("this task fails twice")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = spark.range(0, 4000, 1, 4).mapInArrow(fail_once, "id long")
        with st.cluster(cluster_cases.note_ids, num_workers=2, spark=spark, **QUIET) as cluster:
            assert cluster.feed(frame).rows == 4000
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert cluster_cases.read_ids(cluster.run_dir) == list(range(4000))


def test_a_task_that_is_tried_again_in_another_order_is_an_error(spark: Any) -> None:
    def fail_once(batches: Any) -> Any:
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()  # type: ignore[union-attr]
        for number, batch in enumerate(batches):
            # As behind a shuffle, whose blocks come as they come.
            yield batch if attempt == 0 else batch.take(list(reversed(range(batch.num_rows))))
            if number == 2 and attempt == 0:
                raise RuntimeError("this task fails once")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = spark.range(0, 1000, 1, 1).mapInArrow(fail_once, "id long")
        with st.cluster(cluster_cases.note_ids, num_workers=1, spark=spark, **QUIET) as cluster:
            with pytest.raises(st.DataError, match="came in another order when Spark tried"):
                cluster.feed(frame)
            cluster.feed(spark.range(5))  # the cluster itself goes on
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_feed_then_predict(spark: Any) -> None:
    """The function goes on behind its fit when its table has ended."""
    frame = spark.range(0, 600, 1, 3).selectExpr(
        "id", "array(cast(id % 10 as float), 1.0f) as x", "cast(3 * (id % 10) + 2 as float) as y"
    )
    with st.cluster(
        cluster_cases.fit_then_answer, num_workers=2, spark=spark, progress=False
    ) as cluster:
        cluster.feed(frame.select("x", "y"), epochs=12)
        cluster.end_feed()
        with pytest.raises(st.ConfigError, match=r"behind end_feed\('train'\)"):
            cluster.feed(frame.select("x", "y"))
        rows = cluster.predict(frame, inputs=["x"], outputs="prediction array<float>").collect()
    assert [row.id for row in rows] == list(range(600))
    assert max(abs(row.prediction[0] - row.y) for row in rows) < 2.0


def test_two_feeds_at_once(spark: Any) -> None:
    parts = [spark.range(0, 3000, 1, 3), spark.range(3000, 4000, 1, 2)]
    with (
        st.cluster(cluster_cases.note_ids, num_workers=2, spark=spark, **QUIET) as cluster,
        ThreadPoolExecutor(2) as pool,
    ):
        results = list(pool.map(lambda part: cluster.feed(part, epochs=2), parts))
    assert [result.rows for result in results] == [6000, 2000]
    assert cluster_cases.read_ids(cluster.run_dir) == sorted([*range(4000), *range(4000)])


def test_predict_answers_row_for_row(spark: Any) -> None:
    frame = spark.range(0, 3000, 1, 5).selectExpr("id", "cast(id as string) as text")
    frame = frame.union(spark.createDataFrame([], frame.schema))
    with st.cluster(
        cluster_cases.answer_double, num_workers=2, spark=spark, args=7, **QUIET
    ) as cluster:
        scored = cluster.predict(frame, inputs=["id"])
        assert scored.columns == ["id", "text", "double"]
        rows = scored.collect()
        assert [row.id for row in rows] == [row.id for row in frame.collect()]
        assert all(row.double == 2 * row.id and row.text == str(row.id) for row in rows)
        # Lazy, of a declared type, and in the middle of other work of Spark.
        declared = cluster.predict(spark.range(100), outputs="double float")
        assert declared.groupBy().sum("double").first()[0] == 9900.0
        with pytest.raises(st.ConfigError, match="without rows"):
            cluster.predict(spark.range(0))
        with pytest.raises(st.ConfigError, match="double have names that the DataFrame has"):
            cluster.predict(spark.range(3).selectExpr("id", "1 as double"))
        with pytest.raises(PySparkException, match="answered double; expected other"):
            cluster.predict(spark.range(3), outputs="other long").collect()
    with pytest.raises(PySparkException):
        declared.collect()


def test_predict_on_vectors(spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    vectors = [Vectors.dense([1.0, 2.0, 0.5]), Vectors.sparse(3, {1: 4.0}), Vectors.sparse(3, {})]
    rows = [(number, vectors[number % 3]) for number in range(50)]
    frame = spark.createDataFrame(rows, ["id", "features"]).repartition(2)
    with st.cluster(
        cluster_cases.answer_sum, num_workers=2, spark=spark, args="features", **QUIET
    ) as cluster:
        for outputs in (None, "sum double"):
            scored = cluster.predict(frame, inputs=["features"], outputs=outputs)
            assert scored.columns == ["id", "features", "sum"]
            assert scored.schema["features"] == frame.schema["features"]
            found = {row.id: (row.features, row["sum"]) for row in scored.collect()}
            assert found == {number: (one, float(sum(one.toArray()))) for number, one in rows}
        # Also vectors that nobody is asked about come back.
        twice = frame.selectExpr("features as other", "features")
        scored = cluster.predict(twice, inputs=["features"])
        assert scored.where("sum = 4 and other = features").count() == 17


def test_a_question_that_nobody_answers_has_a_limit(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktrain.driver.predictions.NOTE_S", 1.0)
    with st.cluster(cluster_cases.note_ids, num_workers=1, spark=spark, **QUIET) as cluster:
        for wrong in (0, "1"):
            with pytest.raises(st.ConfigError, match=r"predict\(\) got timeout_s"):
                cluster.predict(spark.range(3), timeout_s=wrong)
        with pytest.raises(TimeoutError, match=r"no answer after 4 s.*ctx.serve.*chief:0"):
            cluster.predict(spark.range(3), timeout_s=4)
        said = (Path(cluster.run_dir) / "logs" / "sparktrain.log").read_text().splitlines()
        assert len(said) == 1 and "no answer after 1 s" in said[0]
        assert cluster.feed(spark.range(3)).rows == 3  # the cluster goes on
    assert cluster_cases.read_ids(cluster.run_dir) == [0, 1, 2]


@pytest.mark.parametrize(("args", "count"), [("few", 4), ("many", 6)])
def test_a_wrong_number_of_answers(spark: Any, args: str, count: int) -> None:
    with (
        pytest.raises(st.NodeFailedError, match=f"answered {count} rows as 'prediction' to 5"),
        st.cluster(
            cluster_cases.answer_wrongly, num_workers=1, spark=spark, args=args, **QUIET
        ) as cluster,
    ):
        started = time.monotonic()
        with pytest.raises(PySparkException, match=f"answered {count} rows"):
            cluster.predict(spark.range(0, 5, 1, 1), outputs="prediction long").collect()
        assert time.monotonic() - started < 20
        cluster.feed(spark.range(3))


@pytest.mark.parametrize(
    ("how", "message"),
    [("raise", "ValueError: row 100 is bad luck"), ("exit", "exit code 3"), ("kill", "SIGKILL")],
)
def test_a_dead_trainer_ends_every_feed(spark: Any, how: str, message: str) -> None:
    error = st.NodeLostError if how == "kill" else st.NodeFailedError
    started = 0.0
    with (
        pytest.raises(error, match=message) as caught,
        st.cluster(cluster_cases.fail_at, num_workers=2, spark=spark, args=how, **QUIET) as cluster,
    ):
        started = time.monotonic()
        # In feed() itself, also where all partitions were on their way already.
        with pytest.raises(error, match=message):
            cluster.feed(spark.range(0, 20_000_000, 1, 2))
    assert time.monotonic() - started < 30
    assert caught.value.node == "worker:0"
    assert "the last words of this worker" in caught.value.tail
    with pytest.raises(error, match=message):
        cluster.feed(spark.range(1))
    with pytest.raises(error, match=message):
        cluster.stop()


@pytest.mark.parametrize("how", ["return", "stop_feed"])
def test_early_stop_ends_feeds_at_once(spark: Any, how: str) -> None:
    with st.cluster(
        cluster_cases.stop_early, num_workers=2, spark=spark, args=how, **QUIET
    ) as cluster:
        result = cluster.feed(spark.range(0, 50_000_000, 1, 8), epochs=10)
        assert result.was_stopped
        assert cluster.feed(spark.range(10)).was_stopped
        with pytest.raises(st.ConfigError, match="stop_when='some'"):
            cluster.feed(spark.range(10), stop_when="some")
        (Path(cluster.run_dir) / "go").touch()


def test_a_feed_may_go_on_while_any_function_wants_rows(spark: Any) -> None:
    with st.cluster(cluster_cases.note_or_stop, num_workers=2, spark=spark, **QUIET) as cluster:
        result = cluster.feed(spark.range(0, 20_000, 1, 20), stop_when="all")
        assert not result.was_stopped
        assert cluster.feed(spark.range(0, 100, 1, 4)).was_stopped  # the chief wants no more
    assert len(cluster_cases.read_ids(cluster.run_dir)) > 1000


def test_two_clusters_do_not_meet(spark: Any) -> None:
    with (
        st.cluster(cluster_cases.note_ids, num_workers=2, spark=spark, **QUIET) as one,
        st.cluster(cluster_cases.note_ids, num_workers=1, spark=spark, **QUIET) as other,
    ):
        one.feed(spark.range(0, 100))
        other.feed(spark.range(100, 200))
    assert cluster_cases.read_ids(one.run_dir) == list(range(100))
    assert cluster_cases.read_ids(other.run_dir) == list(range(100, 200))


def test_an_error_in_the_block_ends_the_nodes(spark: Any) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        st.cluster(cluster_cases.note_ids, num_workers=1, spark=spark, **QUIET) as cluster,
    ):
        pid = cluster.nodes[0].pid
        raise ZeroDivisionError
    assert pid is not None and not psutil.pid_exists(pid)


def test_bad_wishes_are_refused(spark: Any) -> None:
    with pytest.raises(st.ConfigError, match="num_ps=-1"):
        st.cluster(cluster_cases.note_ids, num_workers=1, num_ps=-1, spark=spark)
    with pytest.raises(st.ConfigError, match="the chief coordinates"):
        st.cluster(cluster_cases.note_ids, num_workers=1, num_ps=1, spark=spark)
    with pytest.raises(st.ConfigError, match="Start the cluster, then"):
        st.cluster(cluster_cases.note_ids, num_workers=1, data=spark.range(1), spark=spark)
    with st.cluster(cluster_cases.note_ids, num_workers=1, spark=spark, **QUIET) as cluster:
        for wrong in ({"epochs": 0}, {"name": ""}, {"timeout_s": -1}):
            with pytest.raises(st.ConfigError, match=next(iter(wrong))):
                cluster.feed(spark.range(3), **wrong)
        with pytest.raises(st.DataError, match="is null"):
            cluster.feed(spark.createDataFrame([(1,), (None,)], "id int"))
        cluster.feed(spark.range(3).selectExpr("cast(id as int) as id"))
    assert cluster_cases.read_ids(cluster.run_dir)[-1] == 2


@pytest.mark.parametrize("num_partitions", [1, 5])
def test_keras_fits_on_uneven_feeds(spark: Any, num_partitions: int) -> None:
    def make_frame(rows: int) -> Any:
        return spark.range(0, rows, 1, num_partitions).selectExpr(
            "array(cast(id % 7 as float), 1.0f) as x", "cast(id % 7 as float) as y"
        )

    with st.cluster(
        cluster_cases.fit, num_workers=2, spark=spark, args={"batch_size": 64}, progress=False
    ) as cluster:
        cluster.feed(make_frame(1003), epochs=2)
        cluster.feed(make_frame(5))
    total = 2 * sum(number % 7 for number in range(1003)) + sum(range(5))
    assert cluster.metrics[0]["rows"] == 2 * 1003 + 5
    assert cluster.metrics[0]["total"] == total
    weights = [np.load(path) for path in sorted(Path(cluster.run_dir).glob("weights-*.npy"))]
    assert len(weights) == 2 and np.array_equal(*weights)
