"""Checkpoints that move with a stream: written when all rows of one of its batches are in them.

The driver asks in two steps: every node finishes what has come to it (flush), then the chief
writes (save). Spark keeps the offsets of the batch after that, so that rows which are in no
checkpoint come again to the next cluster.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sparktrain.trainer.stream import StreamTable


class Saves:
    """What this node does about them.

    Args:
        tell: Sends a frame to the driver.
        wake: Has who waits for rows look whether a save is due.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None], wake: Callable[[], None]) -> None:
        self._tell = tell
        self._wake = wake
        self._lock = threading.Lock()
        self._tables: dict[str, StreamTable] = {}
        #: What a fit that can save does now: "train", "test", or "" for none.
        self._phase = ""
        #: Of a fit: writes a checkpoint between two steps.
        self._save_between_steps: Callable[[], None] | None = None
        #: Of a function that takes rows itself: called between two of them.
        self.save_between_rows: Callable[[], None] | None = None
        #: Feeds to be answered between two rows, by table.
        self._due: dict[str, list[str]] = {}
        self._row_tables: set[str] = set()

    def add(self, name: str, table: StreamTable) -> None:
        self._tables[name] = table
        table.set_phase(self._phase)

    # What a fit does.

    def begin_fit(self, save: Callable[[], None]) -> None:
        self._save_between_steps = save
        self._set_phase("train")

    def test(self, is_testing: bool) -> None:
        """Whether the fit tests now what it has trained."""
        if self._phase:
            self._set_phase("test" if is_testing else "train")

    def end_fit(self) -> None:
        self._save_between_steps = None
        self._set_phase("")

    def _set_phase(self, phase: str) -> None:
        self._phase = phase
        for table in list(self._tables.values()):
            table.set_phase(phase)

    def steps_done(self, count: int) -> None:
        for table in self._tables.values():
            table.steps_done(count)

    # What a function does that takes rows itself.

    @contextlib.contextmanager
    def reading_rows(self, table: str) -> Iterator[None]:
        self._row_tables.add(table)
        try:
            yield
        finally:
            self._row_tables.discard(table)
            self._answer_due(table)

    def is_due(self, table: str) -> bool:
        return bool(self._due.get(table))

    def act(self, table: str) -> None:
        """Between two rows: the function has done with all that it was given."""
        if self.is_due(table) and self.save_between_rows is not None:
            self.save_between_rows()
        self._answer_due(table)

    def _answer_due(self, table: str) -> None:
        with self._lock:
            feeds = self._due.pop(table, [])
        for feed in feeds:
            self._tell({"kind": "flushed", "feed": feed})

    # What the driver says.

    def flush(self, feed: str, table: str) -> None:
        if table in self._row_tables and self.save_between_rows is not None:
            with self._lock:
                self._due.setdefault(table, []).append(feed)
            self._wake()
            return
        found = self._tables.get(table) if self._save_between_steps is not None else None
        self._work(found.flush if found is not None else None, "flushed", feed)

    def save(self, feed: str) -> None:
        save = self._save_between_steps
        self._work(None if save is None else lambda: self._save_paused(save), "saved", feed)

    def _save_paused(self, save: Callable[[], None]) -> None:
        with contextlib.ExitStack() as stack:
            for table in self._tables.values():
                stack.enter_context(table.paused())
            save()

    def _work(self, work: Callable[[], None] | None, kind: str, feed: str) -> None:
        """In a thread: commands of the driver must not wait for a step."""

        def run() -> None:
            if work is not None:
                work()
            self._tell({"kind": kind, "feed": feed})

        threading.Thread(target=run, name="sparktrain-save", daemon=True).start()
