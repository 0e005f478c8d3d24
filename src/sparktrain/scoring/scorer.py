"""A loaded model as one function: arrays by name in, arrays by name out."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from sparktrain.data.aligned import align
from sparktrain.errors import ModelError
from sparktrain.scoring.layers import find_layer, make_model, name_layers
from sparktrain.scoring.model_info import find_inputs, find_outputs, name_outputs, pack_inputs
from sparktrain.scoring.spec import ModelInfo, TensorInfo


class Scorer(Protocol):
    """What a worker keeps of a model."""

    info: ModelInfo

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a batch: tensors by name of output."""
        ...


class KerasScorer:
    """A Keras model, traced once for batches of any size.

    Args:
        layers: Layers whose outputs are answered as well.
    """

    def __init__(self, model: Any, layers: tuple[str, ...], device: str) -> None:
        import tensorflow as tf

        self._model = _with_layers(model, layers)
        inputs = find_inputs(model)
        specs = {one.name: tf.TensorSpec((None, *one.shape), one.dtype) for one in inputs}

        def call(feeds: dict[str, Any]) -> dict[str, Any]:
            found = self._model(pack_inputs(model, feeds), training=False)
            return name_outputs(self._model, found)

        traced = tf.function(call, input_signature=[specs], autograph=False)
        self._function = traced.get_concrete_function()
        self._device = device
        self.info = ModelInfo(inputs, _describe(self._function.structured_outputs))

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        with _on(self._device):
            found: dict[str, Any] = self._function(_to_tensors(feeds, self.info.inputs))
        return found


class SignatureScorer:
    """One signature of a SavedModel."""

    def __init__(self, model: Any, signature: str, device: str) -> None:
        if signature not in model.signatures:
            known = ", ".join(model.signatures) or "none"
            raise ModelError(
                model="",
                problem=f"It has no signature {signature!r}.",
                advice=f"Expected signature= one of: {known}.",
            )
        # The model must live as long as its function.
        self._model = model
        self._function = model.signatures[signature]
        self._device = device
        specs = self._function.structured_input_signature[1]
        batches = {None if s.shape.rank in (None, 0) else s.shape[0] for s in specs.values()}
        self.info = ModelInfo(
            _describe(specs),
            _describe(self._function.structured_outputs),
            fixed_batch=next(iter(batches)) if len(batches) == 1 else None,
        )

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        with _on(self._device):
            found: dict[str, Any] = self._function(**_to_tensors(feeds, self.info.inputs))
        return found


def _on(device: str) -> contextlib.AbstractContextManager[Any]:
    if not device:
        return contextlib.nullcontext()
    import tensorflow as tf

    found: contextlib.AbstractContextManager[Any] = tf.device(device)
    return found


def _to_tensors(feeds: Mapping[str, Any], inputs: tuple[TensorInfo, ...]) -> dict[str, Any]:
    return {one.name: _to_tensor(feeds[one.name], one.dtype) for one in inputs}


def _to_tensor(value: Any, dtype: str) -> Any:
    import tensorflow as tf

    if isinstance(value, tf.RaggedTensor):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.dtype.name == dtype:
        # TensorFlow takes this memory as it is; of other arrays it makes two copies.
        return tf.experimental.dlpack.from_dlpack(align(value, value.dtype).__dlpack__())
    return tf.convert_to_tensor(value, dtype)


def _with_layers(model: Any, layers: tuple[str, ...]) -> Any:
    if not layers:
        return model
    outputs = find_outputs(model)
    for name in layers:
        found = find_layer(model, name)
        if found is None:
            raise ModelError(
                model=model.name,
                problem=f"It has neither an output nor a layer {name!r}.",
                advice=f"Outputs: {', '.join(outputs)}. Layers: {', '.join(name_layers(model))}.",
            )
        outputs[name] = found
    return make_model(model, model.inputs, outputs)


def _describe(specs: Mapping[str, Any]) -> tuple[TensorInfo, ...]:
    return tuple(_describe_one(name, spec) for name, spec in specs.items())


def _describe_one(name: str, spec: Any) -> TensorInfo:
    import tensorflow as tf

    is_ragged = isinstance(spec, (tf.RaggedTensorSpec, tf.RaggedTensor))
    if spec.shape.rank in (None, 0):
        raise ModelError(
            model="",
            problem=f"Its tensor {name!r} has "
            + ("no known number of dimensions." if spec.shape.rank is None else "no rows."),
            advice="Expected a tensor whose first dimension is the rows of a batch; export the"
            " model with declared shapes.",
        )
    return TensorInfo(name, spec.dtype.name, tuple(spec.shape.as_list())[1:], is_ragged)
