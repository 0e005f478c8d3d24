"""The user's objects on their way to the trainer: pickled, as a file, or as plain values.

Keras is never imported here: an object of Keras brings it with it.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from sparktrain.driver.function import dump
from sparktrain.errors import ConfigError, FunctionError
from sparktrain.fit_spec import ModelPart
from sparktrain.ml.kept import Kept
from sparktrain.scoring.by_value import pickling_by_value
from sparktrain.scoring.own_classes import find_own, pack_own

_CONFIG = "config.json"


def pickle_value(what: str, value: Any) -> bytes:
    """The pickled value; raises FunctionError for what cannot travel."""
    try:
        return dump(value)
    except Exception as error:
        raise FunctionError(
            problem=f"{what} cannot be sent to the nodes: {type(error).__name__}: {error}.",
            advice="It must not hold on to a SparkSession, a DataFrame, an open file or a lock."
            " Make such things inside the function.",
        ) from error


def is_of_keras(value: Any) -> bool:
    """Whether a value is an object of Keras 3, or of a subclass of one of its classes."""
    return any(cls.__module__.split(".")[0] == "keras" for cls in type(value).__mro__)


def to_json(name: str, value: Any) -> Any:
    """Plain values in the place of objects of Keras and functions; trainers turn them back."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): to_json(name, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(name, one) for one in value]
    if any(cls.__module__.split(".")[0] == "tf_keras" for cls in type(value).__mro__):
        raise ConfigError(
            problem=f"The parameter {name} got a {type(value).__qualname__} of tf_keras.",
            advice="Expected one of Keras 3: import keras.",
        )
    is_own = type(value).__module__.split(".")[0] == "keras"
    is_function = callable(value) and str(getattr(value, "__module__", "")).startswith("keras.")
    if is_own or is_function:
        made = sys.modules["keras"].saving.serialize_keras_object(value)
        if _is_plain(made):
            return made
    if is_of_keras(value) or callable(value):
        packed = pickle_value(f"The parameter {name}", _by_making(value))
        return {"pickled": base64.b64encode(packed).decode(), **_describe(value)}
    raise ConfigError(
        problem=f"The parameter {name} got a {type(value).__qualname__}.",
        advice="Expected a name, an object of Keras, a function, or a list or dict of these.",
    )


class _Made:
    """Pickles an object of Keras by its class and what makes it: Keras takes the class's name."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Any:
        return type(self._value).from_config, (self._value.get_config(),)


def _by_making(value: Any) -> Any:
    return _Made(value) if is_of_keras(value) and hasattr(value, "from_config") else value


def _describe(value: Any) -> dict[str, Any]:
    """What is known of it unopened: whose it is, and with which plain values it was made."""
    config: Any = {}
    if isinstance(value, functools.partial):
        value, config = value.func, value.keywords
    elif hasattr(type(value), "get_config"):
        with contextlib.suppress(Exception):  # the user's own code
            config = value.get_config()
    named = value if hasattr(value, "__qualname__") else type(value)
    plain = {key: one for key, one in dict(config or {}).items() if _is_plain(one)}
    return {"name": f"{named.__module__}.{named.__qualname__}", "config": plain}


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def pack_model(model: Any, args: Mapping[str, Any] | None) -> ModelPart:
    """A model function, a Keras model, or the path of a file, ready to travel."""
    if model is None:
        raise ConfigError(
            problem="The estimator has no model.",
            advice="Give model=: a function that returns a Keras model, a Keras model, or the"
            " path of a .keras file.",
        )
    if isinstance(model, Kept):
        part = model.part
        part = replace(part, args=dict(args or {})) if part.function else part
    elif isinstance(model, (str, Path)):
        packed = _read_file(str(model))
        part = ModelPart(name=repr(str(model)), file=packed)
    elif is_of_keras(model) and hasattr(model, "save"):
        file = _save(model)
        part = ModelPart(repr(model.name), file=file, classes=_pack_own(model))
    elif callable(model):
        name = repr(getattr(model, "__qualname__", type(model).__qualname__))
        packed = pickle_value(f"The model function {name}", model)
        part = ModelPart(name=name, function=packed, args=dict(args or {}))
    else:
        raise ConfigError(
            problem=f"The parameter model got a {type(model).__module__}."
            f"{type(model).__qualname__}.",
            advice="Expected a function that returns a Keras model, a model of Keras 3, or the"
            " path of a .keras file.",
        )
    if args and not part.function:
        raise ConfigError(
            problem=f"modelArgs has {', '.join(args)}, but model is no function.",
            advice="Leave modelArgs out, or give a function that takes them.",
        )
    if part.file and _has_lambda(find_config(part.file)):
        raise ConfigError(
            problem=f"The model {part.name} has a lambda in a layer, a loss or a metric, which"
            " Keras does not load from files.",
            advice="Write it as a function with a name (def), or give a function that makes the"
            " model.",
        )
    return part


def pack_callbacks(callbacks: Any) -> bytes:
    """A list of callbacks, or a function that makes one; empty for none."""
    if isinstance(callbacks, Kept):
        return callbacks.part.function
    return pickle_value("The parameter callbacks", callbacks) if callbacks else b""


def keep(what: str, value: Any) -> Kept:
    """A model or callbacks as they are saved: to be opened without the files of their code."""
    if isinstance(value, Kept):
        return value
    if is_of_keras(value) and hasattr(value, "save"):
        return Kept(what, pack_model(value, None))
    name = repr(getattr(value, "__qualname__", type(value).__qualname__))
    return Kept(what, ModelPart(name, _pickle_whole(f"The {what} {name}", value)))


def repack(value: Any) -> Any:
    """What to_json() gave, to be saved: what is pickled in it is there with its code."""
    if isinstance(value, (list, tuple)):
        return [repack(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "pickled" not in value:
        return {key: repack(one) for key, one in value.items()}
    if value.get("is_whole"):
        return value  # it was loaded, and stays unopened
    opened = cloudpickle.loads(base64.b64decode(value["pickled"]))
    packed = _pickle_whole(f"What was given as {value.get('name')}", _by_making(opened))
    return {**value, "pickled": base64.b64encode(packed).decode(), "is_whole": True}


def _pickle_whole(what: str, value: Any) -> bytes:
    """Pickled with the user's own modules; with their names only, and a warning, else."""
    try:
        with pickling_by_value():
            return dump(value)
    except Exception as error:
        body = pickle_value(what, value)
        warnings.warn(
            f"{what} is saved with its name only ({type(error).__name__}: {error}). Where it is"
            " trained with, Python must find its module.",
            stacklevel=2,
        )
        return body


