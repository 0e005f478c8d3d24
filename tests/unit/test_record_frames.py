"""Frames of many records at once, folders of partitions, and options of the format."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.data.example_encode import Pieces, offsets_of
from sparktrain.data.example_types import to_kind
from sparktrain.data.partition_folders import NULL, convert, infer_types, make_folder, parse_folders
from sparktrain.data.record_frames import frame_records
from sparktrain.data.records import pack_record
from sparktrain.errors import ConfigError, RecordError
from sparktrain.sources.options import parse_read_options, parse_write_options

RECORDS = [b"", b"a", b"bc" * 500, b"\x00\xff", b""]


@pytest.mark.parametrize(("start", "size"), [(0, 5), (1, 3), (2, 0), (4, 1)])
def test_frames_are_those_of_single_records(start: int, size: int) -> None:
    records = pa.array(RECORDS, pa.large_binary()).slice(start, size)
    expected = b"".join(pack_record(record) for record in RECORDS[start : start + size])
    sizes = np.diff(offsets_of(records))
    assert bytes(frame_records(Pieces((records,), sizes))) == expected


@pytest.mark.parametrize("value", ["a/b c", "é=%", "1", None, "a,b"])
def test_values_come_back_from_folders(value: str | None) -> None:
    path = f"root/{make_folder('what=', value)}/{make_folder('n', 5)}/part-0"
    assert parse_folders(path, "root") == {"what=": value, "n": "5"}


@pytest.mark.parametrize(
    ("values", "kind", "first"),
    [
        (["1", "-2"], "integer", 1),
        (["3000000000", None], "long", 3_000_000_000),
        (["2026-01-01"], "date", datetime.date(2026, 1, 1)),
        (["2026-13-01"], "string", "2026-13-01"),
        (["1", "x"], "string", "1"),
        ([None], "string", None),
    ],
)
def test_types_of_folders(values: list[str | None], kind: str, first: Any) -> None:
    assert infer_types([{"a": value} for value in values]) == {"a": kind}
    assert convert("a", values[0], kind) == first
    assert make_folder("a", None) == f"a={NULL}"


def test_folders_that_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not agree"):
        infer_types([{"a": "1"}, {"b": "1"}])


def test_a_null_inside_an_array_is_refused_with_its_row() -> None:
    column = pa.array([[1], None, [2, None]], pa.list_(pa.int64()))
    with pytest.raises(RecordError, match="Column 'x' has a null inside an array, in row 2"):
        to_kind("x", column)
    assert to_kind("x", column.slice(0, 2)).to_pylist() == [[1], None]


def test_options_in_any_case_and_several_paths() -> None:
    found = parse_read_options(
        {"PATH": '["a", "b"]', "RecordType": "bytearray", "mode": "failfast"}
    )
    assert found.paths == ("a", "b") and found.record_type == "ByteArray"
    codec = "org.apache.hadoop.io.compress.GzipCodec"
    written = parse_write_options({"path": "out/", "codec": codec, "partitionBy": "a, b"}, "abc")
    assert (written.path, written.compression, written.extension) == ("out", "gzip", ".gz")
    assert written.partition_by == ("a", "b")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "got no path"),
        ({"path": "p", "codec": "snappy"}, "codec='snappy'"),
        ({"path": "p", "partitionBy": "z"}, "partitionBy='z'. The columns are a, b"),
        ({"path": "p", "partitionBy": "a,b"}, "a column that is left"),
    ],
)
def test_bad_options_of_writing_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_write_options(options, ["a", "b"])
