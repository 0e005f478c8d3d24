"""Blocks on their way to the trainer: by hand and by the spill, and whoever waits for whom."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.agent.handover import Handover
from sparktrain.data.arrow import stored_schema
from sparktrain.data.schema import Column
from sparktrain.data.spill import SpillError, SpillWriter
from sparktrain.data.tables import TableSpec
from sparktrain.data.trays import TrayReader, Trays
from sparktrain.trainer.feed import FedTable, Feed

SPEC = TableSpec("t", (Column("n", "long"),))
SCHEMA = stored_schema(SPEC.columns)
ROWS = 500


class Pair:
    """An agent and a trainer that share trays; frames go from one to the other at once."""

    def __init__(self, folder: Path, trays: Trays | None) -> None:
        reader = None
        if trays is not None:
            reader = TrayReader({**trays.describe(), "descriptor": os.dup(trays.descriptor)})
        self.trays = trays
        self.kinds: list[str] = []
        self.feed = Feed([SPEC.to_dict()], (), reader, self._to_agent)
        self.handover = Handover(folder, {"t": SCHEMA}, self._to_trainer, trays)
        self.feed.handle({"kind": "spill", "folder": str(folder)})

    @property
    def table(self) -> FedTable:
        table = self.feed.tables["t"]
        assert isinstance(table, FedTable)
        return table

    def put(self, number: int, rows: int = ROWS) -> None:
        values = pa.array(range(number * ROWS, number * ROWS + rows), pa.int64())
        self.handover.put("t", pa.RecordBatch.from_arrays([values], schema=SCHEMA))

    def _to_agent(self, frame: dict[str, Any]) -> None:
        if self.trays is not None:
            self.trays.free(frame["freed"])
            self.trays.ask()

    def _to_trainer(self, frame: dict[str, Any]) -> None:
        tray = frame.get("tray")
        self.kinds.append(frame["kind"] if tray is None else "handed")
        self.feed.handle(frame)


@pytest.fixture
def trays() -> Iterator[Trays]:
    with Trays(num_trays=4, tray_bytes=16384) as trays:
        yield trays


@pytest.fixture
def pair(tmp_path: Path, trays: Trays) -> Iterator[Pair]:
    pair = Pair(tmp_path, trays)
    with pair.handover:
        yield pair
    pair.feed.close()


def read(table: FedTable, number: int = 0) -> list[int]:
    return [n for block in table.blocks(number, None) for n in block.column("n").to_pylist()]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_blocks_go_by_hand_while_somebody_reads(pair: Pair) -> None:
    blocks = pair.table.blocks(0, None)
    with ThreadPoolExecutor(1) as pool:
        for number in range(40):
            pair.put(number)
            block = pool.submit(next, blocks).result(10)
            assert block.column("n")[0].as_py() == number * ROWS
            del block
    assert set(pair.kinds) == {"handed"}
    pair.handover.finish()
    pair.feed.handle({"kind": "fed"})
    assert list(blocks) == []
    assert read(pair.table, 1) == list(range(40 * ROWS))  # the spill has it all


def test_many_passes_at_once_see_every_row(pair: Pair) -> None:
    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read, pair.table, number) for number in range(3)]
        for number in range(200):
            pair.put(number)
        pair.handover.finish()
        pair.feed.handle({"kind": "fed"})
        for reader in readers:
            assert reader.result(30) == list(range(200 * ROWS))


def test_before_the_first_read_only_the_trays_are_filled(pair: Pair) -> None:
    def put_all() -> None:
        for number in range(10):
            pair.put(number)

    with ThreadPoolExecutor(2) as pool:
        feeder = pool.submit(put_all)
        wait_until(lambda: pair.kinds.count("handed") == 4)
        time.sleep(0.1)
        assert not feeder.done() and pair.kinds.count("handed") == 4
        reader = pool.submit(read, pair.table)
        feeder.result(10)
        pair.handover.finish()
        pair.feed.handle({"kind": "fed"})
        assert reader.result(10) == list(range(10 * ROWS))


def test_the_feed_does_not_wait_for_a_trainer_that_stands_still(pair: Pair) -> None:
    blocks = pair.table.blocks(0, None)
    pair.put(0)
    next(blocks)
    for number in range(1, 50):
        pair.put(number)
    pair.handover.finish()
    assert pair.kinds.count("handed") <= 5
    pair.feed.handle({"kind": "fed"})
    assert read(pair.table, 1) == list(range(50 * ROWS))


def test_nothing_the_trainer_does_to_a_block_gets_into_the_spill(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow hands tensors to numpy functions as arrays that can be written to."""
    real = SpillWriter.write

    def write(self: SpillWriter, *args: Any) -> None:
        time.sleep(0.1)
        real(self, *args)

    monkeypatch.setattr(SpillWriter, "write", write)
    pair.put(0)
    block = next(pair.table.blocks(0, None))
    address = block.column("n").buffers()[1].address
    ctypes.memset(address, 255, 8 * ROWS)
    assert block.column("n")[0].as_py() == -1
    assert next(pair.table.blocks(1, None)).column("n").to_pylist() == list(range(ROWS))


