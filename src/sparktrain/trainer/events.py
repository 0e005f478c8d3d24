"""Events for TensorBoard: Keras' own, and each node's feed figures."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.events import GRAPH, HISTOGRAMS, PROFILE
from sparktrain.trainer.event_guard import EventGuard

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

#: Below the log directory: a folder for each node.
FEED_FOLDER = "feed"
#: Steps that a profile is of: the first ones compile.
PROFILED_STEPS = (3, 7)


def make_event_callbacks(
    keras: Any, context: Context, fit: int, kinds: tuple[str, ...]
) -> list[Any]:
    """The callbacks that write events on this node; none without the tensorboard package."""
    # TensorFlow writes events with that package, which it does not install itself.
    if importlib.util.find_spec("tensorboard") is None:
        return []
    # Fits of one function must not be drawn as one curve.
    folder = Path(context.log_dir) / (f"fit-{fit}" if fit > 1 else "")
    guard = EventGuard(keras, folder)
    ours = [make_feed_events(keras, guard, context, folder)] if context.rank is not None else []
    if context.is_chief:
        ours.append(make_keras_events(keras, guard, folder, kinds))
    return ours


def make_keras_events(keras: Any, guard: EventGuard, folder: Path, kinds: tuple[str, ...]) -> Any:
    """Keras' own callback, whose events can be read at the end of each epoch."""

    @guard.contain
    class Events(keras.callbacks.TensorBoard):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_end(epoch, logs)
            # Private: without it, they are read a little later.
            for writer in getattr(self, "_writers", {}).values():
                writer.flush()

        def _log_weights(self, epoch: int) -> None:
            """Private as well: what Keras does, with weights as this worker has them."""
            import tensorflow as tf

            with self._train_writer.as_default(), tf.summary.record_if(True):
                for layer in self.model.layers:
                    for name, own in map(find_own, layer.weights):
                        tf.summary.histogram(f"{name}/histogram", own, step=epoch)
            self._train_writer.flush()

    return Events(
        str(folder),
        write_graph=GRAPH in kinds,
        histogram_freq=int(HISTOGRAMS in kinds),
        profile_batch=PROFILED_STEPS if PROFILE in kinds else 0,
    )


def find_own(weight: Any) -> tuple[str, Any]:
    """The name of a weight, and what the first replica of this worker has of it.

    Some, such as the statistics of tf_keras' BatchNormalization, differ between workers, and are
    made one when they are read: by all workers at once, which the chief alone must not begin.
    """
    # Keras 3 wraps TensorFlow's. Asked of the type: those variables are read to find an
    # attribute that they do not have.
    is_wrapped = hasattr(type(weight), "path")
    name, variable = (weight.path, weight.value) if is_wrapped else (weight.name, weight)
    if hasattr(type(variable), "distribute_strategy"):
        variable = variable.distribute_strategy.experimental_local_results(variable)[0]
    return str(name).replace(":", "_"), variable


def make_feed_events(keras: Any, guard: EventGuard, context: Context, folder: Path) -> Any:
    """Writes how the input of this node was in each epoch."""

    @guard.contain
    class FeedEvents(keras.callbacks.Callback):  # type: ignore[misc]
        """Behind the progress callback, which measures the epoch."""

        def __init__(self) -> None:
            super().__init__()
            self._before = context.meter.to_dict()
            self._rows_before = context.rows_done
            self._writer: Any = None

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            now = context.meter.to_dict()
            trained = context.rows_done - self._rows_before
            figures = describe_epoch(self._before, now, trained, context.feed.depth)
            self._before, self._rows_before = now, context.rows_done
            if not figures:
                return
            import tensorflow as tf

            with tf.device("CPU:0"):
                if self._writer is None:
                    node = f"{context.role}-{context.index}"
                    self._writer = tf.summary.create_file_writer(str(folder / FEED_FOLDER / node))
                with self._writer.as_default():
                    for name, value in figures.items():
                        tf.summary.scalar(f"feed/{name}", value, step=epoch)
                self._writer.flush()

        def on_train_end(self, logs: Any = None) -> None:
            # A fit may follow with the same callbacks: a writer that is closed stays so.
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    return FeedEvents()


def describe_epoch(
    before: dict[str, Any], now: dict[str, Any], trained: int, queue: int
) -> dict[str, float]:
    """The figures of an epoch, from what was measured before it and behind it.

    Args:
        trained: Rows that steps had; 0 if unknown. More may have been read: Keras takes some
            before the first step to build the model, and datasets read ahead.
    """
    read, size, seconds, wait_s = (
        now[name] - before[name] for name in ("rows", "bytes", "train_s", "wait_s")
    )
    if read <= 0 or seconds <= 0:
        return {}
    rows = trained or read
    size *= rows / read
    return {
        "rows": float(rows),
        "rows_per_s": rows / seconds,
        "mb_per_s": size / 1e6 / seconds,
        "wait_share": min(wait_s / seconds, 1.0),
        "queue": float(queue),
    }
