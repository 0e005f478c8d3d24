"""More of the `tfrecord` format on real Spark: sequences, vectors, conditions, save modes."""

from __future__ import annotations

import datetime
import functools
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from pyspark.errors import PySparkException

import sparktrain as st

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def files_of(path: Path) -> list[Path]:
    return sorted(path.rglob("part-*"))


def test_arrays_of_arrays_are_feature_lists(spark: Any, tmp_path: Path) -> None:
    rows = [
        (1, [[1.0, 2.0], [], None, [3.0]], [["a"], ["b", "ü"]], [[True, False]]),
        (2, [], None, []),
        (3, None, [], None),
    ]
    types = "id long, frames array<array<float>>, words array<array<string>>,"
    types += " flags array<array<boolean>>"
    frame = spark.createDataFrame(rows, types)
    st.tfrecord.write(frame, str(tmp_path / "out"), record_type="SequenceExample")
    again = st.tfrecord.read(spark, str(tmp_path / "out"), schema=types)
    assert sorted(map(tuple, again.collect())) == rows
    found = dict(st.tfrecord.read(spark, str(tmp_path / "out")).dtypes)
    assert found == {
        "flags": "array<array<bigint>>",
        "frames": "array<array<float>>",
        "id": "bigint",
        "words": "array<array<string>>",
    }
    records = [
        tf.train.SequenceExample.FromString(record.numpy())
        for path in files_of(tmp_path / "out")
        for record in tf.data.TFRecordDataset(str(path))
    ]
    [first] = [one for one in records if one.context.feature["id"].int64_list.value[0] == 1]
    frames = first.feature_lists.feature_list["frames"].feature
    assert [list(one.float_list.value) for one in frames] == [[1.0, 2.0], [], [], [3.0]]
    assert frames[2].WhichOneof("kind") is None
    with pytest.raises(PySparkException, match=r"'frames' has the type .*SequenceExample"):
        st.tfrecord.write(frame, str(tmp_path / "other"))


