"""Files of one task, and the folder they become visible in."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparktrain as st
from sparktrain.errors import RecordError
from sparktrain.sources import output
from sparktrain.sources.folder import HIDDEN, OutputFolder
from sparktrain.sources.options import WriteOptions
from sparktrain.sources.writer import RecordSourceWriter, Written


def read(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return list(st.tfrecord.RecordReader(file))


def make_batch(days: list[Any]) -> pa.RecordBatch:
    records = pa.array([str(number).encode() for number in range(len(days))])
    return pa.record_batch({"raw": records, "day": pa.array(days)})


class Opened:
    """Remembers which files are open, and how many were at most."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: list[tuple[str, Path]] = []
        self.open = self.most = 0

    @contextmanager
    def __call__(self, place: str) -> Iterator[Any]:
        path = self.folder / f"{len(self.paths)}"
        self.paths.append((place, path))
        self.open += 1
        self.most = max(self.most, self.open)
        with path.open("wb") as file:
            yield file
        self.open -= 1


def write(opened: Opened, batches: list[pa.RecordBatch], **options: Any) -> None:
    wanted = WriteOptions("p", record_type="ByteArray", **options)
    with output.TaskOutput(wanted, opened) as task:
        for batch in batches:
            task.write(batch)
    assert opened.open == 0


def test_files_have_at_most_so_many_records(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    batches = [make_batch([0] * 5).select(["raw"]), make_batch([0] * 4).select(["raw"])]
    write(opened, batches, max_records=3)
    sizes = [len(read(path)) for _, path in opened.paths]
    assert sizes == [3, 3, 3]
    assert sorted(b"".join(b"".join(read(path)) for _, path in opened.paths)) == sorted(
        b"012340123"
    )


def test_rows_go_to_the_folders_of_their_values(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    batches = [make_batch([1, 2, 1, None]), make_batch([2, 2])]
    write(opened, batches, partition_by=("day",))
    found = {place: read(path) for place, path in opened.paths}
    assert found == {
        "day=1/": [b"0", b"2"],
        "day=2/": [b"1", b"0", b"1"],
        "day=__HIVE_DEFAULT_PARTITION__/": [b"3"],
    }


def test_few_files_are_open_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_OPEN", 3)
    opened = Opened(tmp_path)
    write(opened, [make_batch([n % 8 for n in range(40)])] * 2, partition_by=("day",))
    assert opened.most == 3 and len(opened.paths) == 16
    total = sum(len(read(path)) for _, path in opened.paths)
    assert total == 80


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for number in range(2):
        writer = RecordSourceWriter(
            WriteOptions(str(tmp_path / str(number)), "ByteArray", "gzip"), overwrite=False
        )
        writer.commit([writer.write(iter([make_batch([0]).select(["raw"])]))])
        [path] = (tmp_path / str(number)).glob("*.tfrecord.gz")
        found.append(path.read_bytes())
    assert found[0] == found[1] and b"0" in gzip.decompress(found[0])


def test_a_task_that_was_tried_twice_leaves_one_file(tmp_path: Path) -> None:
    writer = RecordSourceWriter(WriteOptions(str(tmp_path), "ByteArray"), overwrite=False)
    batch = make_batch([0, 0]).select(["raw"])
    writer.write(iter([batch]))  # of an attempt that Spark forgot
    message = writer.write(iter([batch]))
    assert not list(tmp_path.glob("*.tfrecord"))  # nothing is visible before the commit
    writer.commit([message])
    assert sorted(path.name[:5] for path in tmp_path.iterdir()) == ["_SUCC", "part-"]


def test_publishing_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    folder = OutputFolder(WriteOptions(str(tmp_path)))
    folder.make(f"{HIDDEN}x")
    for name in "ab":
        (tmp_path / f"{HIDDEN}x" / name).write_text(name)
    (tmp_path / "old").write_text("old")
    moves = [(f"{HIDDEN}x/{name}", f"day=1/{name}") for name in "ab"]
    folder.publish(moves[:1], [])
    folder.publish(moves, ["old"])
    folder.publish(moves, ["old"])
    assert sorted(path.name for path in (tmp_path / "day=1").iterdir()) == ["a", "b"]
    assert not (tmp_path / "old").exists()
    with pytest.raises(RecordError, match="is gone before it was moved"):
        folder.publish([(f"{HIDDEN}x/c", "c")], [])


def test_notes_are_whole_or_not_there(tmp_path: Path) -> None:
    folder = OutputFolder(WriteOptions(str(tmp_path)))
    assert folder.read_note("n/1") is None
    folder.write_note("n/1", {"a": [1]})
    assert folder.read_note("n/1") == {"a": [1]}
    assert [path.name for path in (tmp_path / "n").iterdir()] == ["1"]


def test_hidden_files_do_not_count(tmp_path: Path) -> None:
    folder = OutputFolder(WriteOptions(str(tmp_path / "out")))
    assert not folder.has_files()
    folder.make(f"{HIDDEN}job")
    (tmp_path / "out" / "_SUCCESS").touch()
    assert not folder.has_files()
    (tmp_path / "out" / "day=1").mkdir()
    assert not folder.has_files()  # what an overwrite without rows leaves
    (tmp_path / "out" / "day=1" / "part").touch()
    assert folder.has_files() and not folder.is_file()


def test_overwriting_replaces_what_is_visible(tmp_path: Path) -> None:
    names = ["a", "_SUCCESS", f"{HIDDEN}other/b", "day=1/c", "day=2/d", "day=1/deep=1/e"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    moves = [("hidden", "day=1/new")]
    whole = OutputFolder(WriteOptions(str(tmp_path)))
    assert sorted(whole.find_old(moves)) == sorted(set(names) - {f"{HIDDEN}other/b"})
    touched = OutputFolder(WriteOptions(str(tmp_path), only_touched=True))
    assert touched.find_old(moves) == ["day=1/c"]


def test_records_of_bytes_are_not_null(tmp_path: Path) -> None:
    batch = pa.record_batch({"raw": pa.array([b"a", None])})
    with pytest.raises(RecordError, match="Column 'raw' is null"):
        write(Opened(tmp_path), [batch])


def test_sparse_vectors_are_written_a_few_at_a_time(tmp_path: Path) -> None:
    from test_example_types import VECTOR

    vector = {"type": 0, "size": 1 << 18, "indices": [5], "values": [1.0]}
    batch = pa.record_batch({"v": pa.array([vector] * 100, VECTOR)})
    sizes = []

    class Spy(output.TaskOutput):
        def _write_part(self, folder: str, rows: pa.RecordBatch) -> None:
            sizes.append(rows.num_rows)

    with Spy(WriteOptions("p"), Opened(tmp_path)) as task:
        task.write(batch)
    assert sum(sizes) == 100 and max(sizes) < 12


def test_messages_of_failed_tasks_are_none() -> None:
    from sparktrain.sources.writer import collect

    assert collect([None, Written([("a", "b")])]) == [("a", "b")]
