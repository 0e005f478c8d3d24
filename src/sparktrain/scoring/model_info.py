"""The names, types and shapes of a Keras model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.scoring.spec import ModelInfo, TensorInfo

#: What the one input of a model is called that has no names: a subclass of Model.
DEFAULT_INPUT = "inputs"


def describe_keras(model: Any) -> ModelInfo:
    """Inputs and outputs of a built model, by the names that scoring knows them by.

    Raises:
        ValueError: The model was never built: it knows no shapes.
    """
    outputs = find_outputs(model).items()
    return ModelInfo(find_inputs(model), tuple(_describe(*one) for one in outputs))


def find_inputs(model: Any) -> tuple[TensorInfo, ...]:
    tensors = getattr(model, "inputs", None)
    if tensors:
        structure = _structure(model, "_inputs_struct")
        if isinstance(structure, Mapping):
            return tuple(_describe(name, tensor) for name, tensor in structure.items())
        return tuple(_describe(_name_input(tensor), tensor) for tensor in tensors)
    # A subclass of Model knows the shape it was built with, if it was a single one.
    shape = getattr(model, "_build_shapes_dict", None) or {}
    shapes = [one for one in shape.values() if isinstance(one, (tuple, list))]
    if len(shapes) == 1 and all(one is None or isinstance(one, int) for one in shapes[0]):
        dtype = getattr(model, "input_dtype", None) or "float32"
        return (TensorInfo(DEFAULT_INPUT, str(dtype), tuple(shapes[0])[1:]),)
    raise ValueError(
        f"the {type(model).__name__} {getattr(model, 'name', '')!r} does not know its inputs;"
        " expected a Sequential or functional model with Input layers, or a model that was built"
        " with one shape; a SavedModel (model.export) has signatures that tell"
    )


def _name_input(tensor: Any) -> str:
    """The name of the layer: that of a tensor nobody named is another one once it is loaded."""
    layer = getattr(getattr(tensor, "_keras_history", None), "operation", None)
    return str(getattr(layer, "name", None) or tensor.name.split(":")[0])


def find_outputs(model: Any) -> dict[str, Any]:
    """The symbolic outputs of a model, by name."""
    structure = _structure(model, "_outputs_struct")
    # Flattened, a dict has lost its order.
    return name_outputs(model, structure if isinstance(structure, Mapping) else model.outputs)


def name_outputs(model: Any, found: Any) -> dict[str, Any]:
    """What a call of the model gave, by name."""
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items()}
    values = list(found) if isinstance(found, (list, tuple)) else [found]
    return dict(_named(model, values))


def pack_inputs(model: Any, feeds: Mapping[str, Any]) -> Any:
    """Tensors by name in the structure that the model is called with."""
    structure = _structure(model, "_inputs_struct")
    if isinstance(structure, Mapping):
        return dict(feeds)
    values = list(feeds.values())
    if isinstance(structure, (list, tuple)) and len(structure) == len(values) > 1:
        return values
    return values[0] if len(values) == 1 else values


def _named(model: Any, values: Sequence[Any]) -> list[tuple[str, Any]]:
    inner = getattr(model, "_functional", None) or model
    names = list(getattr(inner, "output_names", None) or ())
    if len(names) != len(values):
        names = [getattr(model.layers[-1], "name", "output")] if len(values) == 1 else []
        names = names or [f"output_{number}" for number in range(len(values))]
    taken: dict[str, int] = {}
    unique = []
    for name in names:
        count = taken[name] = taken.get(name, 0) + 1
        unique.append(name if count == 1 else f"{name}_{count}")
    return list(zip(unique, values, strict=True))


def has_names(model: Any) -> tuple[bool, bool]:
    """Whether the model's inputs are a dict, and whether its outputs are."""
    structures = (_structure(model, name) for name in ("_inputs_struct", "_outputs_struct"))
    inputs, outputs = (isinstance(one, Mapping) for one in structures)
    return inputs, outputs


def _structure(model: Any, name: str) -> Any:
    # A Sequential model has a functional one inside.
    inner = getattr(model, "_functional", None) or model
    return getattr(inner, name, None)


def _describe(name: str, tensor: Any) -> TensorInfo:
    if not hasattr(tensor, "shape"):
        raise ValueError(
            f"what the model has as {name!r} is a {type(tensor).__name__}; expected a tensor, or a"
            " list or dict of tensors that are not nested further"
        )
    shape = tuple(None if size is None else int(size) for size in tuple(tensor.shape)[1:])
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    return TensorInfo(name, str(dtype), shape)
