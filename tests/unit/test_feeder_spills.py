"""The feeder and its spills: those of earlier attempts, of other workers and on other disks."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from feeder_cases import TRAIN, Node, fill, make_batches, make_row, never
from sparktrain.agent.feed import Feeder
from sparktrain.data.schema import Column
from sparktrain.data.spill import Entry
from sparktrain.data.spill_folders import MANIFEST, write_manifest
from sparktrain.data.tables import TableSpec
from sparktrain.data.trays import TRAY_BYTES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "spill"


@pytest.mark.parametrize(("batches", "is_left"), [([], False), ([make_row(1)], True)])
def test_a_feed_that_read_nothing_looks_whether_there_is_something(
    root: Path, batches: list[Any], is_left: bool
) -> None:
    fill(root)
    node = Node(root, TRAIN, attempt=1)
    with node.feeder:
        node.run(iter(batches), [[[0, 0]]])
    assert node.feeder.has_rows_left() == is_left


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
