"""Measures the input: how much came, and how long steps waited for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.trainer.clock import StepClock


class FeedMeter:
    """Counts on one node. Waiting is measured inside the step, by TensorFlow's own clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Of the steps; None while nothing measures them.
        self.clock: StepClock | None = None
        #: Rows and bytes that TensorFlow counts itself.
        self._counted: Any = None
        self.rows = 0
        self.bytes = 0
        #: Seconds of training, and of waiting within them: in all, and in the first epoch.
        self.train_s = 0.0
        self.train_wait_s = 0.0
        self.first: tuple[float, float] | None = None

    def add(self, rows: int, size: int) -> None:
        """A block went into a dataset."""
        with self._lock:
            self.rows += rows
            self.bytes += size

    def make_counter(self) -> Callable[[Any], Any]:
        """Makes an operation that notes a batch of serialized records."""
        import tensorflow as tf

        if self._counted is None:
            with tf.device("CPU:0"):  # where tf.data works
                self._counted = tf.Variable([0, 0], dtype=tf.int64, trainable=False)
        counted = self._counted

        def count(serialized: Any) -> Any:
            size = tf.reduce_sum(tf.strings.length(serialized))
            found = [tf.size(serialized, tf.int64), tf.cast(size, tf.int64)]
            return counted.assign_add(found, read_value=False)

        return count

    def add_epoch(self, seconds: float, wait_s: float) -> None:
        """An epoch is over."""
        self.train_s += seconds
        self.train_wait_s += wait_s
        if self.first is None:
            self.first = (seconds, wait_s)

    def to_dict(self) -> dict[str, Any]:
        """What the driver is told."""
        first_s, first_wait_s = self.first or (0.0, 0.0)
        rows, size = (0, 0) if self._counted is None else self._counted.numpy().tolist()
        return {
            "rows": self.rows + rows,
            "bytes": self.bytes + size,
            "train_s": self.train_s,
            "wait_s": self.train_wait_s,
            "first_s": first_s,
            "first_wait_s": first_wait_s,
        }

    @property
    def wait_s(self) -> float | None:
        """Seconds that steps have waited for input; None if nothing measures it."""
        return None if self.clock is None else self.clock.seconds
