"""From DataFrames to the stage: what real Spark makes of names, lengths and partitions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sparktrain.data.schema import Column, Wishes
from sparktrain.data.tables import Table, table
from sparktrain.driver.tables import find_keys, name_tables, plan_stage
from sparktrain.errors import ConfigError, SchemaError


@pytest.mark.parametrize("size", [1, 2, 7])
def test_this_spark_sends_a_key_to_its_partition(spark: Any, size: int) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    keys = spark.createDataFrame([(key,) for key in find_keys(size)], "key int")
    found = keys.repartition(size, "key").select("key", F.spark_partition_id()).collect()
    assert sorted((part, key) for key, part in found) == list(enumerate(find_keys(size)))


def test_a_plain_frame_is_the_table_train(spark: Any) -> None:
    frame = spark.range(3)
    assert name_tables(frame) == {"train": Table(frame, Wishes())}
    declared = table(frame, columns=["id"], seed=3, shuffle="spark")
    assert name_tables({"a": declared, "b": frame}) == {
        "a": Table(frame, Wishes(columns=["id"]), "spark", 3),
        "b": Table(frame, Wishes()),
    }


def test_a_stream_is_refused(spark: Any) -> None:
    stream = spark.readStream.format("rate").load()
    for data in (stream, {"train": stream}, table(stream)):
        with pytest.raises(ConfigError, match="'train' is a stream"):
            name_tables(data)


def test_lengths_come_from_the_first_row_without_null(spark: Any) -> None:
    rows = [(None, [[1]], 0), ([1.0, 2.0], [[1, 2, 3]], 1)]
    frame = spark.createDataFrame(rows, "`a.b``c` array<double>, deep array<array<int>>, n int")
    (spec,) = plan_stage(spark, frame, 2, 2).tables
    assert spec.columns == (
        Column("a.b`c", "double", 1, (2,)),
        Column("deep", "integer", 2, (1, 3)),
        Column("n", "integer"),
    )


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "The columns of 'train': There is no row"),
        ([([], [1])], "Column 'a' of 'train'.*empty"),
        ([([1], None), (None, [1])], "Column 'a, b' of 'train': No row is without null"),
    ],
)
def test_lengths_that_cannot_be_found(spark: Any, rows: list[Any], problem: str) -> None:
    frame = spark.createDataFrame(rows, "a array<int>, b array<int>")
    with pytest.raises(SchemaError, match=problem):
        plan_stage(spark, frame, 2, 2)
    declared = table(frame, shapes={"a": (1,), "b": (None,)})
    assert [column.shape for column in plan_stage(spark, declared, 2, 2).tables[0].columns] == [
        (1,),
        (None,),
    ]


@pytest.mark.parametrize("shuffle", [None, "spark"])
def test_tables_that_share_a_stage_are_dealt_out_evenly(spark: Any, shuffle: str | None) -> None:
    data = {
        "train": table(spark.range(10, numPartitions=3), shuffle=shuffle),
        "check": spark.range(5, numPartitions=2).withColumnRenamed("id", "a.b"),
    }
    plan = plan_stage(spark, data, num_workers=2, num_nodes=3)
    assert plan.is_mixed and [spec.name for spec in plan.tables] == ["train", "check"]
    parts = [
        [(row[0], row[1 + row[0]][0]) for row in part] for part in plan.frame.rdd.glom().collect()
    ]
    assert parts[2] == []  # the evaluator's
    assert sorted(itertools.chain.from_iterable(parts)) == [
        *((0, n) for n in range(10)),
        *((1, n) for n in range(5)),
    ]
    for part in parts[:2]:
        numbers = [number for number, _ in part]
        assert numbers == sorted(numbers) and 4 <= numbers.count(0) <= 6
        assert 2 <= numbers.count(1) <= 3
    again = plan_stage(spark, data, num_workers=2, num_nodes=3).frame.collect()
    assert again == plan.frame.collect()
