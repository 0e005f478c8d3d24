"""The agent's feeder: Spark's batches into spills, frames to the trainer, and nothing left."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.agent import feed
from sparktrain.agent.feed import STRUCT_COLUMN, TABLE_COLUMN, Feeder
from sparktrain.data.schema import Column
from sparktrain.data.spill import Entry
from sparktrain.data.spill_folders import MANIFEST, write_manifest
from sparktrain.data.tables import TableSpec
from sparktrain.data.trays import TRAY_BYTES
from sparktrain.trainer.feed import Feed
from sparktrain.wire import frames

TRAIN = TableSpec("train", (Column("n", "long"), Column("v", "double", 1, (2,))))
CHECK = TableSpec("check", (Column("s", "string"),))
TRAIN_TYPE = pa.struct([("n", pa.int64()), ("v", pa.list_(pa.float64()))])
CHECK_TYPE = pa.struct([("s", pa.string())])


class Node:
    """A feeder, and the trainer at the other end of its frames."""

    def __init__(self, root: Path, *tables: TableSpec, partition: int = 0, attempt: int = 0):
        self.root = root
        self.frames: list[dict[str, Any]] = []
        self.outcome: dict[str, int] | str | None = None
        self.done = threading.Event()
        self.trainer = Feed([table.to_dict() for table in tables])
        self.feeder = Feeder(
            tables, len(tables) > 1, partition, attempt, [root], self._tell, self._on_done
        )

    def _tell(self, frame: dict[str, Any]) -> None:
        values = frames.decode_body(frames.encode(frame)[frames.HEADER.size :])
        self.frames.append(values)
        self.trainer.handle(values)

    def _on_done(self, outcome: dict[str, int] | str) -> None:
        assert not any(frame["kind"] == "fed" for frame in self.frames)  # the driver is told first
        self.outcome = outcome
        self.done.set()

    def run(self, batches: Iterable[pa.RecordBatch], everywhere: Any = ((),)) -> None:
        self.feeder.start(batches, self.feeder.find_earlier(), everywhere)
        assert self.done.wait(10)
        if self.feeder._thread is not None:
            self.feeder._thread.join(10)

    def rows(self, table: str) -> list[dict[str, Any]]:
        blocks = self.trainer.tables[table].blocks(0, None)
        return [row for block in blocks for row in block.to_pylist()]

    @property
    def kinds(self) -> list[str]:
        return [frame["kind"] for frame in self.frames]


def make_row(n: int) -> dict[str, Any]:
    return {"n": n, "v": [n / 2, n / 4]}


def make_batches(*sizes: int) -> Iterator[pa.RecordBatch]:
    start = 0
    for size in sizes:
        rows = [make_row(n) for n in range(start, start + size)]
        yield pa.RecordBatch.from_struct_array(pa.array(rows, TRAIN_TYPE))
        start += size


def make_mixed(trains: int, checks: int) -> pa.RecordBatch:
    """As Spark hands over two tables in one stage, the second one's rows behind the first's."""
    numbers = [0] * trains + [1] * checks
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.int32()),
            pa.array([make_row(n) for n in range(trains)] + [None] * checks, TRAIN_TYPE),
            pa.array([None] * trains + [{"s": f"é{n}"} for n in range(checks)], CHECK_TYPE),
        ],
        names=[TABLE_COLUMN, STRUCT_COLUMN.format(0), STRUCT_COLUMN.format(1)],
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "spill"


@pytest.mark.parametrize("sizes", [(), (5,), (1, 0, 4), (0, 3, 100, 0)])
def test_rows_of_one_table_reach_the_trainer_in_order(root: Path, sizes: tuple[int, ...]) -> None:
    node = Node(root, TRAIN)
    with node.feeder:
        node.run(make_batches(*sizes))
        assert node.outcome == {"train": sum(sizes)}
        assert node.kinds == ["spill", *["blocks"] * sum(size > 0 for size in sizes), "fed"]
        assert node.rows("train") == [make_row(n) for n in range(sum(sizes))]
        assert (root / "part-0-0" / MANIFEST).exists()
    assert not root.exists()


@pytest.mark.parametrize("step", [1, 3, 7, 10])
def test_tables_that_share_a_stage_are_told_apart_inside_a_batch(root: Path, step: int) -> None:
    whole = make_mixed(6, 4)
    node = Node(root, TRAIN, CHECK)
    with node.feeder:
        node.run(whole.slice(start, step) for start in range(0, 10, step))
        assert node.outcome == {"train": 6, "check": 4}
        assert node.rows("train") == [make_row(n) for n in range(6)]
        assert node.rows("check") == [{"s": f"é{n}".encode()} for n in range(4)]
    assert not root.exists()


@pytest.mark.parametrize(("trains", "checks"), [(3, 0), (0, 3), (0, 0)])
def test_a_table_may_have_no_rows_here(root: Path, trains: int, checks: int) -> None:
    node = Node(root, TRAIN, CHECK)
    with node.feeder:
        node.run([make_mixed(trains, checks)])
        assert node.outcome == {"train": trains, "check": checks}
        assert (len(node.rows("train")), len(node.rows("check"))) == (trains, checks)
    assert not root.exists()


def test_large_batches_become_blocks_of_a_limited_size(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_BLOCK_BYTES", 1000)
    node = Node(root, TRAIN)
    with node.feeder:
        node.run(make_batches(500))
        rows = [e["rows"] for f in node.frames if f["kind"] == "blocks" for e in f["entries"]]
        assert sum(rows) == 500 and 10 <= max(rows) <= 50
        assert node.rows("train") == [make_row(n) for n in range(500)]


def test_a_bad_row_is_told_by_its_number_in_the_partition(root: Path) -> None:
    bad = [make_row(0), {"n": 1, "v": [1.0]}]
    batches = [*make_batches(3, 4), pa.RecordBatch.from_struct_array(pa.array(bad, TRAIN_TYPE))]
    node = Node(root, TRAIN, partition=5)
    with node.feeder:
        node.run(batches)
        assert isinstance(node.outcome, str)
        for part in ("column 'v' of 'train'", "row 8 of partition 5", "1 values where 2"):
            assert part in node.outcome
        assert "fed" not in node.kinds and not (root / "part-5-0" / MANIFEST).exists()
    assert not root.exists()


def test_a_bad_row_counts_within_its_own_table(root: Path) -> None:
    mixed = make_mixed(6, 4)
    rows = [None] * 6 + [{"s": "a"}, {"s": "b"}, {"s": None}, {"s": "c"}]
    mixed = mixed.set_column(2, mixed.schema.names[2], pa.array(rows, CHECK_TYPE))
    node = Node(root, TRAIN, CHECK)
    with node.feeder:
        node.run([mixed.slice(0, 7), mixed.slice(7)])
        assert "column 's' of 'check' is null in row 2 of partition 0" in str(node.outcome)


def test_an_error_of_sparks_is_told_as_one(root: Path) -> None:
    def break_off() -> Iterator[pa.RecordBatch]:
        yield from make_batches(3)
        raise EOFError("the socket closed")

    node = Node(root, TRAIN)
    with node.feeder:
        node.run(break_off())
        assert node.outcome == "Spark's rows could not be read: EOFError: the socket closed"
        assert "fed" not in node.kinds
    assert not root.exists()


def test_a_spill_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    node = Node(tmp_path / "file", TRAIN)
    with node.feeder:
        node.run(make_batches(3))
        assert "spark.sparktrain.spillDir" in str(node.outcome)


@pytest.mark.parametrize("is_stuck", [True, False])
def test_an_early_end_stops_the_thread_and_removes_the_spill(
    root: Path, is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(feed, "JOIN_S", 0.1 if is_stuck else 5.0)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in make_batches(*[1] * 100_000):
            yield batch
            started.set()
            go_on.wait(10) if is_stuck else time.sleep(0.001)

    node = Node(root, TRAIN)
    with node.feeder:
        node.feeder.start(batches(), {}, [()])
        assert started.wait(10) and (root / "part-0-0").exists()
    thread = node.feeder._thread
    assert thread is not None and thread.is_alive() == is_stuck
    assert not root.exists()
    go_on.set()
    thread.join(10)
    assert not thread.is_alive() and not root.exists()
    assert node.outcome is None and "fed" not in node.kinds


@pytest.mark.parametrize("size", [0, 1, 5])
def test_after_a_whole_feed_no_rows_are_left(root: Path, size: int) -> None:
    node = Node(root, TRAIN)
    with node.feeder:
        node.run(make_batches(size))
    assert not node.feeder.has_rows_left()


def test_after_an_early_end_the_batch_on_its_way_is_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "JOIN_S", 0.1)
    started, go_on = threading.Event(), threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from make_batches(1, 1)
        started.set()
        go_on.wait(10)
        yield from make_batches(1)

    node = Node(root, TRAIN)
    with node.feeder:
        node.feeder.start(batches(), {}, [()])
        assert started.wait(10)
    threading.Timer(0.2, go_on.set).start()
    assert node.feeder.has_rows_left()
    assert go_on.is_set()


@pytest.mark.parametrize(("batches", "is_left"), [([], False), ([make_row(1)], True)])
def test_a_feed_that_read_nothing_looks_whether_there_is_something(
    root: Path, batches: list[Any], is_left: bool
) -> None:
    fill(root)
    node = Node(root, TRAIN, attempt=1)
    with node.feeder:
        node.run(iter(batches), [[[0, 0]]])
    assert node.feeder.has_rows_left() == is_left


def fill(root: Path, partition: int = 0, attempt: int = 0, size: int = 10) -> Node:
    """An attempt that fed to its end, and whose spill stays."""
    node = Node(root, TRAIN, partition=partition, attempt=attempt)
    with node.feeder:
        node.run(make_batches(size // 2, size - size // 2))
        node.feeder.is_kept = True
    return node


def never() -> Iterator[pa.RecordBatch]:
    pytest.fail("rows were asked for again")
    yield


def test_a_restart_uses_a_complete_spill_and_asks_for_no_rows(root: Path) -> None:
    fill(root)
    node = Node(root, TRAIN, attempt=1)
    with node.feeder:
        assert list(node.feeder.find_earlier()) == [(0, 0)]
        node.run(never(), [[[0, 0]]])
        assert node.outcome == {"train": 10}
        assert node.rows("train") == [make_row(n) for n in range(10)]
    assert not root.exists()


def test_workers_may_use_the_spills_of_each_other(root: Path) -> None:
    """As after a restart that has put the tasks of two hosts the other way round."""
    hosts = [root / "a", root / "b"]
    for partition, host in enumerate(hosts):
        fill(host, partition, size=10 + partition)
    nodes = [Node(host, TRAIN, partition=1 - i, attempt=1) for i, host in enumerate(hosts)]
    for number, node in enumerate(nodes):
        with node.feeder:
            node.run(never(), [[[0, 1]], [[0, 0]]])
            assert node.outcome == {"train": 10 + number}


def test_if_one_worker_has_none_all_are_fed_anew(root: Path) -> None:
    fill(root, size=4)
    node = Node(root, TRAIN, attempt=1)
    with node.feeder:
        node.run(make_batches(6), [[[0, 0]], []])
        assert node.outcome == {"train": 6}
        assert [folder.name for folder in root.iterdir()] == ["part-0-1"]
    assert not root.exists()


def test_spills_of_different_attempts_are_never_mixed(root: Path) -> None:
    fill(root, 0, attempt=1)
    fill(root / "other", 1, attempt=0)  # of a host that was not there in attempt 1
    node = Node(root, TRAIN, attempt=2)
    with node.feeder:
        node.run(make_batches(6), [[[1, 0]], [[0, 1]]])
        assert node.outcome == {"train": 6}


def test_spills_are_found_and_removed_on_every_disk(tmp_path: Path) -> None:
    """A restart may put a partition on another host, where its number leads to another disk."""
    roots = [tmp_path / "a", tmp_path / "b"]

    def make(partition: int, attempt: int) -> Node:
        node = Node(tmp_path, TRAIN)
        node.feeder = Feeder([TRAIN], False, partition, attempt, roots, node._tell, node._on_done)
        return node

    first = make(1, 0)
    with first.feeder:
        first.run(make_batches(3))
        first.feeder.is_kept = True
    assert not roots[0].exists() and (roots[1] / "part-1-0").exists()
    again = make(0, 1)
    with again.feeder:
        assert list(again.feeder.find_earlier()) == [(0, 1)]
        again.run(make_batches(2))
        assert (roots[0] / "part-0-1").exists() and not roots[1].exists()
    assert not roots[0].exists()


def test_a_feed_that_was_stopped_reports_nothing(root: Path) -> None:
    go_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from make_batches(1)
        go_on.wait(10)
        yield pa.RecordBatch.from_pydict({"n": [None], "v": [[1.0, 2.0]]})

    node = Node(root, TRAIN)
    with node.feeder:
        node.feeder.start(batches(), {}, [()])
        node.feeder.stop()
        go_on.set()
        assert node.feeder._thread is not None
        node.feeder._thread.join(10)
    assert node.outcome is None


def test_blocks_are_cut_by_what_they_take_not_by_what_came(root: Path) -> None:
    table = TableSpec("t", (Column("v", "double", 1, (20_000,), pad=0.0),))
    rows = [{"v": [1.0]}] * 200  # 160 kB each when padded
    batch = pa.RecordBatch.from_struct_array(
        pa.array(rows, pa.struct([("v", pa.list_(pa.float64()))]))
    )
    node = Node(root, table)
    with node.feeder:
        node.run([batch])
        sizes = [entry["size"] for frame in node.frames for entry in frame.get("entries", ())]
    assert node.outcome == {"t": 200}
    assert len(sizes) == 4 and max(sizes) <= TRAY_BYTES


def test_an_evaluator_has_no_spill_to_use(root: Path) -> None:
    fill(root)
    node = Node(root, TRAIN, partition=1, attempt=1)
    with node.feeder:
        node.run([], [[[0, 0]]])
        assert node.outcome == {"train": 0}


def test_a_spill_of_very_many_blocks_is_told_in_several_frames(root: Path) -> None:
    fill(root)
    write_manifest(root / "part-0-0", {"train": [Entry(n, 1, 10_000) for n in range(40_000)]})
    os.truncate(root / "part-0-0" / "train.arrow", 40_000)
    node = Node(root, TRAIN, attempt=1)
    with node.feeder:
        node.run(never(), [[[0, 0]]])
        assert node.outcome == {"train": 400_000_000}
        assert node.trainer.depth == 40_000
    assert not root.exists()


def test_a_feeder_that_never_started_leaves_what_others_have(root: Path) -> None:
    fill(root)
    with Node(root, TRAIN, attempt=0).feeder:
        pass
    assert (root / "part-0-0").exists()


def test_rows_cut_off_by_spark_are_not_all_rows(tmp_path: Path) -> None:
    """Arrow takes a closed connection for the end of the stream; a restart must not."""
    here, there = socket.socketpair()
    batch = pa.RecordBatch.from_pylist([make_row(1)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    there.sendall(sink.getvalue().to_pybytes()[:-8])  # without the end marker
    there.close()
    outcomes: list[Any] = []
    told: list[str] = []
    feeder = Feeder(
        [TRAIN],
        False,
        0,
        0,
        [tmp_path / "root"],
        lambda frame: told.append(frame["kind"]),
        outcomes.append,
        is_cut=lambda: bool(select.select([here], [], [], 0)[0]),
    )
    with feeder, here.makefile("rb") as stream:
        feeder.start(pa.ipc.open_stream(stream), {}, ((),))
        assert feeder._thread is not None
        feeder._thread.join(10)
        assert outcomes == [] and told == ["spill", "blocks"]
        assert not list(tmp_path.rglob(MANIFEST))
    here.close()


def test_an_evaluator_leaves_the_spills_of_workers_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = Node(root, TRAIN)
    first.run([pa.RecordBatch.from_pylist([make_row(1)])])
    first.feeder.is_kept = True
    first.feeder.__exit__()
    evaluator = Node(root, TRAIN, partition=1, attempt=1)
    evaluator.run([], everywhere=(((0, 0),),))
    assert evaluator.outcome == {"train": 0}
    worker = Node(root, TRAIN, attempt=1)
    worker.run([], everywhere=(((0, 0),),))
    assert worker.rows("train") == [make_row(1)]
    evaluator.feeder.__exit__()
    worker.feeder.__exit__()
    assert not list(tmp_path.iterdir())
