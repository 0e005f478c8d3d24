"""Gets blocks to the trainer: into the spill, and by hand where there is a tray.

A block is told to the trainer when it is in the file, so that nothing the trainer does with a
tray can get there. The next ones are put together meanwhile, on trays of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparktrain.data.spill import Entry, SpillError, SpillWriter
from sparktrain.data.trays import Trays


class Handover:
    """The way of all blocks of a node; use as a context manager.

    Args:
        folder: Of the spill.
        schemas: Of the blocks, by table.
        tell: Sends a frame to the trainer.
        trays: None has the trainer read every block from the spill.
    """

    def __init__(
        self,
        folder: Path,
        schemas: Mapping[str, pa.Schema],
        tell: Callable[[dict[str, Any]], None],
        trays: Trays | None,
    ) -> None:
        self._writers = {
            name: SpillWriter(folder / f"{name}.arrow", schema) for name, schema in schemas.items()
        }
        self._tell = tell
        self._trays = trays
        #: One thread: a disk is not faster with several, and a tray is its own memory.
        self._pool = ThreadPoolExecutor(1, "sparktrain-spill")
        self._storing: deque[Future[None]] = deque()
        #: Where the blocks of each table are.
        self.entries: dict[str, list[Entry]] = {name: [] for name in schemas}

    def __enter__(self) -> Handover:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for writer in self._writers.values():
            writer.close()

    def put(self, table: str, block: pa.RecordBatch) -> None:
        """Hands over a block; raises SpillError for this or an earlier one."""
        while self._storing and self._storing[0].done():
            self._storing.popleft().result()
        writer = self._writers[table]
        tray = self._take_tray(writer.find_size(block))
        if self._trays is None or tray is None:
            self.finish()  # blocks are told in their order
            self._tell_block(table, writer.append(block), None)
            return
        memory = self._trays.view(tray)
        entry = writer.place(block, memory)
        self._storing.append(self._pool.submit(self._store, table, entry, tray, memory))

    def finish(self) -> None:
        """Waits until all blocks are in the spill and told; raises SpillError."""
        while self._storing:
            self._storing.popleft().result()

    def _take_tray(self, size: int) -> int | None:
        """A tray of that size, if the trainer has left one. Waits for its first read only."""
        if self._trays is None or size > self._trays.tray_bytes:
            return None
        if (tray := self._trays.take()) is None and not self._trays.is_asked():
            # The trainer is still loading TensorFlow, which needs the processor more.
            self._trays.wait_for_reader()
            tray = self._trays.take()
        return tray

    def _store(self, table: str, entry: Entry, tray: int, memory: memoryview) -> None:
        try:
            self._writers[table].write(entry, memory)
        except SpillError:
            if self._trays is not None:
                self._trays.ask()  # whoever waits for a reader shall hear of this instead
            raise
        self._tell_block(table, entry, tray)

    def _tell_block(self, table: str, entry: Entry, tray: int | None) -> None:
        self.entries[table].append(entry)
        self._tell({"kind": "blocks", "table": table, "entries": [asdict(entry)], "tray": tray})
