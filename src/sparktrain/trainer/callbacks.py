"""The callbacks ctx.callbacks() hands to fit: resume, progress, TensorBoard, the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparktrain.events import parse_kinds
from sparktrain.trainer.checkpoint import make_checkpoint_callback
from sparktrain.trainer.event_copies import make_copy_callback
from sparktrain.trainer.events import make_event_callbacks
from sparktrain.trainer.progress import make_progress_callback

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

#: Callbacks that write to one place: with several workers only the chief keeps them.
_WRITERS = ("ModelCheckpoint", "CSVLogger", "TensorBoard")


def make_callbacks(
    context: Context, own: tuple[Any, ...], save_freq: Any, events: Any = None
) -> list[Any]:
    """The list for fit(callbacks=...), in the order in which they must run."""
    import tensorflow as tf

    keras = tf.keras  # tf_keras where TF_USE_LEGACY_KERAS=1 asked for it, else Keras 3
    context.num_fits += 1
    # Progress before the checkpoint: an epoch is in the metrics when it is saved.
    ours = [
        make_progress_callback(keras, context, context.num_fits),
        make_checkpoint_callback(keras, context, context.num_fits, save_freq),
    ]
    kinds = context.events if events is None else parse_kinds("ctx.callbacks(events=)", events)
    ours += make_event_callbacks(keras, context, context.num_fits, kinds)
    writers = tuple(getattr(keras.callbacks, name) for name in _WRITERS)
    kept = [callback for callback in own if context.is_chief or not isinstance(callback, writers)]
    if context.copies is not None:
        kept.append(make_copy_callback(keras, context.copies))
    return ours + kept
