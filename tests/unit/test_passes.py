"""The order of passes: that of a dataset alone, whatever others have read of its table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.data.arrow import stored_schema
from sparktrain.data.schema import Column
from sparktrain.data.shuffle import block_order
from sparktrain.data.spill import SpillWriter
from sparktrain.data.tables import TableSpec
from sparktrain.trainer.dataset import make_choice, make_dataset
from sparktrain.trainer.feed import FedTable, Feed
from sparktrain.trainer.meter import FeedMeter

SPEC = TableSpec("t", (Column("n", "long"),))
BLOCKS, ROWS = 6, 10


class Fed:
    """A table of six blocks that come one by one, or all before anybody reads."""

    def __init__(self, folder: Path) -> None:
        self._feed = Feed([SPEC.to_dict()])
        self._schema = stored_schema(SPEC.columns)
        self._writer = SpillWriter(folder / "t.arrow", self._schema)
        self._feed.handle({"kind": "spill", "folder": str(folder)})
        self._num_rows = 0

    @property
    def table(self) -> FedTable:
        return self._feed.tables["t"]  # type: ignore[return-value]

    def add(self, count: int) -> None:
        for _ in range(count):
            numbers = pa.array(range(self._num_rows, self._num_rows + ROWS), pa.int64())
            block = pa.RecordBatch.from_arrays([numbers], schema=self._schema)
            entries = [asdict(self._writer.append(block))]
            self._feed.handle({"kind": "blocks", "table": "t", "entries": entries})
            self._num_rows += ROWS

    def finish(self) -> None:
        self._feed.handle({"kind": "fed"})

    def close(self) -> None:
        self._feed.close()
        self._writer.close()


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Fed]:
    fed = Fed(tmp_path)
    yield fed
    fed.close()


@pytest.fixture
def full(fed: Fed) -> FedTable:
    fed.add(BLOCKS)
    fed.finish()
    return fed.table


def make(table: FedTable, seed: int = 0, num_looks: int = 0, window: int = 1) -> Any:
    """A dataset; with a window of one row its order is that of the blocks."""
    choice = make_choice(
        "t",
        table.columns,
        batch_size=ROWS,
        features=["n"],
        label=None,
        weight=None,
        shuffle=window,
        seed=seed,
        drop_remainder=False,
    )
    return make_dataset(table, choice, FeedMeter(), num_looks)


def read(dataset: Any) -> list[int]:
    return [int(n) for batch in dataset for n in batch.numpy()]


def find_blocks(dataset: Any) -> list[int]:
    """In which order a pass has the blocks: by where most of a batch comes from."""
    return [int(sorted(batch.numpy())[ROWS // 2]) // ROWS for batch in dataset]


IN_ORDER = list(range(BLOCKS))


def test_a_dataset_does_not_depend_on_who_has_read_its_table(full: FedTable) -> None:
    first = make(full, seed=3, window=25)
    passes = [read(first) for _ in range(3)]
    assert len({tuple(one) for one in passes}) == 3
    assert all(sorted(one) == list(range(BLOCKS * ROWS)) for one in passes)
    for _ in range(2):
        again = make(full, seed=3, window=25)
        assert [read(again) for _ in range(3)] == passes


def test_the_first_pass_goes_in_order_and_later_ones_mix(full: FedTable) -> None:
    for _ in range(2):
        dataset = make(full, seed=7)
        assert find_blocks(dataset) == IN_ORDER
        for number in (1, 2):
            assert find_blocks(dataset) == block_order(BLOCKS, 7, number) != IN_ORDER


def test_rows_that_are_fed_and_rows_of_the_spill_come_in_one_order(fed: Fed) -> None:
    fed.add(3)
    early = make(fed.table, seed=2, window=15)
    batches = iter(early)
    found = [int(n) for n in next(batches).numpy()]
    fed.add(BLOCKS - 3)
    fed.finish()
    found += [int(n) for batch in batches for n in batch.numpy()]
    late = make(fed.table, seed=2, window=15)
    assert read(late) == found and read(late) == read(early)


def test_looks_are_passes_but_not_complete_ones(full: FedTable) -> None:
    """Also one that happened to be read to its end."""
    for is_left_early in (True, False):
        dataset = make(full, seed=7, num_looks=1)
        if is_left_early:
            next(iter(dataset))
        else:
            read(dataset)
        assert find_blocks(dataset) == IN_ORDER
        assert find_blocks(dataset) == block_order(BLOCKS, 7, 2)
