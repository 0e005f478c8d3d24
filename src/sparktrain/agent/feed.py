"""Takes the batches Spark hands to a task into spills, and tells the trainer about each block."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.agent.handover import Handover
from sparktrain.data.ahead import read_ahead
from sparktrain.data.arrow import cut_batch, make_block, stored_schema
from sparktrain.data.faults import BadRowError, Place
from sparktrain.data.memory import keeping_memory
from sparktrain.data.spill import SpillError
from sparktrain.data.spill_folders import (
    find_complete,
    make_folder,
    match,
    read_manifest,
    remove_folders,
    write_manifest,
)
from sparktrain.data.tables import TableSpec
from sparktrain.data.trays import BLOCK_BYTES, Trays

#: The column that says which table a row is of, where several share a stage.
TABLE_COLUMN = "sparktrain_table"
#: Columns of the tables themselves in such a stage, one struct each.
STRUCT_COLUMN = "sparktrain_rows_{}"

#: How long to wait for a batch that is on its way when the feed ends early.
JOIN_S = 5.0
#: A frame has a limit, a table has none.
ENTRIES_PER_FRAME = 1000
#: Blocks are cut to this size: a batch of Spark's may be very large.
MAX_BLOCK_BYTES = BLOCK_BYTES


class Feeder:
    """Feeds one trainer in a thread of its own; use as a context manager.

    Args:
        tables: What the stage's rows are of.
        is_mixed: Whether the stage carries several tables as structs.
        partition, attempt: The number of the task, and of the run's attempt.
        roots: Where spills of this run are on this host; each partition uses one of them.
        tell: Sends a frame to the trainer.
        on_done: Called with the rows of each table when all is in, or with what went wrong.
        is_cut: Whether Spark has closed the connection that the batches come by. Arrow cannot
            tell that from their end.
        trays: By which fresh blocks are handed over; None has the trainer read the spill.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        is_mixed: bool,
        partition: int,
        attempt: int,
        roots: Sequence[Path],
        tell: Callable[[dict[str, Any]], None],
        on_done: Callable[[dict[str, int] | str], None],
        is_cut: Callable[[], bool] = lambda: False,
        trays: Trays | None = None,
    ) -> None:
        self._tables = tables
        self._is_mixed = is_mixed
        self._partition = partition
        self._attempt = attempt
        self._roots = roots
        self._tell = tell
        self._on_done = on_done
        self._is_cut = is_cut
        self._trays = trays
        self._folder: Path | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        #: Whether nobody reads Spark's batches now, and whether they came to their end.
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._has_ended = True
        #: Whether the spill stays for a restart.
        self.is_kept = False

    def __enter__(self) -> Feeder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        if not self.is_kept:
            self._remove(self._folder)

    def stop(self) -> None:
        """Ends the feed behind the batch that is on its way: nobody reads any more."""
        self._stopped.set()
        if self._trays is not None:
            self._trays.ask()  # nobody ever will, but nobody shall wait for it either

    def has_rows_left(self) -> bool:
        """Whether Spark has more rows for a feed that is over; waits for a batch on its way."""
        if self._thread is None:  # nothing was read at all
            with suppress(Exception):
                return next(self._batches, None) is not None
            return False
        self._is_idle.wait()
        return not self._has_ended

    def _remove(self, *own: Path | None) -> None:
        for root in self._roots:
            remove_folders(root, self._attempt, *own)

    def find_earlier(self) -> dict[tuple[int, int], Path]:
        """Complete spills of earlier attempts on this host, by attempt and partition."""
        names = [table.name for table in self._tables]
        found: dict[tuple[int, int], Path] = {}
        for root in self._roots:
            found |= find_complete(root, names)
        return found

    def start(
        self,
        batches: Iterable[pa.RecordBatch],
        earlier: Mapping[tuple[int, int], Path],
        everywhere: Sequence[Sequence[Sequence[int]]],
    ) -> bool:
        """Begins to feed; whether it needs no rows of Spark.

        Args:
            batches: Spark's.
            earlier: What find_earlier() found here.
            everywhere: What each worker has found. If all have a partition of one attempt, no
                rows are asked for again: a mixture of attempts could miss rows or have them
                twice.
        """
        self._batches = iter(batches)
        attempts = {attempt for found in everywhere for attempt, _ in found}
        for attempt in sorted(attempts, reverse=True):
            seats = match([[part for one, part in found if one == attempt] for found in everywhere])
            if seats is None or not self._tables:
                continue
            if self._partition < len(seats):
                self._replay(earlier[attempt, seats[self._partition]])
            else:  # an evaluator: it has no rows, and must not clear away those of the others
                self._finish({table.name: 0 for table in self._tables})
            return True
        self._thread = threading.Thread(target=self._work, name="sparktrain-feed", daemon=True)
        self._thread.start()
        return False

    def _replay(self, folder: Path) -> None:
        """Uses the complete spill of an earlier attempt."""
        self._folder = folder
        try:
            entries = read_manifest(folder)
        except (OSError, ValueError) as error:
            self._on_done(f"the spill {folder} of an earlier attempt cannot be read: {error}")
            return
        self._tell({"kind": "spill", "folder": str(folder)})
        for name, found in entries.items():
            for start in range(0, len(found), ENTRIES_PER_FRAME):
                some = [asdict(entry) for entry in found[start : start + ENTRIES_PER_FRAME]]
                self._tell({"kind": "blocks", "table": name, "entries": some})
        self._finish({name: sum(e.rows for e in found) for name, found in entries.items()})

    def _work(self) -> None:
        try:
            with keeping_memory():
                rows = self._feed()
        except (BadRowError, SpillError) as error:
            if not self._stopped.is_set():
                self._on_done(str(error))
        except Exception as error:
            if not self._stopped.is_set() and not self._is_cut():
                self._on_done(f"Spark's rows could not be read: {type(error).__name__}: {error}")
        else:
            if not self._stopped.is_set():
                self._finish(rows)

    def _finish(self, rows: dict[str, int]) -> None:
        # The driver first: when the trainer finds no rows, it must be known whose fault it is.
        self._on_done(rows)
        self._tell({"kind": "fed"})

    def _read(self) -> Iterator[pa.RecordBatch]:
        """Spark's batches; notes when they are over, or nobody wants more."""
        try:
            yield from self._batches
            self._has_ended = True
        finally:
            self._is_idle.set()

    def _feed(self) -> dict[str, int]:
        self._remove()  # what earlier attempts left and cannot be used
        root = self._roots[self._partition % len(self._roots)]
        folder = self._folder = make_folder(root, self._partition, self._attempt)
        schemas = {table.name: stored_schema(table.columns) for table in self._tables}
        rows = {table.name: 0 for table in self._tables}
        with Handover(folder, schemas, self._tell, self._trays) as handover:
            self._tell({"kind": "spill", "folder": str(folder)})
            self._has_ended = False
            self._is_idle.clear()
            # The next batch is on its way from Spark while one is handed over.
            with closing(read_ahead(self._read())) as ahead:
                for batch in ahead:
                    if self._stopped.is_set():
                        break
                    for table, part in self._split(batch):
                        place = Place(table.name, self._partition, rows[table.name])
                        rows[table.name] += part.num_rows
                        handover.put(table.name, make_block(part, table.columns, place))
            if self._is_cut():  # Spark ended the task: there may have been more rows
                self._stopped.set()
            if not self._stopped.is_set():
                handover.finish()
                write_manifest(folder, handover.entries)
        return rows

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[TableSpec, pa.RecordBatch]]:
        """The rows of each table in a batch; they are in the order of the tables."""
        if batch.num_rows == 0:
            return
        if not self._is_mixed:
            table = self._tables[0]
            yield from ((table, part) for part in cut_batch(batch, table.columns, MAX_BLOCK_BYTES))
            return
        numbers = batch.column(TABLE_COLUMN).to_numpy(zero_copy_only=False)
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, stop in itertools.pairwise(edges):
            number = int(numbers[start])
            structs = batch.column(STRUCT_COLUMN.format(number)).slice(start, stop - start)
            names = [field.name for field in structs.type]
            rows = pa.RecordBatch.from_arrays(structs.flatten(), names=names)
            table = self._tables[number]
            yield from ((table, part) for part in cut_batch(rows, table.columns, MAX_BLOCK_BYTES))
