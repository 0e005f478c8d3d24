"""A table of a cluster as the function sees it: one stream of batches over all feeds.

Batches go over the borders of partitions and feeds; rows that do not fill one wait for the next
feed, or for the end. Two things need care:

1. Keras looks at a batch to build the model, and throws it away. What such a look has taken is
   given out again by the next iteration.
2. Workers that train together take every step together, but rows come to them as they come. A
   worker without rows would hold up the others, whose feeds would never end. So workers tell
   the driver how many steps they have given out, and one that waits is told to catch up with
   steps that have no rows.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparktrain.data.arrow import stored_schema
from sparktrain.data.batches import join
from sparktrain.data.schema import Column
from sparktrain.trainer.inbox import Inbox
from sparktrain.wire.pace import STEP_BITS

#: How often a worker tells where it is, if that has changed.
PACE_S = 0.05
#: What Keras calls the looks.
_LOOKS = ("_symbolic_build", "_maybe_symbolic_build")


class Pace:
    """Where this worker is among its steps, told to the driver while it changes.

    Args:
        tell: Sends a frame to the driver.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._position = 0
        self._target = 0
        self._is_waiting = False
        self._told: tuple[int, bool] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="sparktrain-pace", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """A new iteration: all workers begin it, one after the other."""
        self._position = ((self._position >> STEP_BITS) + 1) << STEP_BITS

    def add(self, steps: int) -> None:
        self._position += steps

    def wait(self, is_waiting: bool) -> None:
        self._is_waiting = is_waiting

    def catch(self, target: int) -> None:
        self._target = max(self._target, target)

    @property
    def is_behind(self) -> bool:
        is_same = self._position >> STEP_BITS == self._target >> STEP_BITS
        return is_same and self._position < self._target

    def _work(self) -> None:
        pause = threading.Event()
        while True:
            now = (self._position, self._is_waiting)
            if now != self._told:
                self._told = now
                self._tell({"kind": "pace", "steps": now[0], "is_waiting": now[1]})
            pause.wait(PACE_S)


class StreamTable:
    """One table of feeds, as batches.

    Args:
        pace: Set if workers take their steps together.
        parts: Into how many steps a full batch is cut, by the strategy.
    """

    def __init__(
        self, inbox: Inbox, name: str, columns: Sequence[Column], pace: Pace | None, parts: int
    ) -> None:
        self.columns = columns
        self._inbox = inbox
        self._name = name
        self._pace = pace
        self._parts = parts
        self._lock = threading.Lock()
        #: Counts iterations: only the newest may take rows.
        self._iteration = 0
        #: Rows that were taken and are not in a batch yet, or were only looked at.
        self._held: list[pa.RecordBatch] = []
        self._looked_at: list[pa.RecordBatch] = []
        #: Whether what is read now will be thrown away, and come again.
        self.is_look = False

    def batches(self, size: int, drop_remainder: bool) -> Iterator[pa.RecordBatch]:
        """The stream from where it is; batches of exactly this many rows, but for the last."""
        is_look = self.is_look = is_keras_looking()
        with self._lock:
            self._iteration += 1
            iteration = self._iteration
            self._held = [*self._looked_at, *self._held]
            self._looked_at = []
        if self._pace is not None:
            self._pace.begin()
        while True:
            batch, has_ended = self._next(iteration, size)
            if batch is None or (has_ended and drop_remainder and batch.num_rows < size):
                return
            if is_look:
                self._looked_at.append(batch)
            if self._pace is not None:
                self._pace.add(count_steps(batch.num_rows, self._parts))
            yield batch

    def _next(self, iteration: int, size: int) -> tuple[pa.RecordBatch | None, bool]:
        """The next batch, and whether it is the last; None at the end."""

        def is_old() -> bool:
            return iteration != self._iteration

        def must_move() -> bool:
            return is_old() or (self._pace is not None and self._pace.is_behind)

        while True:
            with self._lock:
                if is_old() or self._inbox.is_closed:
                    return None, True
                if (num_held := sum(block.num_rows for block in self._held)) >= size:
                    return self._cut(size), False
            if self._pace is not None:
                self._pace.wait(True)
            item = self._inbox.take(self._name, must_move)
            if self._pace is not None:
                self._pace.wait(False)
            with self._lock:
                if item is not None and item.block is not None:
                    if item.num_rows:
                        self._held.append(item.block)
                    continue
                if is_old():
                    continue
                if self._inbox.has_ended(self._name):
                    return (self._cut(num_held) if num_held else None), True
                if self._pace is not None and self._pace.is_behind:
                    return self._cut(num_held), False

    def _cut(self, size: int) -> pa.RecordBatch:
        """Takes so many rows of those that are held."""
        pieces: list[pa.RecordBatch] = []
        missing = size
        while missing:
            block = self._held.pop(0)
            piece = block.slice(0, missing)
            pieces.append(piece)
            missing -= piece.num_rows
            if piece.num_rows < block.num_rows:
                self._held.insert(0, block.slice(piece.num_rows))
        if not pieces:
            return pa.RecordBatch.from_pylist([], stored_schema(self.columns))
        return join(pieces)


def count_steps(rows: int, parts: int) -> int:
    """How many steps the strategy makes of a batch: see strategy.split_batches."""
    size = max(-(-rows // parts), 1)
    return max(-(-rows // size), 1)


def is_keras_looking() -> bool:
    """Whether some thread is about to build a model from a batch it will throw away."""
    for frame in sys._current_frames().values():
        current: Any = frame
        while current is not None:
            if current.f_code.co_name in _LOOKS:
                return True
            current = current.f_back
    return False
