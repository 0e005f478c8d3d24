"""Folders of TFRecord files as streams on real Spark: every row once, also across restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import sparktrain as st


def start(spark: Any, folder: Path, **options: Any) -> Any:
    """A query from one folder to another, which takes all there is and ends."""
    frame = (
        spark.readStream.format("tfrecord")
        .schema("id long, part int")
        .options(**options)
        .load(str(folder / "in"))
    )
    writer = frame.writeStream.format("tfrecord").option("partitionBy", "part")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(folder / "out"))


def finish(query: Any) -> None:
    assert query.awaitTermination(120)
    assert query.exception() is None


def ids(spark: Any, folder: Path) -> list[int]:
    found = st.tfrecord.read(spark, str(folder / "out"), schema="id long, part int")
    return sorted(row.id for row in found.collect())


def add(spark: Any, folder: Path, first: int, last: int) -> None:
    frame = spark.range(first, last).selectExpr("id", "cast(id % 2 as int) as part")
    st.tfrecord.write(frame, str(folder / "in"), mode="append", partition_by=["part"])


def test_every_row_once_across_restarts(spark: Any, tmp_path: Path) -> None:
    add(spark, tmp_path, 0, 10)
    finish(start(spark, tmp_path))
    assert ids(spark, tmp_path) == list(range(10))
    add(spark, tmp_path, 10, 20)
    finish(start(spark, tmp_path, maxFilesPerTrigger=1))
    assert ids(spark, tmp_path) == list(range(20))
    assert sorted(path.name for path in (tmp_path / "out").glob("part=*")) == ["part=0", "part=1"]

    # As if the driver had died when the sink was done and Spark did not know it yet.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.glob(f"*{last}*"):
        path.unlink()
    add(spark, tmp_path, 20, 25)
    finish(start(spark, tmp_path))
    assert ids(spark, tmp_path) == list(range(25))
    finish(start(spark, tmp_path))
    assert ids(spark, tmp_path) == list(range(25))


def test_a_batch_that_fails_is_done_again(spark: Any, tmp_path: Path) -> None:
    add(spark, tmp_path, 0, 10)
    finish(start(spark, tmp_path))
    bad = tmp_path / "in" / "part=0" / "bad.tfrecord"
    bad.write_bytes(b"no record, and more than twelve bytes")
    add(spark, tmp_path, 10, 20)
    query = start(spark, tmp_path)
    with pytest.raises(PySparkException, match=r"bad.tfrecord cannot be read at byte 0"):
        query.awaitTermination(120)
    assert ids(spark, tmp_path) == list(range(10))
    bad.write_bytes(b"")
    finish(start(spark, tmp_path))
    assert ids(spark, tmp_path) == list(range(20))


def test_the_schema_of_a_stream_is_found_in_its_files(spark: Any, tmp_path: Path) -> None:
    add(spark, tmp_path, 0, 10)
    stream = spark.readStream.format("tfrecord").load(str(tmp_path / "in"))
    assert stream.isStreaming and stream.dtypes == [("id", "bigint"), ("part", "int")]
    counts = stream.groupBy("part").count().writeStream.format("memory").queryName("counts")
    query = counts.outputMode("complete").trigger(availableNow=True).start()
    finish(query)
    assert sorted(map(tuple, spark.table("counts").collect())) == [(0, 5), (1, 5)]
