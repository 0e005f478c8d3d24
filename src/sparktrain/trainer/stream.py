"""A table of a cluster as the function sees it: one stream of batches over all feeds.

Batches go over the borders of partitions and feeds; rows that do not fill one wait for the next
feed, for a flush, or for the end. Three things need care:

1. Keras looks at a batch to build the model, and throws it away. What such a look has taken is
   given out again by the next iteration; so are batches of which fit told that it did not get
   to them, because they waited in a buffer of TensorFlow's when an iteration ended.
2. Workers that train together take every step together, but rows come to them as they come. A
   worker without rows would hold up the others, whose feeds would never end. So workers tell
   the driver how many steps they have given out, and one that waits is told to catch up with
   steps that have no rows.
3. A checkpoint that covers certain rows is written when all of them were in a step, and no
   other step runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparktrain.data.arrow import stored_schema
from sparktrain.data.batches import join
from sparktrain.data.schema import Column
from sparktrain.data.shuffle import WindowMixer
from sparktrain.trainer.inbox import Inbox
from sparktrain.trainer.pace import Pace

#: What Keras calls the looks.
_LOOKS = ("_symbolic_build", "_maybe_symbolic_build")
#: How often who waits for steps looks whether the stream is over.
TICK_S = 0.2


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
        self.pace = pace
        self._inbox = inbox
        self._name = name
        self._parts = parts
        self._changed = threading.Condition()
        #: Counts iterations: only the newest may take rows.
        self._iteration = 0
        #: Rows that were taken and are not in a batch yet, or were only looked at.
        self._held: list[pa.RecordBatch] = []
        self._num_held = 0
        self._looked_at: list[pa.RecordBatch] = []
        #: Mixes rows before they are held.
        self._mixer: WindowMixer | None = None
        #: Batches given out, as far as their steps are not done; kept if steps are told.
        self._out: deque[_Given] = deque()
        #: What the fit that reads does now, and whether it tells the steps of this table: those
        #: of the table it trains on, not those of one it tests on.
        self._phase = ""
        self._is_told: bool | None = None
        #: Rows that came in, that were in a step that is done, that are in no batch yet, and that
        #: a flush wants done. Changed under the lock, but read without it.
        self._rows_in = 0
        self._rows_done = 0
        self._rows_pending = 0
        self._rows_wanted = 0
        self._is_paused = False
        #: Whether an older iteration has left rows for the one that reads now.
        self._is_stirred = False
        #: Whether what is read now will be thrown away, and come again.
        self.is_look = False

    # What tf.data reads.

    def batches(
        self, size: int, drop_remainder: bool, window: int = 0, seed: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """The stream from where it is; batches of exactly this many rows, but for the last."""
        is_look = self.is_look = is_keras_looking()
        with self._changed:
            self._iteration += 1
            iteration = self._iteration
            again = [*(given.batch for given in self._out), *self._looked_at]
            self._out.clear()
            self._looked_at = []
            self._held = [*again, *self._held]
            num_again = sum(batch.num_rows for batch in again)
            self._num_held += num_again
            self._rows_pending += num_again
            if window and self._mixer is None:
                self._mixer = WindowMixer(window, seed)
            if self.pace is not None:
                self.pace.begin()
        self._inbox.wake()  # one of an older iteration may be waiting
        while True:
            batch = self._next(iteration, size, drop_remainder, is_look)
            if batch is None:
                return
            yield batch

    def _next(
        self, iteration: int, size: int, drop_remainder: bool, is_look: bool
    ) -> pa.RecordBatch | None:
        """The next batch; None at the end."""

        def is_old() -> bool:
            return iteration != self._iteration

        def must_move() -> bool:
            is_behind = self.pace is not None and self.pace.is_behind
            return is_behind or self._must_flush() or self._is_stirred

        while True:
            with self._changed:
                while self._is_paused and not is_old() and not self._inbox.is_closed:
                    self._changed.wait(TICK_S)
                if is_old() or self._inbox.is_closed:
                    return None
                self._is_stirred = False
                if self._num_held >= size:
                    return self._give(size, is_look)
            if self.pace is not None:
                self.pace.wait(True)
            item = self._inbox.take(self._name, must_move, is_gone=is_old)
            with self._changed:
                if self.pace is not None and not is_old():
                    self.pace.wait(False)
                if item is not None and item.block is not None:
                    self._hold(item.block)
                    if is_old():  # its rows are the next one's, which may be waiting
                        self._is_stirred = True
                        self._inbox.wake()
                    continue
                if is_old() or self._is_paused:
                    continue
                is_behind = self.pace is not None and self.pace.is_behind
                if has_ended := self._inbox.has_ended(self._name):
                    self._mix_all()
                    if self._num_held >= size:
                        continue
                    if not self._num_held or drop_remainder:
                        return None
                elif is_behind or self._must_flush():
                    self._mix_all()
                if has_ended or is_behind or (self._must_flush() and self._num_held):
                    return self._give(min(self._num_held, size), is_look)

    def _hold(self, block: pa.RecordBatch) -> None:
        if not block.num_rows:
            return
        self._rows_in += block.num_rows
        self._rows_pending += block.num_rows
        self._add_held([block] if self._mixer is None else self._mixer.add(block))

    def _mix_all(self) -> None:
        if self._mixer is not None:
            self._add_held(self._mixer.rest())

    def _add_held(self, blocks: Iterable[pa.RecordBatch]) -> None:
        for block in blocks:
            self._held.append(block)
            self._num_held += block.num_rows

    def _give(self, size: int, is_look: bool) -> pa.RecordBatch:
        """Takes so many rows of those that are held."""
        batch = self._cut(size)
        self._num_held -= batch.num_rows
        self._rows_pending -= batch.num_rows
        steps = count_steps(batch.num_rows, self._parts)
        if self._phase and self._is_told is None and not is_look:
            self._is_told = self._phase == "train"
        if is_look:
            self._looked_at.append(batch)
        elif self._is_told:
            self._out.append(_Given(batch, steps, max(-(-batch.num_rows // self._parts), 1)))
        else:
            self._rows_done += batch.num_rows
        if self.pace is not None:
            self.pace.add(steps)
        self._changed.notify_all()
        return batch

    def _cut(self, size: int) -> pa.RecordBatch:
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

    # What who trains tells, and who saves wants.

    def set_phase(self, phase: str) -> None:
        """What the fit that reads this table does: "train", "test", or "" when it is over."""
        with self._changed:
            self._phase = phase
            if not phase:
                self._is_told = None
            self._changed.notify_all()

    def steps_done(self, count: int) -> None:
        """So many steps more are done, in the order in which they were given out."""
        with self._changed:
            while count and self._out:
                given = self._out.popleft()
                done = min(given.steps, count)
                rows = min(done * given.step_rows, given.batch.num_rows)
                if done < given.steps:  # the rest comes again if an epoch ends here
                    rest = given.batch.slice(rows)
                    self._out.appendleft(_Given(rest, given.steps - done, given.step_rows))
                count -= done
                self._rows_done += rows
            self._changed.notify_all()

    def flush(self) -> bool:
        """Waits until all rows that have come were in a step that is done; whether they were."""
        with self._changed:
            wanted = self._rows_in
            self._rows_wanted = max(self._rows_wanted, wanted)
        self._inbox.wake()
        with self._changed:
            while self._rows_done < wanted and not self._inbox.is_closed:
                self._changed.wait(TICK_S)
            return self._rows_done >= wanted

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No step of a fit runs on this table: none is given out, and those that were are done.

        One at a time. A table that a fit tests on goes on: the fit may be in its midst, and
        changes nothing there.
        """
        with self._changed:
            if not self._is_told:
                is_pausing = False
            else:
                is_pausing = self._is_paused = True
                while self._out and self._phase and not self._inbox.is_closed:
                    self._changed.wait(TICK_S)
        try:
            yield
        finally:
            if is_pausing:
                with self._changed:
                    self._is_paused = False
                    self._changed.notify_all()

    def _must_flush(self) -> bool:
        """Whether rows that are in no batch yet are wanted in one."""
        return self._rows_pending > 0 and self._rows_in - self._rows_pending < self._rows_wanted


@dataclass(frozen=True)
class _Given:
    """A batch that was given out: its rows, steps that are not done, and the rows of a step."""

    batch: pa.RecordBatch
    steps: int
    step_rows: int


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
