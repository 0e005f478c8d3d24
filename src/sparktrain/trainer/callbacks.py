"""The callbacks ctx.callbacks() hands to fit: resume, progress, TensorBoard, the user's own."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from sparktrain.trainer.checkpoint import make_checkpoint_callback
from sparktrain.trainer.progress import make_progress_callback

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

#: Callbacks that write to one place: with several workers only the chief keeps them.
_WRITERS = ("ModelCheckpoint", "CSVLogger", "TensorBoard")


def make_callbacks(context: Context, own: tuple[Any, ...], save_freq: Any) -> list[Any]:
    """The list for fit(callbacks=...), in the order in which they must run."""
    import tensorflow as tf

    keras = tf.keras  # tf_keras where TF_USE_LEGACY_KERAS=1 asked for it, else Keras 3
    context.num_fits += 1
    # Progress before the checkpoint: an epoch is in the metrics when it is saved.
    ours = [
        make_progress_callback(keras, context, context.num_fits),
        make_checkpoint_callback(keras, context, context.num_fits, save_freq),
    ]
    # TensorFlow writes events with the tensorboard package, which it does not install itself.
    if context.is_chief and importlib.util.find_spec("tensorboard") is not None:
        ours.append(keras.callbacks.TensorBoard(context.log_dir, write_graph=False))
    writers = tuple(getattr(keras.callbacks, name) for name in _WRITERS)
    kept = [callback for callback in own if context.is_chief or not isinstance(callback, writers)]
    return ours + kept
