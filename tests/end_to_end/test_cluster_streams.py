"""Streams that feed a cluster: every row once, over restarts of the query too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cluster_cases
import sparktrain as st

QUIET: dict[str, Any] = {"progress": False, "distribution": "none"}


def test_a_stream_feeds_every_row_once(spark: Any, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    spark.range(0, 500, 1, 3).write.parquet(source)
    stream = spark.readStream.schema("id long").parquet(source)
    offsets = str(tmp_path / "offsets")
    with st.cluster(cluster_cases.note_ids, num_workers=2, spark=spark, **QUIET) as cluster:
        first = cluster.feed(stream, trigger={"availableNow": True}, checkpoint=offsets)
        assert first.wait(60)
        spark.range(500, 700, 1, 2).write.mode("append").parquet(source)
        # Another query of the same checkpoint goes on behind the first.
        second = cluster.feed(stream, trigger={"availableNow": True}, checkpoint=offsets)
        assert second.wait(60)
        endless = cluster.feed(stream, name="train")  # with a checkpoint in the run directory
        endless.query.processAllAvailable()
        assert endless.query.isActive
    assert not endless.query.isActive
    assert (Path(cluster.run_dir) / "offsets" / "train").is_dir()
    expected = [*range(700), *range(700)]
    assert cluster_cases.read_ids(cluster.run_dir) == sorted(expected)


def test_a_function_that_has_enough_ends_the_stream(spark: Any) -> None:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    with st.cluster(
        cluster_cases.stop_early, num_workers=1, spark=spark, args="return", **QUIET
    ) as cluster:
        feed = cluster.feed(stream.selectExpr("value"))
        assert feed.wait(60)
        assert feed.was_stopped


def test_a_dead_trainer_ends_the_stream_with_its_error(spark: Any) -> None:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    with (
        pytest.raises(st.NodeFailedError, match="row 100 is bad luck"),
        st.cluster(
            cluster_cases.fail_at, num_workers=2, spark=spark, args="raise", **QUIET
        ) as cluster,
    ):
        cluster.feed(stream.selectExpr("value").repartition(2)).wait(60)


def write(spark: Any, folder: Path, first: int, last: int) -> None:
    frame = spark.range(first, last, 1, 1).selectExpr(
        "id", "cast(id as float) as x", "cast(0 as float) as y"
    )
    frame.write.mode("append").parquet(str(folder))


def test_what_a_stopped_stream_did_not_bring_comes_to_the_next(spark: Any, tmp_path: Path) -> None:
    source, offsets = tmp_path / "source", str(tmp_path / "offsets")
    write(spark, source, 0, 500_000)
    stream = spark.readStream.schema("id long").parquet(str(source))
    with st.cluster(
        cluster_cases.stop_early, num_workers=1, spark=spark, args="return", **QUIET
    ) as cluster:
        feed = cluster.feed(stream, trigger={"availableNow": True}, checkpoint=offsets)
        assert feed.wait(60) and feed.was_stopped
    with st.cluster(cluster_cases.note_ids, num_workers=1, spark=spark, **QUIET) as cluster:
        assert cluster.feed(stream, trigger={"availableNow": True}, checkpoint=offsets).wait(60)
    assert cluster_cases.read_ids(cluster.run_dir) == list(range(500_000))


def test_a_batch_that_is_interrupted_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    """Of the same checkpoint and on the same trainers: every row once."""
    source, offsets = tmp_path / "source", str(tmp_path / "offsets")
    write(spark, source, 0, 6000)
    stream = spark.readStream.schema("id long").parquet(str(source))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with st.cluster(
            cluster_cases.note_ids, num_workers=1, spark=spark, args=0.0005, **QUIET
        ) as cluster:
            feed = cluster.feed(stream, trigger={"availableNow": True}, checkpoint=offsets)
            while not cluster.snapshot().nodes["chief:0"].status or not taken(cluster):
                pass
            feed.stop()
            again = cluster.feed(stream, trigger={"availableNow": True}, checkpoint=offsets)
            assert again.wait(60)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert cluster_cases.read_ids(cluster.run_dir) == list(range(6000))


def taken(cluster: Any) -> int:
    return int(cluster._group.hub.num_taken)


def test_a_stream_stops_although_nobody_takes_its_rows(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(spark, source, 0, 100)
    stream = spark.readStream.schema("id long").parquet(str(source))
    cluster = st.cluster(cluster_cases.wait_for_ever, num_workers=1, spark=spark, **QUIET)
    feed = cluster.feed(stream)
    with pytest.raises(st.RunTimeoutError, match="timeout_s=3"):
        cluster.stop(3)
    assert not feed.query.isActive


@pytest.mark.parametrize("how", ["fit", "rows"])
def test_checkpoints_move_with_the_offsets(spark: Any, tmp_path: Path, how: str) -> None:
    """A trainer dies in the second batch: the next one has all rows, from a checkpoint or again."""
    source, run_dir = tmp_path / "source", tmp_path / "run"
    first, second = sum(range(100)), sum(range(100, 200))
    write(spark, source, 0, 100)
    stream = spark.readStream.schema("id long, x float, y float").parquet(str(source))
    stream = stream.select("x", "y") if how == "fit" else stream.select("id")
    function = cluster_cases.fit_stream if how == "fit" else cluster_cases.sum_rows
    with (
        pytest.raises(st.NodeLostError, match="SIGKILL"),
        st.cluster(
            function, num_workers=1, spark=spark, run_dir=run_dir, args=first + 3000, **QUIET
        ) as cluster,
    ):
        feed = cluster.feed(stream)
        feed.query.processAllAvailable()
        write(spark, source, 100, 200)
        feed.wait(60)
    with st.cluster(function, num_workers=1, spark=spark, run_dir=run_dir, **QUIET) as cluster:
        assert cluster.feed(stream, trigger={"availableNow": True}).wait(60)
    # In the same run directory again, on new rows only: it goes on with what it had.
    write(spark, source, 200, 300)
    with st.cluster(function, num_workers=1, spark=spark, run_dir=run_dir, **QUIET) as cluster:
        assert cluster.feed(stream, trigger={"availableNow": True}).wait(60)
    expected = first + second + sum(range(200, 300))
    if how == "fit":
        assert cluster.metrics[0]["total"] == expected
    else:
        assert int((run_dir / "total-0").read_text()) == expected


def test_workers_that_train_together_save_between_batches(spark: Any, tmp_path: Path) -> None:
    """Uneven rows of each batch, which fill no batch of fit's; a checkpoint for each."""
    source, run_dir = tmp_path / "source", tmp_path / "run"
    for first in (0, 50, 101):
        write(spark, source, first, first + 45)
    stream = spark.readStream.schema("id long, x float, y float").option("maxFilesPerTrigger", 1)
    stream = stream.parquet(str(source)).selectExpr("array(x, 1.0f) as x", "y + 1 as y")
    with st.cluster(
        cluster_cases.fit,
        num_workers=2,
        spark=spark,
        run_dir=run_dir,
        args={"batch_size": 32, "callbacks": True},
        progress=False,
    ) as cluster:
        feed = cluster.feed(stream, idle_timeout_s=60)
        feed.query.processAllAvailable()
        assert (run_dir / "checkpoints" / "fit-1" / "latest.json").exists()
        with pytest.raises(st.ConfigError, match="a stream and epochs=2"):
            cluster.feed(stream, epochs=2)
    assert cluster.metrics[-1]["rows"] == cluster.metrics[-1]["total"] == 3 * 45


def test_empty_batches_and_declared_shapes(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(spark, source, 0, 10)
    stream = spark.readStream.schema("id long").parquet(str(source)).where("id > 20")
    stream = stream.selectExpr("array(id, id) as v")
    with st.cluster(cluster_cases.note_rows, num_workers=1, spark=spark, **QUIET) as cluster:
        feed = cluster.feed(st.table(stream, shapes={"v": (2,)}))
        feed.query.processAllAvailable()
        write(spark, source, 20, 23)
        feed.query.processAllAvailable()
    lines = (Path(cluster.run_dir) / "chief-0.rows").read_text().splitlines()
    assert len(lines) == 2 and "21" in lines[0]