def test_blocks_with_and_without_a_tray_keep_their_order(pair: Pair) -> None:
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read, pair.table)
        expected: list[int] = []
        for number in range(0, 300, 10):
            rows = 4 * ROWS if number % 3 == 0 else ROWS  # more than a tray holds, or not
            pair.put(number, rows)
            expected += range(number * ROWS, number * ROWS + rows)
        pair.handover.finish()
        pair.feed.handle({"kind": "fed"})
        assert reader.result(10) == expected
    assert {"handed", "blocks"} <= set(pair.kinds)


def test_a_block_that_is_larger_than_a_tray_goes_by_the_spill(pair: Pair) -> None:
    pair.put(0, rows=5000)
    assert pair.kinds == ["blocks"]
    assert next(pair.table.blocks(0, None)).num_rows == 5000


def test_without_trays_every_block_goes_by_the_spill(tmp_path: Path) -> None:
    pair = Pair(tmp_path, None)
    with pair.handover:
        for number in range(5):
            pair.put(number)
        pair.handover.finish()
    pair.feed.handle({"kind": "fed"})
    assert pair.kinds == ["blocks"] * 5
    assert read(pair.table) == read(pair.table, 1) == list(range(5 * ROWS))


def test_a_disk_that_fails_meanwhile_is_told_at_the_next_block_or_the_end(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> None:
        raise SpillError("no room at all")

    monkeypatch.setattr(SpillWriter, "write", write)
    pair.put(0)
    with pytest.raises(SpillError, match="no room at all"):
        pair.handover.finish()
    pair.put(1)
    wait_until(lambda: pair.handover._storing[0].done())
    with pytest.raises(SpillError, match="no room at all"):
        pair.put(2)


def test_a_disk_that_fails_is_told_to_a_feed_that_waits_for_a_reader(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fail = threading.Event()

    def write(*_: Any) -> None:
        assert may_fail.wait(10)
        raise SpillError("no room at all")

    def put_all() -> None:
        for number in range(10):
            pair.put(number)

    monkeypatch.setattr(SpillWriter, "write", write)
    with ThreadPoolExecutor(1) as pool:
        feeder = pool.submit(put_all)
        wait_until(lambda: len(pair.handover._storing) == 4)
        time.sleep(0.05)
        may_fail.set()
        with pytest.raises(SpillError, match="no room at all"):
            feeder.result(10)


def test_the_end_leaves_no_thread_and_no_file_open(tmp_path: Path, trays: Trays) -> None:
    def count() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    gc.collect()
    before = count()
    pair = Pair(tmp_path, trays)
    with pair.handover:
        pair.put(0)
    pair.table._reader.close()  # type: ignore[union-attr]
    del pair
    gc.collect()
    assert count() == before
