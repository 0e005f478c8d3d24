"""Gets blocks to the trainer: into the spill, and by hand where there is a tray.

A block on a tray is told to the trainer at once and written meanwhile, so that training does
not wait for the disk. One without a tray is told when it is in the file.
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
        writer, entries = self._writers[table], self.entries[table]
        tray = self._take_tray(writer.find_size(block))
        if self._trays is None or tray is None:
            entries.append(writer.append(block))
            self._tell_block(table, None)
            return
        memory = self._trays.view(tray)
        entries.append(writer.place(block, memory))
        self._tell_block(table, tray)
        self._storing.append(self._pool.submit(self._store, table, len(entries) - 1, tray, memory))

    def finish(self) -> None:
        """Waits until all blocks are in the spill; raises SpillError."""
        while self._storing:
            self._storing.popleft().result()

    def _take_tray(self, size: int) -> int | None:
        """A tray of that size. Waits for the disk to free one, but never for the trainer."""
        if self._trays is None or size > self._trays.tray_bytes:
            return None
        while (tray := self._trays.take()) is None:
            if not self._trays.is_asked():
                # The trainer is still loading TensorFlow, which needs the processor more.
                self._trays.wait_for_reader()
            elif self._storing:
                self._storing.popleft().result()
            else:
                return None
        return tray

    def _store(self, table: str, number: int, tray: int, memory: memoryview) -> None:
        if self._trays is None:
            return
        try:
            self._writers[table].write(self.entries[table][number], memory)
        except SpillError:
            self._trays.ask()  # whoever waits for a reader shall hear of this instead
            raise
        self._trays.free([tray])
        self._tell({"kind": "stored", "table": table, "block": number})

    def _tell_block(self, table: str, tray: int | None) -> None:
        entry = asdict(self.entries[table][-1])
        self._tell({"kind": "blocks", "table": table, "entries": [entry], "tray": tray})
