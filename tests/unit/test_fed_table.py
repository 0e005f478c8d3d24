"""The trainer's tables: passes while rows arrive, readers that wait, the order of blocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from sparktrain.data.arrow import stored_schema
from sparktrain.data.schema import Column
from sparktrain.data.shuffle import block_order
from sparktrain.data.spill import SpillError, SpillWriter
from sparktrain.data.tables import TableSpec
from sparktrain.errors import ConfigError
from sparktrain.trainer.feed import FedTable, Feed

SPEC = TableSpec("t", (Column("n", "long"),))
EMPTY = TableSpec("u", (Column("n", "long"),))


class Spill:
    """The agent's end: writes blocks of numbered rows and tells the feed."""

    def __init__(self, folder: Path) -> None:
        self.feed = Feed([SPEC.to_dict(), EMPTY.to_dict()])
        self._folder = folder
        self._schema = stored_schema(SPEC.columns)
        self._writers = [SpillWriter(folder / f"{name}.arrow", self._schema) for name in "tu"]
        self._next = 0

    @property
    def table(self) -> FedTable:
        return self.feed.tables["t"]

    def open(self) -> None:
        self.feed.handle({"kind": "spill", "folder": str(self._folder)})

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            block = pa.RecordBatch.from_arrays([pa.array([self._next])], schema=self._schema)
            entries = [asdict(self._writers[0].append(block))]
            self.feed.handle({"kind": "blocks", "table": "t", "entries": entries})
            self._next += 1

    def finish(self) -> None:
        self.feed.handle({"kind": "fed"})

    def close(self) -> None:
        self.feed.close()
        for writer in self._writers:
            writer.close()


@pytest.fixture
def spill(tmp_path: Path) -> Iterator[Spill]:
    spill = Spill(tmp_path)
    yield spill
    spill.close()


@pytest.fixture
def full(spill: Spill) -> FedTable:
    """A table of 20 blocks that is complete."""
    spill.open()
    spill.add(20)
    spill.finish()
    return spill.table


def read(
    table: FedTable,
    pass_number: int = 0,
    seed: int | None = None,
    seen: list[int] | None = None,
    is_again: bool = False,
) -> list[int]:
    """One pass, into a list that others may look at meanwhile."""
    seen = [] if seen is None else seen
    for block in table.blocks(pass_number, seed, is_again):
        seen += block.column("n").to_pylist()
    return seen


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_every_pass_begins_at_the_first_row_while_rows_arrive(spill: Spill) -> None:
    with ThreadPoolExecutor(3) as pool:
        early = pool.submit(read, spill.table)  # before there is even a file
        time.sleep(0.05)
        spill.open()
        spill.add(5)
        middle = pool.submit(read, spill.table, 1)
        time.sleep(0.05)
        spill.add(5)
        late = pool.submit(read, spill.table, 2)
        time.sleep(0.05)
        assert not any(one.done() for one in (early, middle, late))
        spill.finish()
        assert [one.result(10) for one in (early, middle, late)] == [list(range(10))] * 3
    assert read(spill.table) == list(range(10))


def test_a_pass_gives_what_is_there_and_then_waits(spill: Spill) -> None:
    spill.open()
    spill.add(2)
    blocks = spill.table.blocks(0, None)
    assert [next(blocks).column("n").to_pylist() for _ in range(2)] == [[0], [1]]
    waiting = threading.Thread(target=lambda: next(blocks), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    spill.add()
    waiting.join(10)
    assert not waiting.is_alive()


def test_many_readers_of_a_table_that_grows_quickly_see_every_row_once(spill: Spill) -> None:
    spill.open()
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, spill.table, number) for number in range(4)]
        for _ in range(500):
            spill.add()
        spill.finish()
        for one in readers:
            assert one.result(20) == list(range(500))


