"""The tables of this node as they arrive: filled by the link's thread, read by datasets.

A dataset may be iterated at any time and any number of times, also while rows still arrive:
each pass begins at the first row, and waits at the end of what has come so far.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparktrain.data.files import ReadOptions
from sparktrain.data.order import file_order
from sparktrain.data.schema import Column
from sparktrain.data.shards import Shard
from sparktrain.data.shuffle import block_order
from sparktrain.data.spill import PAGE_BYTES, Entry, SpillError, SpillReader, read_block
from sparktrain.data.tables import TableSpec
from sparktrain.data.trays import TrayReader
from sparktrain.errors import ConfigError


class Feed:
    """All tables of a node; frames of the agent go to handle().

    Args:
        fed, files: What Spark feeds, and what is read from files.
        trays: On which fresh blocks come; None if all are in the spill only.
        tell: Sends a frame to the agent.
    """

    def __init__(
        self,
        fed: Sequence[Mapping[str, Any]],
        files: Sequence[Mapping[str, Any]] = (),
        trays: TrayReader | None = None,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self._trays = trays
        self._tell = tell
        self._has_asked = False
        specs = map(TableSpec.from_dict, fed)
        self._fed = {spec.name: FedTable(spec, trays, self._ask) for spec in specs}
        self._files = {values["name"]: FileTable.from_dict(values) for values in files}
        self.tables: dict[str, FedTable | FileTable] = {**self._fed, **self._files}

    def handle(self, frame: Mapping[str, Any]) -> None:
        """Takes in a frame. What goes wrong is told to whoever reads: nobody waits for ever."""
        try:
            self._handle(frame)
        except Exception as error:
            for table in self._fed.values():
                table.fail(f"the feed cannot be read: {type(error).__name__}: {error}")

    def _handle(self, frame: Mapping[str, Any]) -> None:
        kind = frame.get("kind")
        if kind == "spill":
            for name, table in self._fed.items():
                table.open(Path(frame["folder"]) / f"{name}.arrow")
        elif kind == "blocks":
            entries = [Entry(**entry) for entry in frame["entries"]]
            self._fed[frame["table"]].add(entries, frame.get("tray"))
        elif kind == "fed":
            for table in self._fed.values():
                table.finish()

    def _ask(self) -> None:
        """Tells the agent that somebody reads, and returns what trays nobody looks at any more."""
        freed = self._trays.take_freed() if self._trays is not None else []
        if freed or not self._has_asked:
            self._has_asked = True
            self._tell({"kind": "ask", "freed": freed})

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Around the function: an error of TensorFlow about the data gets its real words."""
        try:
            yield
        except Exception as error:
            found = self._explain(error)
            if found is None:
                raise
            raise found from error

    def _explain(self, error: Exception) -> Exception | None:
        if not self.tables or "tensorflow" not in sys.modules:
            return None
        from sparktrain.trainer.record_errors import explain, find_ours

        found: Exception | None = find_ours(error)
        for table in self._files.values():
            if found is None and table.options.format == "tfrecord":
                found = explain(error, table.shards, table.options)
        return found

    def find(self, name: str, rank: int | None) -> FedTable | FileTable:
        """A table by its name; raises ConfigError for one that is not there."""
        if rank is None and name in self._fed:
            raise ConfigError(
                problem=f"ctx.dataset({name!r}) was called on an evaluator, which is not fed.",
                advice="Rows of a DataFrame go to the workers; let the evaluator read files.",
            )
        if name not in self.tables:
            known = ", ".join(map(repr, self.tables)) or "none"
            raise ConfigError(
                problem=f"ctx.dataset({name!r}): run() got no data of that name.",
                advice=f"There is: {known}. Give it as run(data={{{name!r}: df}}).",
            )
        return self.tables[name]

    @property
    def depth(self) -> int:
        """Blocks that are here and have not been read yet."""
        return sum(table.queue_depth for table in self._fed.values())

    def close(self) -> None:
        """Ends every pass: a reader that still waits for rows would keep the process alive."""
        for table in self._fed.values():
            table.close()


