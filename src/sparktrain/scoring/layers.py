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
            return part(list(inner._inbound_nodes[0].input_tensors))
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
    """Whether it is a model of layers with known inputs, in a graph of Keras 3."""
    nodes: Any = getattr(layer, "_inbound_nodes", ())
    has_graph = bool(getattr(layer, "inputs", None)) and hasattr(layer, "layers")
    return has_graph and bool(nodes) and hasattr(nodes[0], "input_tensors")


def _find_output(layer: Any) -> Any:
    if _is_called_model(layer):
        # Its own output is one of its own graph.
        return _unpack(layer._inbound_nodes[0].output_tensors)
    return layer.output


def _unpack(tensors: Any) -> Any:
    return tensors[0] if len(tensors) == 1 else list(tensors)
