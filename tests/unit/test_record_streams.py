"""Offsets of a folder read as a stream: every file in one batch, also after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles
from pyspark.sql.types import StructType

from sparktrain.data.records import pack_record
from sparktrain.errors import ConfigError, RecordError
from sparktrain.sources.folder import OutputFolder
from sparktrain.sources.options import ReadOptions, WriteOptions, parse_read_options
from sparktrain.sources.reader import BatchReader
from sparktrain.sources.stream_reader import RecordStreamReader
from sparktrain.sources.stream_writer import RecordStreamWriter
from sparktrain.sources.writer import Written, write_task

ALL = ReadAllAvailable()


def make_reader(folder: Path, **options: Any) -> RecordStreamReader:
    wanted = ReadOptions((str(folder),), record_type="ByteArray", **options)
    schema = StructType().add("byteArray", "binary")
    return RecordStreamReader(wanted, BatchReader(wanted, schema))


def add(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(pack_record(name.encode()))


def read(reader: RecordStreamReader, start: Any, end: Any) -> list[str]:
    # As Spark keeps them: text.
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return [raw.decode() for batch in batches for raw in batch.column(0).to_pylist()]


def test_new_files_are_read_once(tmp_path: Path) -> None:
    reader = make_reader(tmp_path)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    add(tmp_path, "b", "a", "_hidden", ".crc")
    first = reader.latestOffset(start, ALL)
    assert read(reader, start, first) == ["a", "b"]
    assert reader.latestOffset(first, ALL) == first and read(reader, first, first) == []
    add(tmp_path, "0-comes-before", "day=1/deep")
    # Another process, which knows nothing but the offset.
    again = make_reader(tmp_path)
    second = again.latestOffset(json.loads(json.dumps(first)), ALL)
    assert read(again, first, second) == ["0-comes-before", "day=1/deep"]
    # The batch before is tried again: the same files, whatever has come since.
    assert read(again, start, first) == ["a", "b"]
    third = again.latestOffset(second, ALL)
    assert third == second


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    reader = make_reader(tmp_path)
    add(tmp_path, *(str(number) for number in range(20)))
    offset = reader.latestOffset(reader.initialOffset(), ALL)
    for number in range(20):
        (tmp_path / str(number)).unlink()
    add(tmp_path, "x")
    offset = reader.latestOffset(offset, ALL)
    assert offset["seen"] == "" and len(offset["files"]) == 1


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (ReadMaxFiles(2), [2, 2, 1]),
        (ReadMaxBytes(40), [2, 2, 1]),
        (ReadMaxBytes(1), [1, 1, 1, 1, 1]),
    ],
)
def test_a_batch_has_no_more_than_it_may(tmp_path: Path, limit: Any, sizes: list[int]) -> None:
    add(tmp_path, *"abcde")
    reader = make_reader(tmp_path)
    offset, found = reader.initialOffset(), []
    while (new := reader.latestOffset(offset, limit)) != offset:
        found.append(len(read(reader, offset, new)))
        offset = new
    assert found == sizes


def test_available_now_is_what_was_there_at_the_beginning(tmp_path: Path) -> None:
    add(tmp_path, "a", "b")
    reader = make_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    add(tmp_path, "c")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert read(reader, start, first) == ["a", "b"]
    assert reader.latestOffset(first, ALL) == first


def test_limits_come_from_the_options(tmp_path: Path) -> None:
    assert make_reader(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
    assert make_reader(tmp_path, max_trigger_files=3).getDefaultReadLimit() == ReadMaxFiles(3)
    assert make_reader(tmp_path, max_trigger_bytes=9).getDefaultReadLimit() == ReadMaxBytes(9)
    with pytest.raises(ConfigError, match="both maxFilesPerTrigger and maxBytesPerTrigger"):
        parse_read_options({"path": "p", "maxFilesPerTrigger": "1", "maxBytesPerTrigger": "1"})


def test_a_gap_between_offsets_is_an_error(tmp_path: Path) -> None:
    reader = make_reader(tmp_path)
    start = reader.initialOffset()
    with pytest.raises(RecordError, match="between batch 0 and 2"):
        reader.partitions(start, {**start, "batch": 2})


QUERY = "0123-query"


def write_batch(folder: Path, batch: int, text: bytes) -> Written:
    """What a task of a batch writes and says."""
    options = WriteOptions(str(folder), "ByteArray")
    rows = pa.record_batch({"raw": pa.array([text])})
    hidden = f"_sparktrain-stream-{QUERY}/batch-{batch}"
    return Written(write_task(options, hidden, f"job-{batch}", iter([rows])), QUERY)


def read_folder(folder: Path) -> list[str]:
    reader = make_reader(folder)
    start = reader.initialOffset()
    return sorted(read(reader, start, reader.latestOffset(start, ALL)))


def make_writer(folder: Path, overwrite: bool = False) -> RecordStreamWriter:
    return RecordStreamWriter(WriteOptions(str(folder), "ByteArray"), overwrite)


def test_a_batch_that_is_written_again_counts_once(tmp_path: Path) -> None:
    make_writer(tmp_path).commit([write_batch(tmp_path, 0, b"zero")], 0)
    make_writer(tmp_path).commit([write_batch(tmp_path, 1, b"one")], 1)
    # Spark did not hear of it, and has it done again; rows may come out otherwise.
    make_writer(tmp_path).commit([write_batch(tmp_path, 1, b"again"), None], 1)
    assert read_folder(tmp_path) == ["one", "zero"]
    make_writer(tmp_path).commit([], 2)
    assert not list(tmp_path.glob("_sparktrain-*/batch-*"))


def test_a_commit_that_was_broken_off_is_ended_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [write_batch(tmp_path, 0, text) for text in (b"a", b"b")]
    move = OutputFolder.publish

    def stop_after_one(self: OutputFolder, moves: Any, old: Any) -> None:
        move(self, moves[:1], [])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "publish", stop_after_one)
        with pytest.raises(KeyboardInterrupt):
            make_writer(tmp_path).commit(messages, 0)
    assert len(list(tmp_path.glob("part-*"))) == 1
    make_writer(tmp_path).commit([write_batch(tmp_path, 0, b"again")], 0)
    assert read_folder(tmp_path) == ["a", "b"]


def test_a_batch_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    message = write_batch(tmp_path, 0, b"a")
    make_writer(tmp_path).abort([message, None], 0)
    assert not list(tmp_path.glob("_sparktrain-*/batch-*"))
    make_writer(tmp_path).abort([None], 0)


def test_what_is_about_to_become_visible_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its note says so: the files are needed to end what was begun."""
    message = write_batch(tmp_path, 0, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make_writer(tmp_path).commit([message], 0)
    make_writer(tmp_path).abort([message], 0)
    make_writer(tmp_path).commit([write_batch(tmp_path, 0, b"again")], 0)
    assert read_folder(tmp_path) == ["a"]


def test_files_of_a_batch_that_is_done_may_be_moved_on(tmp_path: Path) -> None:
    make_writer(tmp_path).commit([write_batch(tmp_path, 0, b"a")], 0)
    for path in tmp_path.glob("part-*"):
        path.unlink()  # somebody has taken them
    make_writer(tmp_path).commit([write_batch(tmp_path, 0, b"again")], 0)
    assert read_folder(tmp_path) == []


def test_a_file_that_is_gone_is_an_error_or_left_out(tmp_path: Path) -> None:
    add(tmp_path, "a", "b")
    reader = make_reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (tmp_path / "a").unlink()
    with pytest.raises(RecordError, match=r"a is not there any more. .*ignoreMissingFiles=true"):
        read(reader, start, end)
    assert read(make_reader(tmp_path, skip_missing=True), start, end) == ["b"]


def test_complete_output_replaces_what_was_there(tmp_path: Path) -> None:
    make_writer(tmp_path, True).commit([write_batch(tmp_path, 0, b"old")], 0)
    make_writer(tmp_path, True).commit([write_batch(tmp_path, 1, b"new")], 1)
    assert read_folder(tmp_path) == ["new"]


def test_notes_do_not_pile_up(tmp_path: Path) -> None:
    for batch in range(5):
        make_writer(tmp_path).commit([write_batch(tmp_path, batch, b"x")], batch)
    notes = sorted(path.name for path in tmp_path.glob("_sparktrain-*/note-*"))
    assert notes == ["note-3", "note-4"]
