"""Values in the names of folders, as Spark and Hive write them."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.data.partition_folders import NULL, convert, infer_types, make_folder, parse_folders
from sparktrain.errors import ConfigError

UTC = datetime.UTC
ZONED = pa.timestamp("us", "UTC")


@pytest.mark.parametrize("value", ["a/b c", "é=%", "1", None, "a,b", "x:y?*[z]{^}", "\x01\x7f"])
def test_values_come_back_from_folders(value: str | None) -> None:
    path = f"root/{make_folder('what=', value)}/{make_folder('n', 5)}/part-0"
    assert parse_folders(path, "root") == {"what=": value, "n": "5"}
    assert len(path.split("/")) == 4


def test_folders_are_named_as_spark_names_them() -> None:
    assert make_folder("s", "ü /%") == "s=ü %2F%25"
    assert make_folder("t", datetime.datetime(2026, 1, 2, 3, 4)) == "t=2026-01-02 03%3A04%3A00"
    assert make_folder("a", None) == make_folder("a", "") == f"a={NULL}"
    assert make_folder("b", True) == "b=true"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2"], "integer"),
        (["3000000000", None], "long"),
        (["1" * 19], "string"),
        (["2026-01-01"], "date"),
        (["2026-13-01"], "string"),
        (["2026-W01-1"], "string"),
        (["1_000"], "string"),
        (["٣"], "string"),
        (["1", "x"], "string"),
        ([None], "string"),
    ],
)
def test_types_of_folders(values: list[str | None], kind: str) -> None:
    assert infer_types([{"a": value} for value in values]) == {"a": kind}


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("7", pa.int8(), 7),
        ("-7", pa.int64(), -7),
        ("1.5", pa.float64(), 1.5),
        ("1.50", pa.decimal128(5, 2), decimal.Decimal("1.50")),
        ("TRUE", pa.bool_(), True),
        ("2026-01-02", pa.date32(), datetime.date(2026, 1, 2)),
        ("2026-01-02 03:04:05", pa.timestamp("us"), datetime.datetime(2026, 1, 2, 3, 4, 5)),
        ("2026-01-02 03:04:05+09:00", ZONED, datetime.datetime(2026, 1, 1, 18, 4, 5, tzinfo=UTC)),
        ("anything", pa.string(), "anything"),
        (None, pa.int8(), None),
    ],
)
def test_values_of_folders(text: str | None, kind: pa.DataType, expected: Any) -> None:
    assert convert("a", text, kind) == expected


def test_a_timestamp_without_a_zone_needs_one() -> None:
    found = convert("t", "2026-01-02 03:04:05", ZONED, "Asia/Tokyo")
    assert found == datetime.datetime(2026, 1, 1, 18, 4, 5, tzinfo=UTC)
    with pytest.raises(ConfigError, match="it has no time zone: give option timeZone"):
        convert("t", "2026-01-02 03:04:05", ZONED)
    with pytest.raises(ConfigError, match="it has a time zone"):
        convert("t", "2026-01-02 03:04:05+09:00", pa.timestamp("us"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("300", pa.int8()),
        ("1" * 20, pa.int64()),
        ("1_000", pa.int64()),
        ("x", pa.float64()),
        ("1.555", pa.decimal128(5, 2)),
        ("x", pa.decimal128(5, 2)),
        ("2026-W01-1", pa.date32()),
        ("yes", pa.bool_()),
        ("x", pa.list_(pa.string())),
        ("x", ZONED),
    ],
)
def test_values_that_do_not_fit_are_refused(text: str, kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=f"The folder a={text} is no"):
        convert("a", text, kind)


def test_folders_that_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not agree"):
        infer_types([{"a": "1"}, {"b": "1"}])
