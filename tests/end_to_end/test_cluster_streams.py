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
