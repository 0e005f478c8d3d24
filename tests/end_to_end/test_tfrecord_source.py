"""`spark.read.format("tfrecord")` and `df.write.format("tfrecord")` on real Spark."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from pyspark.errors import PySparkException
from pyspark.sql import Row

TYPES = (
    "yes boolean, b byte, s short, i int, l long, f float, d double, e decimal(20, 4), t string,"
    " raw binary, day date, at timestamp, il array<long>, fl array<float>, tl array<string>,"
    " n timestamp_ntz"
)
VALUES = [
    (
        True, -128, 32767, -(2**31), 2**63 - 1, 1.5, 0.25, decimal.Decimal("1234567890123456.7890"),
        "café", b"\xff\x00", datetime.date(1969, 12, 31), datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        [1, -2], [0.5], ["", "ü"], datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    ),
    (
        False, 0, 0, 0, -1, 0.0, 0.0, decimal.Decimal("-0.0001"), "", b"",
        datetime.date(2026, 2, 3), datetime.datetime(1960, 1, 1), [], [], [],
        datetime.datetime(1960, 1, 1),
    ),
    (None,) * 16,
]  # fmt: skip


@pytest.fixture
def frame(spark: Any) -> Any:
    return spark.createDataFrame([Row(*values) for values in VALUES], TYPES)


def read(spark: Any, path: Path, schema: str | None = None, **options: Any) -> Any:
    reader = spark.read.format("tfrecord").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


def parse(path: Path) -> list[Any]:
    """What TensorFlow reads in a folder."""
    found = []
    for file in sorted(path.rglob("part-*")):
        kind = {".gz": "GZIP", ".deflate": "ZLIB"}.get(file.suffix, "")
        for record in tf.data.TFRecordDataset(str(file), kind):
            found.append(tf.train.Example.FromString(record.numpy()))
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_rows_come_back_as_they_were(
    spark: Any, frame: Any, tmp_path: Path, compression: str
) -> None:
    path = tmp_path / "out"
    writer = frame.write.format("tfrecord").mode("append").option("compression", compression)
    writer.save(str(path))
    assert (path / "_SUCCESS").exists()
    assert not [one for one in path.iterdir() if one.name.startswith("_sparktrain")]
    rows = read(spark, path, TYPES).collect()
    expected = [tuple(row) for row in frame.collect()]
    assert sorted(map(repr, map(tuple, rows))) == sorted(map(repr, expected))
    first = next(
        e for e in parse(path) if e.features.feature["i"].int64_list.value[:] == [-(2**31)]
    )
    features = first.features.feature
    assert features["t"].bytes_list.value[:] == ["café".encode()]
    assert features["e"].bytes_list.value[:] == [b"1234567890123456.7890"]
    assert features["day"].int64_list.value[:] == [-1]
    assert any(not example.features.feature for example in parse(path))  # the row of nulls


def test_the_schema_is_found_in_all_files_and_folders(spark: Any, tmp_path: Path) -> None:
    for number, feature in enumerate(
        (
            tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
            tf.train.Feature(float_list=tf.train.FloatList(value=[0.5])),
        )
    ):
        folder = tmp_path / f"day=2026-01-0{number + 1}" / f"n={number}"
        folder.mkdir(parents=True)
        example = tf.train.Example(features=tf.train.Features(feature={"mixed": feature}))
        with tf.io.TFRecordWriter(str(folder / "some")) as writer:
            writer.write(example.SerializeToString())
    (tmp_path / "_logs").mkdir()
    (tmp_path / "_logs" / "junk").write_text("no record")
    (tmp_path / "day=2026-01-01" / "n=0" / "empty.tfrecord").touch()
    found = read(spark, tmp_path)
    assert found.dtypes == [("mixed", "double"), ("day", "date"), ("n", "int")]
    rows = sorted(map(tuple, found.collect()))
    assert rows == [
        (0.5, datetime.date(2026, 1, 2), 1),
        (1.0, datetime.date(2026, 1, 1), 0),
    ]


def test_the_older_name_and_records_as_they_are(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(b"one",), (b"",)], "raw binary")
    frame.write.format("tfrecords").mode("append").option("recordType", "bytearray").save(
        str(tmp_path / "raw")
    )
    found = spark.read.format("tfrecords").option("RECORDTYPE", "BYTEARRAY")
    assert sorted(row.byteArray for row in found.load(str(tmp_path / "raw")).collect()) == [
        b"", b"one",
    ]  # fmt: skip


def test_large_files_are_read_by_several_tasks(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 20_000, 1, 1).selectExpr("id", "repeat('x', 50) as t")
    frame.write.format("tfrecord").mode("append").save(str(tmp_path / "one"))
    assert len(list((tmp_path / "one").glob("part-*"))) == 1
    found = read(spark, tmp_path / "one", "id long", maxPartitionBytes=200_000)
    assert found.rdd.getNumPartitions() > 4
    assert sorted(row.id for row in found.collect()) == list(range(20_000))


def test_damage_names_file_and_byte_or_is_left_out(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    frame = spark.range(0, 100, 1, 1)
    frame.write.format("tfrecord").mode("append").save(str(folder))
    [path] = folder.glob("part-*")
    whole = bytearray(path.read_bytes())
    size = len(whole) // 100
    whole[10 * size + 14] ^= 0xFF  # the data of record 10, which then has a wrong CRC
    path.write_bytes(whole[:-2])
    with pytest.raises(PySparkException, match=rf"{path.name} cannot be read at byte {10 * size}"):
        read(spark, folder, "id long").collect()
    found = read(spark, folder, "id long", mode="dropmalformed").collect()
    assert sorted(row.id for row in found) == [n for n in range(99) if n != 10]


def test_values_that_do_not_fit_the_schema(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "out"
    spark.createDataFrame([("a",), ("b",)], "t string").write.format("tfrecord").mode(
        "append"
    ).save(str(path))
    with pytest.raises(PySparkException, match=r"feature 't' .bytes. has a value that is no int64"):
        read(spark, path, "t long").collect()
    assert read(spark, path, "t long", mode="DROPMALFORMED").count() == 0
    assert [row.t for row in read(spark, path, "t long", mode="PERMISSIVE").collect()] == [None] * 2


def test_overwriting_replaces_all_or_only_what_is_touched(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "out"

    def write(day: int, mode: str, **options: Any) -> None:
        frame = spark.range(3).selectExpr("id", f"{day} as day", "'a/b c' as `what=`")
        writer = frame.write.format("tfrecord").mode(mode).options(partitionBy="day,what=")
        writer.options(**options).save(str(path))

    def days() -> list[tuple[int, str, int]]:
        rows = read(spark, path).groupBy("day", "`what=`").count().collect()
        return sorted(map(tuple, rows))

    write(1, "append")
    write(1, "append")
    write(2, "append")
    assert days() == [(1, "a/b c", 6), (2, "a/b c", 3)]
    write(2, "overwrite", partitionOverwriteMode="dynamic")
    assert days() == [(1, "a/b c", 6), (2, "a/b c", 3)]
    write(3, "overwrite")
    assert days() == [(3, "a/b c", 3)]


def test_a_job_that_fails_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "out"
    spark.range(5).write.format("tfrecord").mode("append").save(str(path))
    before = sorted(path.iterdir())
    bad = spark.range(0, 2000, 1, 2).selectExpr("if(id < 1999, array(id), array(null)) as x")
    with pytest.raises(PySparkException, match="null inside an array"):
        bad.write.format("tfrecord").mode("overwrite").save(str(path))
    assert sorted(path.iterdir()) == before
    assert read(spark, path).count() == 5


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"recordType": "Nothing"}, "recordType='Nothing'. Expected one of Example"),
        ({"mode": "LENIENT"}, "mode='LENIENT'"),
        ({"samplingRatio": "2"}, "samplingRatio='2'"),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes='0'"),
    ],
)
def test_bad_options_are_refused(
    spark: Any, tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(PySparkException, match=problem):
        read(spark, tmp_path, "id long", **options).collect()


def test_what_has_no_place_is_refused_before_any_job(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(1).selectExpr("map('a', 1) as m")
    with pytest.raises(PySparkException, match="Column 'm' has the type map"):
        frame.write.format("tfrecord").mode("append").save(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(PySparkException, match="There is no file or folder"):
        read(spark, tmp_path / "nowhere").collect()
