"""The user's own classes and functions in a Keras model: its file has only their names.

They travel beside it, pickled, so that a model is loaded where nobody has registered them.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparktrain.scoring.by_value import pickling_by_value

_KERAS = ("keras", "tf_keras")
#: In the place of a name: all together, which share what their modules keep.
_ALL = ""


@dataclass(frozen=True)
class Packed:
    """The user's own code in a model, ready to travel.

    Attributes:
        body: All of it, pickled; empty if there is none.
        by_name: Why some travels with its name only, which Python must find in a module.
        failed: Why some does not travel at all.
    """

    body: bytes
    by_name: Mapping[str, Exception]
    failed: Mapping[str, Exception]


def pack_classes(model: Any, *, is_trained: bool = False) -> bytes:
    """What a model is made of that is not of Keras; warns of what cannot travel.

    Args:
        is_trained: Whether the model may be trained on where it is opened: then also what it is
            compiled with.
    """
    packed = pack_own(find_own(model, is_trained=is_trained))
    for name, error in packed.by_name.items():
        warnings.warn(
            f"{name} of the model {model.name!r} travels with its name only"
            f" ({type(error).__name__}: {error}). Where the model is loaded, Python must find its"
            " module.",
            stacklevel=2,
        )
    for name, error in packed.failed.items():
        warnings.warn(
            f"{name} of the model {model.name!r} cannot travel with it"
            f" ({type(error).__name__}: {error}), so that it is missed where the model is loaded"
            " elsewhere. Put it into a module that executors can import, and register it there:"
            " @keras.saving.register_keras_serializable().",
            stacklevel=2,
        )
    return packed.body


def pack_own(own: Mapping[str, Any]) -> Packed:
    """Classes and functions by their names in Keras: pickled whole where that can be."""
    import cloudpickle

    bodies: dict[str, bytes] = {}
    by_name: dict[str, Exception] = {}
    failed: dict[str, Exception] = {}
    with pickling_by_value():
        for name, one in own.items():
            try:
                bodies[name] = cloudpickle.dumps(one)
            except Exception as error:  # whatever its code holds on to
                failed[name] = error
        if len(bodies) > 1:
            with contextlib.suppress(Exception):
                bodies[_ALL] = cloudpickle.dumps({name: own[name] for name in bodies})
    for name in list(failed):
        # What is in no module has no other way: the first error says why.
        with contextlib.suppress(Exception):
            bodies[name] = cloudpickle.dumps(own[name])
            by_name[name] = failed.pop(name)
    return Packed(pickle.dumps(bodies) if bodies else b"", by_name, failed)


def open_classes(packed: bytes) -> dict[str, Any]:
    """As load_model() takes them for custom_objects; code: open only what you trust."""
    import cloudpickle

    bodies: dict[str, bytes] = pickle.loads(packed) if packed else {}
    found: dict[str, Any] = {}
    # What is missing here hinders those only that need it: Keras names it, if it is missed.
    with contextlib.suppress(ImportError, AttributeError):
        found = cloudpickle.loads(bodies[_ALL]) if _ALL in bodies else {}
    for name, body in bodies.items():
        if name != _ALL and name not in found:
            with contextlib.suppress(ImportError, AttributeError):
                found[name] = cloudpickle.loads(body)
    return found


def is_keras(value: Any) -> bool:
    """Whether it is of a class of Keras 3 or tf_keras, or of a subclass of one."""
    return bool(_list_packages(value) & set(_KERAS))


def _list_packages(value: Any) -> set[str]:
    return {cls.__module__.split(".")[0] for cls in type(value).__mro__}


def find_own(model: Any, *, is_trained: bool = False) -> dict[str, Any]:
    """Classes and functions by the names that Keras knows them by."""
    names = _list_packages(model)
    module = next(name for name in _KERAS if name in names)
    get_name = sys.modules[module].saving.get_registered_name
    parts = [*model._flatten_layers()]
    if is_trained:
        parts += _flatten(find_compilation(model))
    found: dict[str, Any] = {}
    for part in parts:
        # A loss of Keras' own may have a function inside, an optimizer a schedule. What a function
        # has is what it was decorated with: of the same name.
        inside = vars(part).values() if hasattr(type(part), "get_config") else ()
        for one in (part, *inside):
            is_function = isinstance(one, types.FunctionType)
            if not is_function and not hasattr(type(one), "get_config"):
                continue
            own = one if is_function else type(one)
            # What has no name is not found by one.
            if own.__module__.split(".")[0] not in _KERAS and own.__name__ != "<lambda>":
                found[get_name(own)] = own
    return found


def find_compilation(model: Any) -> dict[str, Any]:
    """What a model was compiled with, as the objects themselves."""
    kept = getattr(model, "_compile_config", None)
    return {} if kept is None else dict(kept.config)


def _flatten(value: Any) -> Iterator[Any]:
    """Losses and metrics may be in lists and dicts, by output."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for one in value:
        yield from _flatten(one)


def load_with(models: Any, path: str, packed: bytes, **options: Any) -> Any:
    """What Keras loads of a file, with the classes that came with it.

    Args:
        models: The module of Keras that has load_model().
    """
    own: Mapping[str, Any] = open_classes(packed)
    return models.load_model(path, custom_objects=own or None, **options)
