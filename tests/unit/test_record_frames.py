"""Frames of many records at once, and options of the format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.data.example_encode import Pieces, offsets_of
from sparktrain.data.record_frames import frame_records
from sparktrain.data.records import pack_record
from sparktrain.errors import ConfigError
from sparktrain.sources.options import parse_read_options, parse_write_options
from sparktrain.tfrecord import READ_OPTIONS, WRITE_OPTIONS

RECORDS = [b"", b"a", b"bc" * 500, b"\x00\xff", b""]


@pytest.mark.parametrize(("start", "size"), [(0, 5), (1, 3), (2, 0), (4, 1)])
def test_frames_are_those_of_single_records(start: int, size: int) -> None:
    records = pa.array(RECORDS, pa.large_binary()).slice(start, size)
    expected = b"".join(pack_record(record) for record in RECORDS[start : start + size])
    sizes = np.diff(offsets_of(records))
    assert bytes(frame_records(Pieces((records,), sizes))) == expected


def test_options_in_any_case_and_several_paths() -> None:
    found = parse_read_options(
        {"PATH": '["a", "b"]', "RecordType": "bytearray", "mode": "failfast"}
    )
    assert found.paths == ("a", "b") and found.record_type == "ByteArray"
    codec = "org.apache.hadoop.io.compress.GzipCodec"
    written = parse_write_options({"path": "out/", "codec": codec, "partitionBy": "a, b"}, "abc")
    assert (written.compression, written.extension) == ("gzip", ".gz")
    # Executors have another folder of their own.
    assert written.path == str(Path.cwd() / "out")
    for whole in ("/a/b", "s3://b/c", "file:///x", "file:/x", "dir://a::file:///x"):
        assert parse_write_options({"path": whole}, "abc").path == whole
    assert written.partition_by == ("a", "b")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "got no path"),
        ({"path": "p", "codec": "snappy"}, "codec='snappy'"),
        ({"path": "p", "partitionBy": "z"}, r"partitionBy='z'. The columns are a, b"),
        ({"path": "p", "partitionBy": "a,b"}, "a column that is left"),
        ({"path": "p", "partitionBy": ".hidden"}, "would be a hidden one"),
    ],
)
def test_bad_options_of_writing_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_write_options(options, ["a", "b", ".hidden"][: 3 if "hidden" in problem else 2])


def test_all_options_are_known_by_name() -> None:
    """What st.tfrecord.read and write let through is what is understood, and nothing else."""
    good = {"mode": "FAILFAST", "recordType": "Example", "verifyCrc": "true", "columns": "a"}
    for names, parse in (
        (READ_OPTIONS, parse_read_options),
        (WRITE_OPTIONS, lambda options: parse_write_options(options, "abc")),
    ):
        for name in names:
            if name in ("columns", "partitionBy", *good):
                continue
            with pytest.raises(ConfigError, match=name):
                parse({"path": "p", name: "\0"})


def test_time_zones_are_checked() -> None:
    assert parse_read_options({"path": "p", "timeZone": "Asia/Tokyo"}).zone == "Asia/Tokyo"
    with pytest.raises(ConfigError, match="timeZone='Mars'"):
        parse_read_options({"path": "p", "timeZone": "Mars"})