@pytest.mark.parametrize("is_open", [True, False])
def test_readers_that_wait_end_when_the_feed_closes(spill: Spill, is_open: bool) -> None:
    if is_open:
        spill.open()
        spill.add(3)
    with ThreadPoolExecutor(2) as pool:
        seen: list[list[int]] = [[], []]
        readers = [pool.submit(read, spill.table, number, 5, seen[number]) for number in range(2)]
        wait_until(lambda: [len(one) for one in seen] == ([3, 3] if is_open else [0, 0]))
        time.sleep(0.1)
        assert not any(one.done() for one in readers)
        spill.feed.close()
        for one in readers:
            assert one.result(10) == (list(range(3)) if is_open else [])
    assert read(spill.table) == []  # no pass begins behind the end


@pytest.mark.parametrize("seed", [None, 5])
def test_a_pass_ends_at_its_next_block_when_the_feed_closes(
    full: FedTable, spill: Spill, seed: int | None
) -> None:
    read(full)
    blocks = full.blocks(1, seed, True)
    next(blocks)
    spill.feed.close()
    assert list(blocks) == []


def test_a_table_without_rows_ends_at_once(spill: Spill) -> None:
    spill.open()
    spill.add()
    spill.finish()
    for number in range(3):
        assert read(spill.feed.tables["u"], number, seed=1) == []


def test_blocks_are_mixed_for_who_has_read_them_all(full: FedTable) -> None:
    assert read(full, 0, seed=5) == list(range(20))
    assert read(full, 1, seed=5, is_again=True) == block_order(20, 5, 1)
    assert read(full, 2, seed=5, is_again=True) == block_order(20, 5, 2)
    assert read(full, 2, seed=6, is_again=True) == block_order(20, 6, 2)
    assert read(full, 3, is_again=True) == list(range(20))
    assert read(full, 1, seed=5) == list(range(20))  # others begin in order


@pytest.mark.parametrize("then", ["blocks", "end"])
def test_what_went_wrong_is_not_hidden_by_what_came_then(spill: Spill, then: str) -> None:
    spill.feed.handle({"kind": "spill", "folder": "/no/such/folder"})
    if then == "blocks":
        spill.add(1)
    else:
        spill.finish()
    with pytest.raises(SpillError, match="/no/such/folder"):
        read(spill.table)


def test_the_queue_is_what_the_newest_pass_has_not_read(spill: Spill) -> None:
    spill.open()
    assert spill.feed.depth == 0
    spill.add(4)
    assert spill.feed.depth == 4
    blocks = spill.table.blocks(0, None)
    next(blocks)
    assert (spill.table.queue_depth, spill.feed.depth) == (3, 3)
    spill.add(2)
    assert spill.feed.depth == 5
    spill.finish()
    assert len(list(blocks)) == 5 and spill.feed.depth == 0


def test_frames_of_other_kinds_change_nothing(spill: Spill) -> None:
    spill.feed.handle({"kind": "later"})
    spill.feed.handle({})
    assert spill.feed.depth == 0


def test_a_block_before_its_file_is_an_error(spill: Spill) -> None:
    spill.add()
    with pytest.raises(RuntimeError, match="before its file"):
        next(spill.table.blocks(0, None))


@pytest.mark.parametrize(
    ("ask", "parts"),
    [
        (lambda feed: feed.find("no", 0), ["'no'", "'t', 'u'", "run(data={'no': df})"]),
        (lambda feed: feed.find("t", None), ["'t'", "evaluator"]),
        (lambda feed: Feed([]).find("t", 0), ["'t'", "There is: none"]),
    ],
)
def test_a_table_that_is_not_fed_is_refused(
    spill: Spill, ask: Callable[[Feed], FedTable], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(spill.feed)
    for part in parts:
        assert part in str(caught.value)
    assert spill.feed.find("t", 0) is spill.table


def test_a_feed_that_cannot_be_opened_is_told_to_readers(tmp_path: Path) -> None:
    feed = Feed([SPEC.to_dict()])
    feed.handle({"kind": "spill", "folder": str(tmp_path / "gone")})
    with pytest.raises(SpillError, match="FileNotFoundError"):
        list(feed.tables["t"].blocks(0, None))
