"""A feeder with a trainer at its other end, and rows for it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.agent.feed import STRUCT_COLUMN, TABLE_COLUMN, Feeder
from sparktrain.data.schema import Column
from sparktrain.data.tables import TableSpec
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