def test_vectors_of_spark_ml(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.types import StructType

    rows = [(Vectors.dense([0.5, 1.5]),), (Vectors.sparse(3, {1: 2.0}),), (None,)]
    frame = spark.createDataFrame(rows, StructType().add("v", VectorUDT()))
    st.tfrecord.write(frame, str(tmp_path / "out"))
    read = functools.partial(st.tfrecord.read, spark, str(tmp_path / "out"))
    lists = sorted((row.v for row in read().collect() if row.v is not None), key=len)
    assert lists == [[0.5, 1.5], [0.0, 2.0, 0.0]]
    again = read(schema=frame.schema)
    vectors = [row.v for row in again.collect()]
    assert Vectors.dense([0.5, 1.5]) in vectors and None in vectors
    with pytest.raises(PySparkException, match="'v' has doubles, and the option doubles is refuse"):
        st.tfrecord.write(frame, str(tmp_path / "other"), doubles="refuse")


@pytest.mark.parametrize("is_pushed", ["true", "false"])
def test_conditions_on_folders_and_columns(spark: Any, tmp_path: Path, is_pushed: str) -> None:
    """One DataFrame in several queries: what one leaves out, the next one may need."""
    frame = spark.range(1000).selectExpr(
        "id", "cast(id % 4 as int) as part", "if(id % 7 = 0, null, cast(id as string)) as t"
    )
    st.tfrecord.write(frame, str(tmp_path / "out"), partition_by=["part"])
    found = st.tfrecord.read(spark, str(tmp_path / "out"))
    assert dict(found.dtypes)["part"] == "int"
    spark.conf.set(PUSH_DOWN, is_pushed)
    try:
        for condition in (
            "part = 2 and id > 500",
            "part in (0, 3) and t is not null",
            "t like '99%' or id = 3",
            "not id >= 10",
            "part is null",
        ):
            expected = sorted(row.id for row in frame.where(condition).collect())
            assert sorted(row.id for row in found.where(condition).collect()) == expected
    finally:
        spark.conf.unset(PUSH_DOWN)
    # Folders are chosen by the path, and are columns nevertheless.
    some = st.tfrecord.read(spark, f"{tmp_path}/out/part=[12]")
    assert {row.part for row in some.collect()} == {1, 2} and some.count() == 500


def test_only_the_columns_that_are_asked_for(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(10).selectExpr("id", "id * 2 as twice", "'x' as t", "id % 2 as p")
    st.tfrecord.write(frame, str(tmp_path / "out"), partition_by=["p"])
    found = st.tfrecord.read(spark, str(tmp_path / "out"), columns=["twice", "p"])
    assert found.columns == ["twice", "p"]
    assert sorted(row.twice for row in found.collect()) == list(range(0, 20, 2))
    with pytest.raises(PySparkException, match="has a feature 'nothing'"):
        st.tfrecord.read(spark, str(tmp_path / "out"), columns=["nothing"]).collect()
    with pytest.raises(st.ConfigError, match="both a schema and columns"):
        st.tfrecord.read(spark, str(tmp_path / "out"), columns=["id"], schema="id long")


def test_save_modes(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    write = functools.partial(st.tfrecord.write, path=path)
    read = functools.partial(st.tfrecord.read, spark, path, schema="id long")
    write(spark.range(3))
    with pytest.raises(st.ConfigError, match=r"out has files already"):
        write(spark.range(5))
    write(spark.range(5), mode="ignore")
    assert read().count() == 3
    write(spark.range(5), mode="append")
    assert read().count() == 8
    write(spark.range(2), mode="overwrite")
    assert read().count() == 2
    with pytest.raises(st.ConfigError, match="mode='replace'"):
        write(spark.range(2), mode="replace")
    with pytest.raises(PySparkException, match="writeLocality='local'"):
        write(spark.range(2), mode="append", writeLocality="local")
    # An error of another kind is not taken for a folder that has files.
    with pytest.raises(PySparkException, match="compression='lzo'"):
        write(spark.range(2), mode="ignore", compression="lzo")
    with pytest.raises(st.ConfigError, match=r"partition_by='nothing'. The columns are id"):
        write(spark.range(2), partition_by=["nothing"])


def test_files_of_limited_length_and_several_paths(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        frame = spark.range(number * 100, number * 100 + 100, 1, 1)
        st.tfrecord.write(frame, str(tmp_path / str(number)), maxRecordsPerFile=30)
        assert len(files_of(tmp_path / str(number))) == 4
    paths = [str(tmp_path / "0"), f"file://{tmp_path}/1"]
    found = st.tfrecord.read(spark, paths, schema="id long")
    assert sorted(row.id for row in found.collect()) == list(range(200))
    assert st.tfrecord.read(spark, f"{tmp_path}/[01]/part*").count() == 200


def test_partition_columns_of_all_kinds(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(
        "select 1L as id, date'2026-01-02' as d, timestamp'2026-01-02 03:04:05' as t,"
        " true as b, 1.5D as f, cast(2.50 as decimal(5, 2)) as e, 'a b/c=%' as s, null as n"
    ).selectExpr("id", "d", "t", "b", "f", "e", "s", "cast(n as string) as n")
    st.tfrecord.write(frame, str(tmp_path / "out"), partition_by=list("dtbfesn"))
    again = st.tfrecord.read(spark, str(tmp_path / "out"), schema=frame.schema)
    assert again.collect() == frame.collect()
    inferred = dict(st.tfrecord.read(spark, str(tmp_path / "out")).dtypes)
    assert inferred["d"] == "date" and inferred["s"] == "string"
    with pytest.raises(PySparkException, match="folder s=a b/c=% is no int32"):
        st.tfrecord.read(spark, str(tmp_path / "out"), schema="id long, s int").collect()
    with pytest.raises(PySparkException, match="cannot be the name of a folder"):
        st.tfrecord.write(
            spark.sql("select 1 as id, array(1) as a"), str(tmp_path / "x"), partition_by=["a"]
        )


def test_odd_wishes_are_refused_before_any_job(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    one = spark.range(1)
    with pytest.raises(st.ConfigError, match=r"write\(\) got an option compresion='gzip'"):
        st.tfrecord.write(one, path, compresion="gzip")
    with pytest.raises(st.ConfigError, match="no column in columns"):
        st.tfrecord.read(spark, path, columns=[])
    with pytest.raises(PySparkException, match="The DataFrame has no column"):
        st.tfrecord.write(one.select(), path)
    vector = "named_struct('type', 1Y, 'size', 3, 'indices', array(1), 'values', array(4.5D)) as v"
    with pytest.raises(PySparkException, match="'v' has the type struct"):
        st.tfrecord.write(one.selectExpr(vector), path)
    (tmp_path / "file").touch()
    with pytest.raises(PySparkException, match=r"file is a file\. Expected the path of a folder"):
        st.tfrecord.write(one, str(tmp_path / "file"), mode="overwrite")
    assert not Path(path).exists()
    st.tfrecord.write(one, path)
    [file] = files_of(tmp_path / "out")
    with pytest.raises(PySparkException, match="'id' is not nullable, and mode=PERMISSIVE"):
        st.tfrecord.read(spark, path, schema="id long not null", mode="PERMISSIVE").collect()
    file.rename(tmp_path / "out" / "some.bz2")
    with pytest.raises(PySparkException, match="compressed in a way that is not read"):
        st.tfrecord.read(spark, path, schema="id long").collect()
    (tmp_path / "raw").mkdir()
    with (tmp_path / "raw" / "part").open("wb") as raw:
        st.tfrecord.RecordWriter(raw).write(b"no example")
    with pytest.raises(PySparkException, match=r"1 of 1 records in .*raw are no Examples"):
        st.tfrecord.read(spark, str(tmp_path / "raw")).collect()
    # A path below the driver's folder is the same for the executors, which have another.
    here = os.path.relpath(tmp_path / "here")
    st.tfrecord.write(spark.range(3), here)
    assert st.tfrecord.read(spark, here).count() == 3 and (tmp_path / "here").is_dir()


def test_several_threads_write(spark: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(st.tfrecord.write, spark.range(10), str(tmp_path / "out"), mode="append")
            for _ in range(3)
        ]
    assert [job.result() for job in jobs] == [None] * 3
    assert st.tfrecord.read(spark, str(tmp_path / "out")).count() == 30


def test_many_small_files_are_few_tasks_and_few_batches(spark: Any, tmp_path: Path) -> None:
    record = tf.train.Example()
    for number in range(300):
        record.features.feature["id"].int64_list.value[:] = [number]
        with tf.io.TFRecordWriter(str(tmp_path / f"part-{number:04d}")) as writer:
            writer.write(record.SerializeToString())
    (tmp_path / "part-0150").write_bytes((tmp_path / "part-0150").read_bytes()[:-3])
    found = st.tfrecord.read(spark, str(tmp_path), schema="id long", mode="DROPMALFORMED")
    assert found.rdd.getNumPartitions() == 1
    assert sorted(row.id for row in found.collect()) == [n for n in range(300) if n != 150]
    with pytest.raises(PySparkException, match=r"part-0150 cannot be read at byte 0"):
        st.tfrecord.read(spark, str(tmp_path), schema="id long").collect()
    # A record that does not fit is named with its own file, though files are read together.
    record.features.feature["id"].float_list.value.append(0.5)
    with tf.io.TFRecordWriter(str(tmp_path / "part-0150")) as writer:
        writer.write(record.SerializeToString())
    with pytest.raises(PySparkException, match=r"part-0150 cannot be read at byte 0: feature 'id'"):
        st.tfrecord.read(spark, str(tmp_path), schema="id long").collect()


def test_empty_folders_and_files(spark: Any, tmp_path: Path) -> None:
    assert st.tfrecord.read(spark, str(tmp_path), schema="id long").count() == 0
    (tmp_path / "empty.tfrecord").touch()
    (tmp_path / "empty.tfrecord.gz").touch()
    assert st.tfrecord.read(spark, str(tmp_path), schema="id long").count() == 0
    with pytest.raises(PySparkException, match="No record was found in"):
        st.tfrecord.read(spark, str(tmp_path)).collect()
    st.tfrecord.write(spark.range(0), str(tmp_path / "none"))
    assert st.tfrecord.read(spark, str(tmp_path / "none"), schema="id long").count() == 0


def test_a_store_of_another_protocol(spark: Any, tmp_path: Path) -> None:
    st.tfrecord.write(spark.range(0, 50, 1, 1), str(tmp_path / "out"), compression="gzip")
    [path] = files_of(tmp_path / "out")
    path.rename(tmp_path / "some.tfrecord.gz")
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/some.tfrecord.gz"
            found = st.tfrecord.read(spark, url, storage_options={"block_size": 1 << 20})
            assert sorted(row.id for row in found.collect()) == list(range(50))
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(PySparkException, match="The store of 'nowhere://x' cannot be opened"):
        st.tfrecord.read(spark, "nowhere://x", schema="id long").collect()
    with pytest.raises(PySparkException, match=r"storageOptions='...'. Expected an object"):
        spark.read.format("tfrecord").option("storageOptions", "secret").load("x")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


def test_a_job_that_is_killed_leaves_nothing_to_see(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = Path(__file__).with_name("killed_writer.py")
    process = subprocess.Popen([sys.executable, str(script), str(out)], cwd=tmp_path)
    try:
        deadline = time.monotonic() + 120
        while not list(out.glob("_sparktrain-*/part-*")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(0.5)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert list(out.glob("_sparktrain-*/part-*")) and not list(out.glob("part-*"))
    assert not (out / "_SUCCESS").exists()
    assert list(_list_visible(out)) == []


def _list_visible(folder: Path) -> Any:
    from sparktrain.data.listing import list_tree

    return list_tree([str(folder)], {})


def test_dates_in_files_of_another_time_zone(spark: Any, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        frame = spark.sql("select timestamp'2026-01-02 03:04:05' as t")
        st.tfrecord.write(frame, str(tmp_path / "out"))
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        [row] = st.tfrecord.read(spark, str(tmp_path / "out"), schema="t timestamp").collect()
        [path] = files_of(tmp_path / "out")
        [record] = tf.data.TFRecordDataset(str(path))
        stored = tf.train.Example.FromString(record.numpy()).features.feature["t"]
        utc = datetime.datetime(2026, 1, 1, 18, 4, 5, tzinfo=datetime.UTC)
        assert list(stored.int64_list.value) == [int(utc.timestamp()) * 1_000_000]
        assert row.t.astimezone(datetime.UTC) == utc
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def sum_both(ctx: Any) -> dict[str, float]:
    """What a trainer gets of the same rows, through Spark and from the files."""
    return {
        name: sum(
            float(x.numpy().sum()) + float(n.numpy().sum())
            for x, n in ctx.dataset(name, batch_size=16, features="x", label="n")
        )
        for name in ("frame", "files")
    }


sum_both.__module__ = "__main__"  # travels by value


def test_files_that_were_written_are_trained_on(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr("id as n", "array(float(id), 0.25F) as x")
    st.tfrecord.write(frame, str(tmp_path / "out"), compression="gzip")
    data = {
        "frame": st.table(st.tfrecord.read(spark, str(tmp_path / "out")), shapes={"x": (2,)}),
        "files": st.files(
            str(tmp_path / "out"),
            format="tfrecord",
            schema={"n": "long", "x": "array<float>"},
            shapes={"x": (2,)},
        ),
    }
    result = st.run(sum_both, num_workers=1, data=data, progress=False, distribution="none")
    assert result.value == {"frame": 4950 * 2 + 25, "files": 4950 * 2 + 25}
