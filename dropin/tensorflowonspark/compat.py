"""What differs between versions of TensorFlow and Keras."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Writes a Keras model as a SavedModel; only the chief's is kept.

    Inputs and outputs have the names that Keras 2 gave them, whichever Keras it is of.
    """
    if any(cls.__module__.startswith("keras.") for cls in type(model).__mro__):
        if is_chief:
            _export_keras_3(model, export_dir)
    elif is_chief:
        model.save(export_dir, save_format="tf")
    else:
        # Workers of Keras 2 talk to each other while they save: all have to.
        folder = tempfile.mkdtemp(prefix="worker_model-")
        try:
            model.save(str(Path(folder) / "model"), save_format="tf")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _export_keras_3(model: Any, export_dir: str) -> None:
    import tensorflow as tf

    tensors = getattr(model, "inputs", None)
    if not tensors or not isinstance(tensors, (list, tuple)):  # a model of one's own class
        model.export(export_dir, verbose=False)
        return
    keras = __import__("keras")
    names = [_name_input(model, tensor) for tensor in tensors]
    outputs = _name_outputs(model)
    specs = {
        name: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype, name=name)
        for name, tensor in zip(names, tensors, strict=True)
    }

    def serve(**values: Any) -> dict[str, Any]:
        inputs = tf.nest.pack_sequence_as(
            getattr(model, "_inputs_struct", names[0]), [values[name] for name in names]
        )
        found = model(inputs, training=False)
        if isinstance(found, dict):
            return dict(found)
        return dict(zip(outputs, tf.nest.flatten(found), strict=True))

    function = tf.function(serve, autograph=False)
    function.get_concrete_function(**specs)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", function)
    archive.write_out(export_dir, verbose=False)


def _name_input(model: Any, tensor: Any) -> str:
    """The name of Input(name=...); else Keras 2's: of the first layer, or of the Input."""
    name = str(tensor.name)
    if not name.startswith("keras_tensor"):
        return name
    if hasattr(model, "_functional") and model.layers:  # a Sequential
        return f"{model.layers[0].name}_input"
    return str(tensor._keras_history.operation.name)


def _name_outputs(model: Any) -> list[str]:
    if hasattr(model, "_functional") and model.layers:
        return [str(model.layers[-1].name)]
    return [str(name) for name in model.output_names]


def disable_auto_shard(options: Any) -> None:
    """Has every worker read all of its dataset."""
    import tensorflow as tf

    off = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = off


def is_gpu_available() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
