"""The model of a candidate: made or loaded, built, standardised, compiled."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparktrain.errors import ConfigError
from sparktrain.fit_spec import Candidate, ModelPart
from sparktrain.scoring.model_info import (
    find_inputs,
    find_outputs,
    has_names,
    name_outputs,
    pack_inputs,
)
from sparktrain.scoring.own_classes import find_compilation, load_with
from sparktrain.scoring.spec import TensorInfo


def open_model(part: ModelPart) -> Any:
    """Calls the user's function, or loads the file; to be called in the strategy's scope."""
    import cloudpickle
    import keras

    if part.file:
        with tempfile.TemporaryDirectory(prefix="sparktrain-model-") as folder:
            path = Path(folder, "model.keras")
            path.write_bytes(part.file)
            try:
                return load_with(keras.models, str(path), part.classes)
            except Exception as error:
                raise ConfigError(
                    problem=f"The model {part.name} cannot be loaded by Keras"
                    f" {keras.__version__}: {type(error).__name__}: {error}.",
                    advice="Where it has layers or losses of your own, give the model itself or a"
                    " function that makes it: a file has only their names. Else write the file"
                    " anew with model.save('model.keras').",
                ) from error
    model = cloudpickle.loads(part.function)(**part.args)
    if not isinstance(model, keras.Model):
        raise ConfigError(
            problem=f"The function {part.name} returned {type(model).__module__}."
            f"{type(model).__qualname__}.",
            advice="Expected a model of Keras 3: return keras.Sequential([...]).",
        )
    return model


def has_inputs(model: Any) -> bool:
    return bool(getattr(model, "inputs", None))


def build_model(model: Any, inputs: Sequence[TensorInfo]) -> Any:
    """The model with inputs it knows: a functional one around it, if it has none of its own."""
    import keras

    tensors = {one.name: keras.Input(one.shape, dtype=one.dtype, name=one.name) for one in inputs}
    given: Any = tensors if len(tensors) > 1 else next(iter(tensors.values()))
    outputs = model(given)
    if has_inputs(model):  # a Sequential model has made its own of it
        return model
    return _take_compilation(keras.Model(given, outputs, name=model.name), model)


def standardise(model: Any, moments: Mapping[str, tuple[Any, Any]]) -> Any:
    """The model behind layers that take the mean from its inputs and divide by the deviation.

    Args:
        moments: Input -> (mean, variance) in the shape of a row.
    """
    import keras

    name = model.name
    _make_room(model)
    tensors = {}
    changed = {}
    for info in find_inputs(model):
        own = info.name
        tensors[own] = changed[own] = keras.Input(info.shape, dtype=info.dtype, name=own)
        if own in moments:
            mean, variance = moments[own]
            axes = tuple(range(1, len(info.shape) + 1))
            layer = keras.layers.Normalization(
                axes, mean=mean, variance=variance, name=_name_standard(own)
            )
            changed[own] = layer(tensors[own])
    outputs = _rename(model, model(pack_inputs(model, changed)))
    inputs = pack_inputs(model, tensors)
    return _take_compilation(keras.Model(inputs, outputs, name=_name_standard(name)), model)


def _name_standard(name: str) -> str:
    return f"{name}_standard"


def _make_room(model: Any) -> None:
    """Gives the model another name, if it is called like what will be beside it as a layer."""
    taken = {info.name for info in find_inputs(model)}
    if not has_names(model)[1]:
        outputs = set(find_outputs(model))
        if doubled := sorted(taken & outputs):
            raise ConfigError(
                problem=f"The model {model.name!r} has an input and an output {doubled[0]!r}, which"
                " standardize would have to tell apart.",
                advice="Put a layer between them, such as keras.layers.Identity(name='same'), or"
                " leave standardize out.",
            )
        taken |= outputs
    taken |= {_name_standard(name) for name in taken}
    while model.name in taken:
        model.name = f"{model.name}_raw"


def _rename(model: Any, outputs: Any) -> Any:
    """Outputs under the names they have in the model: a layer gives its own to all of them."""
    import keras

    named = name_outputs(model, outputs)
    if isinstance(outputs, Mapping):
        return outputs
    kept = [keras.layers.Identity(name=name)(tensor) for name, tensor in named.items()]
    return kept if len(kept) > 1 else kept[0]


def _take_compilation(model: Any, inner: Any) -> Any:
    if inner.compiled:
        model.compile(**find_compilation(inner))
    return model


def compile_model(model: Any, candidate: Candidate, name: str) -> None:
    """Compiles with what the user gave, over what the model has; as it is if nothing was."""
    import keras

    given = {
        "loss": open_value(candidate.loss, keras.losses.get),
        "metrics": open_value(candidate.metrics, keras.metrics.get),
        "loss_weights": candidate.loss_weights,
        "optimizer": candidate.optimizer,
    }
    if not model.compiled and candidate.loss is None:
        raise ConfigError(
            problem=f"The model {name} is not compiled, and the estimator has no loss.",
            advice="Give loss='sparse_categorical_crossentropy' or another one, or compile the"
            " model.",
        )
    if all(value is None for value in (*given.values(), candidate.learning_rate)):
        return
    before = find_compilation(model) if model.compiled else {}
    optimizer = open_value(candidate.optimizer, keras.optimizers.get)
    given["optimizer"] = keras.optimizers.get(optimizer or before.get("optimizer") or "rmsprop")
    if candidate.learning_rate is not None:
        rate = open_value(candidate.learning_rate, keras.optimizers.schedules.deserialize)
        given["optimizer"] = with_rate(given["optimizer"], rate)
    model.compile(**{**before, **{key: one for key, one in given.items() if one is not None}})


def with_rate(optimizer: Any, rate: Any) -> Any:
    """A new optimizer of the same kind with that rate, also where one is inside of another."""
    config = optimizer.get_config()
    if not hasattr(optimizer, "inner_optimizer"):
        return type(optimizer).from_config({**config, "learning_rate": rate})
    del config["inner_optimizer"]
    return type(optimizer)(with_rate(optimizer.inner_optimizer, rate), **config)


def open_value(value: Any, get: Callable[[Any], Any]) -> Any:
    """What the driver made JSON of, as it was: objects of Keras, and pickled ones.

    Args:
        get: Keras' own function for what it serialised, also in its short form.
    """
    import base64

    import cloudpickle

    if isinstance(value, Mapping):
        if "pickled" in value:
            return cloudpickle.loads(base64.b64decode(value["pickled"]))
        if "class_name" in value:
            return get(dict(value))
        return {key: open_value(one, get) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [open_value(one, get) for one in value]
    return value
