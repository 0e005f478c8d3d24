"""What st.files() takes and refuses, before anything is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.data.ddl import parse_schema
from sparktrain.data.files import ReadOptions
from sparktrain.data.order import file_order

ARRAY = {"type": "array", "elementType": "float", "containsNull": True}


class StructLike:
    """What a pyspark StructType looks like from here."""

    def jsonValue(self) -> dict[str, Any]:  # noqa: N802  # pyspark's name
        fields = [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]
        return {"type": "struct", "fields": fields}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"label": "long", "x": "array<float>"}, [("label", "long"), ("x", ARRAY)]),
        ("label long, x array<float>", [("label", "long"), ("x", ARRAY)]),
        ("label: BIGINT NOT NULL, x ARRAY<REAL>", [("label", "long"), ("x", ARRAY)]),
        (
            "`a, b` decimal(10, 2) COMMENT 'x, y', c int",
            [("a, b", "decimal(10,2)"), ("c", "integer")],
        ),
        ("a timestamp_ntz,", [("a", "timestamp_ntz")]),
        (StructLike(), [("a", "long")]),
    ],
)
def test_schemas_are_written_in_three_ways(schema: Any, expected: Any) -> None:
    assert [(field["name"], field["type"]) for field in parse_schema(schema)] == expected


@pytest.mark.parametrize(
    "schema", ["", {}, 5, "label", "x array<float", {"x": 3}, {"x": ""}, ["a"]]
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(st.ConfigError, match="files\\(\\) got schema="):
        parse_schema(schema)


def test_a_list_of_paths_is_kept_in_order(tmp_path: Path) -> None:
    found = st.files([tmp_path / "b", "s3://x/a*"], format="csv")
    assert found.paths == (str(tmp_path / "b"), "s3://x/a*")
    assert found.format == "csv"


LONG = {"a": "long"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": ""}, "path=''"),
        ({"path": []}, r"path=\[\]"),
        ({"path": 3}, "path=3"),
        ({"format": "json"}, "format='json'.* tfrecord, csv, parquet"),
        ({"columns": "a"}, r"columns=\['a'\]"),
        ({"delimiter": ";;"}, "delimiter=';;'"),
        ({"quote": ","}, "Expected another character"),
        ({"quote": ""}, "quote=''"),
        ({"bad_rows": "drop"}, "bad_rows='drop'"),
        ({"header": False}, "names of columns come from a schema"),
        ({"defaults": {"a": 1}, "fill": {"a": 2}}, "An empty cell has one meaning"),
        ({"schema": LONG, "columns": ["b"]}, "'b'.*columns names it"),
        ({"schema": LONG, "defaults": {"a": "x"}}, "fill='x' does not fit a long"),
        ({"schema": {"a": "array<long>"}}, "holds no array"),
        ({"schema": {"a": "map<int,int>"}}, "has no tensor"),
        ({"format": "tfrecord"}, "TFRecord files do not tell their types"),
        ({"format": "tfrecord", "schema": {"a": "array<long>"}}, "not declared.*shapes="),
        (
            {
                "format": "tfrecord",
                "schema": {"a": "array<array<long>>"},
                "shapes": {"a": (None, 2)},
            },
            "is flat",
        ),
        ({"format": "tfrecord", "schema": LONG, "defaults": {"a": 1}}, "Give fill="),
        ({"format": "tfrecord", "schema": LONG, "bad_rows": "skip"}, "is for CSV"),
        ({"format": "parquet", "header": False}, "header=False.*is for CSV"),
        ({"format": "parquet", "delimiter": ";"}, "delimiter=';'.*is for CSV"),
        ({"format": "parquet", "schema": LONG}, "carry their own schema"),
    ],
)
def test_what_has_no_meaning_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    path = arguments.pop("path", "nosuch/*")
    with pytest.raises(st.ConfigError, match=message):
        st.files(path, **{"format": "csv", **arguments})


def test_options_travel_as_json_and_show_no_keys() -> None:
    options = st.files(
        "s3://x/*", format="csv", header=False, schema=LONG, storage_options={"secret": "abc"}
    ).options
    assert options.names == ("a",)
    assert ReadOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert "abc" not in repr(options)


def test_file_order_depends_on_seed_and_pass_only() -> None:
    assert file_order(5, 1, 0, shuffle=False) == [0, 1, 2, 3, 4]
    orders = [file_order(50, seed, number, shuffle=True) for seed in (1, 2) for number in (0, 1)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert file_order(50, 1, 0, shuffle=True) == orders[0]
    assert file_order(0, 1, 0, shuffle=True) == []


def test_storage_options_that_cannot_travel_are_named_without_their_value() -> None:
    with pytest.raises(st.ConfigError) as caught:
        st.files("gs://b/x", format="parquet", storage_options={"token": object(), "project": "p"})
    assert "'token'" in str(caught.value) and "object at" not in str(caught.value)
