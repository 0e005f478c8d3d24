"""The agent's feeder: Spark's batches into spills, frames to the trainer, and nothing left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from feeder_cases import (
    CHECK,
    CHECK_TYPE,
    TRAIN,
    TRAIN_TYPE,
    Node,
    make_batches,
    make_mixed,
    make_row,
)
from sparktrain.agent import feed
from sparktrain.data.spill_folders import MANIFEST


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