def _save(model: Any) -> bytes:
    if not getattr(model, "built", False):
        raise ConfigError(
            problem=f"The model {model.name!r} has no input shape yet, so it cannot be saved and"
            " sent.",
            advice="Begin it with keras.Input(...), or give a function that makes it.",
        )
    with tempfile.TemporaryDirectory(prefix="sparktrain-model-") as folder:
        path = Path(folder, "model.keras")
        try:
            model.save(path)
        except Exception as error:
            raise FunctionError(
                problem=f"The model {model.name!r} cannot be saved: {type(error).__name__}:"
                f" {error}.",
                advice="Give a function that makes it.",
            ) from error
        return path.read_bytes()


def _pack_own(model: Any) -> bytes:
    """What the file of a model has the names of only: the user's own code."""
    packed = pack_own(find_own(model, is_trained=True))
    for name, error in packed.failed.items():
        raise FunctionError(
            problem=f"{name} of the model {model.name!r} cannot be sent to the nodes:"
            f" {type(error).__name__}: {error}.",
            advice="It must not hold on to a SparkSession, a DataFrame, an open file or a lock;"
            " or give a function that makes the model.",
        )
    return packed.body


def _has_lambda(config: Any) -> bool:
    if isinstance(config, Mapping):
        if config.get("class_name") == "__lambda__":
            return True
        config = list(config.values())
    return isinstance(config, list) and any(_has_lambda(one) for one in config)


def _read_file(path: str) -> bytes:
    import fsspec

    try:
        with fsspec.open(path, "rb") as stream:
            packed: bytes = stream.read()
    except Exception as error:
        raise ConfigError(
            problem=f"The model file {path!r} cannot be read: {type(error).__name__}: {error}.",
            advice="Give the path of a .keras file that the driver can read.",
        ) from error
    if find_config(packed) is None:
        raise ConfigError(
            problem=f"The file {path!r} is not a model of Keras 3.",
            advice="Expected a file that model.save('name.keras') wrote.",
        )
    return packed


def find_config(packed: bytes) -> Mapping[str, Any] | None:
    """What a file of Keras says about its model; None if it is none."""
    import io

    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            config: Mapping[str, Any] = json.loads(archive.read(_CONFIG))
            return config
    except (zipfile.BadZipFile, KeyError, ValueError):
        return None


def find_loss(part: ModelPart) -> tuple[bool | None, Any]:
    """Whether a model is compiled, and with which loss; (None, None) if only a call can tell."""
    if not part.file:
        return None, None
    compilation = (find_config(part.file) or {}).get("compile_config")
    return bool(compilation), (compilation or {}).get("loss")


def find_outputs(part: ModelPart) -> tuple[str, ...]:
    """The outputs of a functional model in its own order; empty if only a call can tell."""
    config = (find_config(part.file) if part.file else None) or {}
    layers = (config.get("config") or {}).get("output_layers")
    if not isinstance(layers, list) or not all(isinstance(one, list) for one in layers):
        return ()  # a single one, or a dict, whose keys are not in their order here
    return tuple(str(one[0]) for one in layers)
