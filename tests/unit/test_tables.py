"""What run(data=...) takes, and how rows find their partitions."""

from __future__ import annotations

from typing import Any

import pytest

from sparktrain.data.schema import Wishes, make_columns
from sparktrain.data.tables import Table, TableSpec, table
from sparktrain.driver.tables import find_keys, name_tables
from sparktrain.errors import ConfigError

#: The least number that repartition(n, column) sends to each partition, from Spark 4.3 itself.
KEYS = [
    [0],
    [2, 0],
    [0, 1, 11],
    [12, 6, 2, 0],
    [22, 0, 4, 1, 2],
    [2, 1, 12, 0, 13, 11],
    [12, 0, 1, 9, 3, 2, 11],
    [12, 6, 5, 1, 25, 15, 2, 0],
    [0, 1, 11, 2, 6, 23, 8, 20, 15],
    [22, 0, 4, 1, 2, 23, 5, 7, 13, 6],
    [32, 4, 12, 9, 3, 39, 0, 10, 7, 2, 1],
    [14, 6, 28, 0, 13, 15, 2, 1, 12, 9, 49, 11],
    [1, 19, 9, 28, 4, 0, 8, 2, 5, 14, 33, 7, 12],
    [12, 0, 18, 9, 52, 43, 13, 24, 4, 1, 28, 3, 2, 11],
    [22, 29, 15, 8, 6, 23, 0, 55, 11, 2, 39, 56, 4, 1, 12],
    [12, 16, 5, 1, 37, 20, 2, 35, 13, 6, 49, 7, 25, 15, 4, 0],
]


@pytest.mark.parametrize("expected", KEYS, ids=len)
def test_keys_are_those_that_spark_sends_to_each_partition(expected: list[int]) -> None:
    assert find_keys(len(expected)) == expected


def test_no_data_are_no_tables() -> None:
    assert name_tables(None) == {}


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ({}, ["empty dict"]),
        ([1], ["list", "'train'", "DataFrame"]),
        ({"a": 5}, ["int", "'a'", "sparktrain.table"]),
        (Table(5, Wishes()), ["'train'", "int"]),
        ({"a": Table("x", Wishes())}, ["'a'", "str"]),
        *[({name: 5}, ["name", repr(name)]) for name in ("", 1, None, "a/b", "../a", ".a")],
    ],
)
def test_data_that_cannot_be(data: Any, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        name_tables(data)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("wishes", "part"),
    [
        ({"shuffle": "rows"}, "shuffle='rows'"),
        ({"shuffle": True}, "shuffle=True"),
        ({"columns": "abc"}, "abc"),
        ({"mask": "abc"}, "abc"),
        ({"seed": "1"}, "seed='1'"),
        ({"seed": True}, "seed=True"),
    ],
)
def test_declarations_without_a_meaning(wishes: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match="Expected") as caught:
        table(None, **wishes)  # type: ignore[arg-type]
    assert part in str(caught.value)


def test_a_spec_is_the_same_behind_a_dict() -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "binary"}]
    columns = make_columns("t", fields, Wishes(mask=["b"], shapes={"b": (2,)}))
    spec = TableSpec("t", tuple(columns))
    assert TableSpec.from_dict(spec.to_dict()) == spec