@dataclass(frozen=True)
class FileTable:
    """One table that this node reads from files."""

    columns: Sequence[Column]
    options: ReadOptions
    shards: tuple[Shard, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FileTable:
        return cls(
            columns=[Column.from_dict(column) for column in values["columns"]],
            options=ReadOptions.from_dict(values["options"]),
            shards=tuple(Shard.from_dict(shard) for shard in values["shards"]),
        )

    def order(self, pass_number: int, seed: int | None) -> list[int]:
        """In which order a pass reads the files."""
        return file_order(len(self.shards), seed or 0, pass_number, seed is not None)

    def blocks(
        self, pass_number: int, seed: int | None, is_again: bool = False
    ) -> Iterator[pa.RecordBatch]:
        from sparktrain.data.csv_file import Tally
        from sparktrain.data.tabular import read_blocks

        order = self.order(pass_number, seed)
        tally = Tally()
        yield from read_blocks(self.shards, self.options, self.columns, order, tally=tally)
        if tally.num_skipped:
            print(f"sparktrain: {tally.num_skipped} bad rows of the files were skipped")


class FedTable:
    """One table that Spark feeds."""

    def __init__(
        self,
        spec: TableSpec,
        trays: TrayReader | None = None,
        ask: Callable[[], None] = lambda: None,
    ) -> None:
        self.columns: Sequence[Column] = spec.columns
        self._trays = trays
        self._ask = ask
        self._changed = threading.Condition()
        self._entries: list[Entry] = []
        #: Block -> the tray it lies on, until somebody takes it.
        self._handed: dict[int, int] = {}
        self._reader: SpillReader | None = None
        self._is_complete = False
        self._fault: str | None = None
        self._is_closed = False
        self._num_read = 0

    @property
    def queue_depth(self) -> int:
        """Blocks that have come and that the newest pass has not read."""
        return max(len(self._entries) - self._num_read, 0)

    def open(self, path: Path) -> None:
        with self._changed:
            self._reader = SpillReader(path)
            self._changed.notify_all()

    def add(self, entries: list[Entry], tray: int | None = None) -> None:
        with self._changed:
            if tray is not None:
                self._handed[len(self._entries)] = tray
            self._entries += entries
            self._changed.notify_all()

    def fail(self, what: str) -> None:
        with self._changed:
            self._fault = what
            self._changed.notify_all()

    def finish(self) -> None:
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def blocks(
        self, pass_number: int, seed: int | None, is_again: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """One pass; with a seed the blocks are mixed, if this is not the first one.

        Args:
            is_again: Whether the same dataset has read all rows before. Not whether they are all
                here, nor whether another dataset has read them: the order would be a matter of
                timing, or of what was trained before.
        """
        if is_again and seed is not None:
            for number, position in enumerate(block_order(len(self._entries), seed, pass_number)):
                if self._is_closed:
                    return
                self._num_read = number + 1
                yield self._read(position)
            return
        number = 0
        while self._wait_for(number):
            self._num_read = number + 1
            yield self._read(number)
            number += 1

    def blocks_here(self) -> Iterator[pa.RecordBatch]:
        """What has come so far, to look at: it waits for nothing, and is no pass."""
        with self._changed:
            entries, reader = list(self._entries), self._reader
        for entry in entries if reader is not None else ():
            if reader is not None:
                yield reader.read(entry)

    def _wait_for(self, number: int) -> bool:
        """Whether there is a block of that number, now or later."""
        self._ask()
        with self._changed:
            while not (number < len(self._entries) or self._is_complete or self._is_closed):
                self._check()
                self._changed.wait()
            self._check()
            return number < len(self._entries) and not self._is_closed

    def _check(self) -> None:
        if self._fault is not None:
            raise SpillError(self._fault)

    def _read(self, number: int) -> pa.RecordBatch:
        if self._reader is None:
            raise RuntimeError("a block is known before its file")
        entry = self._entries[number]
        with self._changed:
            tray = self._handed.pop(number, None)  # the first to come takes it
        if tray is None or self._trays is None:
            return self._reader.read(entry)
        return read_block(self._trays.lend(tray, entry.offset % PAGE_BYTES, entry.size))
