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

from sparktrain.trainer.inbox import Inbox
from sparktrain.trainer.stream import StreamTable


class Saves:
    """What this node does about them.

    Args:
        tell: Sends a frame to the driver.
        inbox: Where the rows come from.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None], inbox: Inbox) -> None:
        self._tell = tell
        self._inbox = inbox
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._tables: dict[str, StreamTable] = {}
        #: What a fit that can save does now: "train", "test", or "" for none.
        self._phase = ""
        #: Whether a fit that can save has begun, or will.
        self._has_fits = False
        #: Of a fit: writes a checkpoint between two steps.
        self._save_between_steps: Callable[[], None] | None = None
        #: Of a function that takes rows itself: called between two of them.
        self.save_between_rows: Callable[[], None] | None = None
        #: Feeds to be answered between two rows, by table.
        self._due: dict[str, list[str]] = {}
        self._row_tables: set[str] = set()
        self._error: BaseException | None = None

    def add(self, name: str, table: StreamTable) -> None:
        self._tables[name] = table
        table.set_phase(self._phase)

    def check(self) -> None:
        """Raises the error of a checkpoint that could not be written."""
        if self._error is not None:
            raise self._error

    # What a fit does.

    def expect_fit(self) -> None:
        """A fit will come that can save: what has come waits for its steps."""
        self._has_fits = True

    def begin_fit(self, save: Callable[[], None] | None) -> None:
        """Args:
        save: Writes a checkpoint; None if this fit cannot be interrupted for one.
        """
        self._has_fits = save is not None
        self._save_between_steps = save
        self._set_phase("" if save is None else "train")

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
        for table in list(self._tables.values()):
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
            self._inbox.wake()
            return
        found = self._tables.get(table) if self._has_fits else None
        self._work(found.flush if found is not None else lambda: True, "flushed", feed)

    def save(self, feed: str) -> None:
        """Where no fit runs, the last one has saved all its rows at its end."""
        self._work(self._save_paused, "saved", feed)

    def _save_paused(self) -> bool:
        save = self._save_between_steps
        if save is None:
            return True
        with self._saving, contextlib.ExitStack() as stack:
            for table in list(self._tables.values()):
                stack.enter_context(table.paused())
            save()
        return True

    def _work(self, work: Callable[[], bool], kind: str, feed: str) -> None:
        """In a thread: commands of the driver must not wait for a step."""

        def run() -> None:
            try:
                is_done = work()
            except BaseException as error:
                # The fit waits for rows: it ends without them, and the error is the function's.
                self._error = error
                self._inbox.fail()
                return
            if is_done:
                self._tell({"kind": kind, "feed": feed})

        threading.Thread(target=run, name="sparktrain-save", daemon=True).start()
