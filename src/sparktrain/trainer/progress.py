"""The progress callback: tells the driver about epochs, steps, metrics and speed."""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import TYPE_CHECKING, Any

from sparktrain.errors import ConfigError

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

#: Often enough to look alive, rarely enough to cost nothing: reading a metric waits for the step.
INTERVAL_S = 0.5


def make_progress_callback(keras: Any, context: Context, fit: int) -> Any:
    """An instance for the given Keras, which may be tf_keras."""

    class Progress(keras.callbacks.Callback):  # type: ignore[misc]
        """Sends at most two messages a second; the chief also reports every epoch."""

        def __init__(self) -> None:
            super().__init__()
            self._epoch = 0
            self._rows_known = True
            self._sent_at = 0.0
            #: Time, rows and steps from which the speed is taken.
            self._last = (0.0, 0, 0)
            self._train_seconds: float | None = None
            #: Seconds waited for input: when the epoch began, and in its training.
            self._wait_began: float | None = None
            self._waited: float | None = None

        def on_train_begin(self, logs: Any = None) -> None:
            check_steps_per_execution(self.model, context.num_workers)
            if context.feed.tables and self.params.get("steps") is None:
                # Keras says so at the end of every dataset whose length it does not know.
                warnings.filterwarnings("ignore", message="Your input ran out of data")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch + 1
            self._began = time.monotonic()
            self._last = (self._began, 0, 0)
            self._train_seconds = None
            self._steps_in_epoch = 0
            self._rows_trained: int | None = None
            self._wait_began = context.meter.wait_s
            self._waited = None
            self._send({}, rows=None)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._steps_in_epoch = batch + 1
            if time.monotonic() - self._sent_at >= INTERVAL_S:
                self._send(logs or {}, self._count_rows())

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            rows = self._count_rows() if self._rows_trained is None else self._rows_trained
            # The speed of the whole epoch, without its validation.
            self._last = (time.monotonic() - self._seconds_trained(), 0, 0)
            self._send(logs or {}, rows, ended=True)
            if self._wait_began is not None:
                context.meter.add_epoch(self._seconds_trained(), self._seconds_waited())
            context.send_feed()
            context.rows_done += rows or 0
            context.steps_done += self._steps_in_epoch
            if context.is_chief:
                # From the second fit of a function on its rows say which one they are of.
                number = {"fit": fit} if fit > 1 else {}
                # Ours last: a metric may have any name.
                context.report(**{**_numbers(logs or {}), **number, "epoch": epoch + 1})

        def on_test_begin(self, logs: Any = None) -> None:
            # Validation resets the metric the rows are counted with.
            self._rows_trained = self._count_rows()
            self._train_seconds = time.monotonic() - self._began
            self._waited = self._seconds_waited()

        def _send(self, logs: Any, rows: int | None, *, ended: bool = False) -> None:
            now = time.monotonic()
            then, rows_then, steps_then = self._last
            seconds = max(now - then, 1e-6)
            steps = self._steps_in_epoch
            context.send_progress(
                epoch=self._epoch,
                epochs=self.params.get("epochs"),
                step=steps,
                steps=self.params.get("steps"),
                metrics=_numbers(logs),
                steps_per_s=(steps - steps_then) / seconds if steps > steps_then else None,
                examples_per_s=(rows - rows_then) / seconds
                if rows is not None and rows > rows_then
                else None,
                rows=None if rows is None else context.rows_done + rows,
                total_steps=context.steps_done + steps,
                input_wait=self._input_wait(),
                ended=ended,
            )
            self._sent_at = now
            if steps > steps_then:
                self._last = (now, rows or 0, steps)

        def _seconds_trained(self) -> float:
            if self._train_seconds is None:
                return time.monotonic() - self._began
            return self._train_seconds

        def _seconds_waited(self) -> float:
            if self._waited is not None:
                return self._waited
            now = context.meter.wait_s
            return 0.0 if now is None or self._wait_began is None else now - self._wait_began

        def _input_wait(self) -> float | None:
            """The share of this epoch's training that steps waited for input."""
            if self._wait_began is None or not context.feed.tables:
                return None
            return min(self._seconds_waited() / max(self._seconds_trained(), 1e-6), 1.0)

        def _count_rows(self) -> int | None:
            """Rows this worker has trained on in this epoch: the weight of Keras' loss average."""
            rows = _local_count(self.model, context.strategy) if self._rows_known else None
            self._rows_known = rows is not None
            return rows

    return Progress()


def check_steps_per_execution(model: Any, num_workers: int) -> None:
    """Refuses what TensorFlow's collectives cannot do inside the loop Keras 3 makes of it."""
    steps = getattr(model, "steps_per_execution", 1)
    if num_workers > 1 and isinstance(steps, int) and steps > 1:
        raise ConfigError(
            problem=f"The model was compiled with steps_per_execution={steps} and the run has"
            f" {num_workers} workers.",
            advice="Several workers cannot run several steps at once with Keras 3: compile with"
            " steps_per_execution=1.",
        )


def _local_count(model: Any, strategy: Any) -> int | None:
    """The weight of the loss average on this worker, which is its rows."""
    # Private parts of Keras 3 and of tf_keras: without them there is no row count, and
    # nothing else is lost.
    tracker = getattr(model, "_loss_tracker", None)
    if tracker is None:
        tracker = getattr(getattr(model, "compiled_loss", None), "_total_loss_mean", None)
    count = getattr(tracker, "count", None)
    if count is None:
        return None
    with contextlib.suppress(Exception):
        # Keras 3 wraps TensorFlow's variable; tf_keras does not, and has a method of that name.
        variable = count if callable(count.value) else count.value
        # Each device of the worker counts its own.
        return sum(int(one.numpy()) for one in strategy.experimental_local_results(variable))
    return None


def _numbers(logs: Any) -> dict[str, float]:
    values = {}
    for name, value in dict(logs).items():
        with contextlib.suppress(TypeError, ValueError):
            values[str(name)] = float(value)
    return values
