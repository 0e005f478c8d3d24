"""What differs between versions of TensorFlow."""

from __future__ import annotations

from typing import Any


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Writes a Keras model as a SavedModel; only the chief's is kept."""
    if not is_chief:
        return
    if hasattr(model, "export"):
        model.export(export_dir)
    else:
        model.save(export_dir, save_format="tf")


def disable_auto_shard(options: Any) -> None:
    """Has every worker read all of its dataset."""
    import tensorflow as tf

    off = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = off


def is_gpu_available() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
