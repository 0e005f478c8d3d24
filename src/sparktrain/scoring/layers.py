"""What layers of a Keras model compute, also those of models within it: symbolic tensors."""

from __future__ import annotations

from typing import Any


def find_layer(model: Any, name: str) -> Any:
    """What the layer computes within the model; None if there is no such layer.

    An outer layer goes before one of its name in a model within, as in the one that standardize
    puts its own layers before.
    """
    for layer in model.layers:
        if layer.name == name:
            return _find_output(layer)
    for inner in model.layers:
        if not _is_called_model(inner):
            continue
        found = find_layer(inner, name)
        if found is not None:
            # In the inner model's own graph: it becomes one of the outer by a call of that part.
            part = make_model(inner, inner.inputs, found)
            return part(_flatten(inner._inbound_nodes[0].input_tensors))
    return None


def name_layers(model: Any) -> list[str]:
    """The names of all layers that may be asked for, those of models within behind theirs."""
    names = []
    for layer in model.layers:
        names.append(layer.name)
        if _is_called_model(layer):
            names += name_layers(layer)
    return list(dict.fromkeys(names))


def make_model(like: Any, inputs: Any, outputs: Any) -> Any:
    """Of the same module: a model of tf_keras is not one of Keras 3."""
    if any(cls.__module__.startswith("tf_keras.") for cls in type(like).__mro__):
        import tf_keras

        return tf_keras.Model(inputs, outputs)
    import keras

    return keras.Model(inputs, outputs)


def _is_called_model(layer: Any) -> bool:
    """Whether it is a model of layers with known inputs, and one of the outer model's layers."""
    has_graph = bool(getattr(layer, "inputs", None)) and hasattr(layer, "layers")
    return has_graph and bool(getattr(layer, "_inbound_nodes", None))


def _find_output(layer: Any) -> Any:
    if not _is_called_model(layer):
        return layer.output
    # Its own output is one of its own graph.
    found = _flatten(layer._inbound_nodes[0].output_tensors)
    return found[0] if len(found) == 1 else found


def _flatten(tensors: Any) -> list[Any]:
    """Keras 3 has a list of them, tf_keras what the call was given."""
    import tensorflow as tf

    found: list[Any] = tf.nest.flatten(tensors)
    return found
