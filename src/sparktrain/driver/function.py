"""The user's function and its own code, as they travel to the nodes."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle

from sparktrain.errors import FunctionError
from sparktrain.scoring.by_value import pickling_alone


def find_own_path(entries: list[str]) -> tuple[str, ...]:
    """Import path of the user's own code: what is not part of this Python's installation."""
    homes = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    found = [Path(entry).resolve() for entry in entries]
    return tuple(
        str(entry) for entry in found if not any(entry.is_relative_to(home) for home in homes)
    )


def pickle_function(train_fn: Any, args: Any, call: str = "run") -> bytes:
    """The function and its arguments as the trainer will open them."""
    if not callable(train_fn):
        raise FunctionError(
            problem=f"{call}() got {train_fn!r} of type {type(train_fn).__name__} to run.",
            advice="Expected a function of one argument, the context: def train(ctx): ...",
        )
    for what, value in (("function", train_fn), ("args", args)):
        try:
            dump(value)
        except Exception as error:
            name = getattr(value, "__qualname__", type(value).__qualname__)
            raise FunctionError(
                problem=f"The {what} {name!r} cannot be sent to the nodes:"
                f" {type(error).__name__}: {error}.",
                advice="It must not hold on to a SparkSession, an open file, a lock, or a model"
                " made outside. Make such things inside the function, and pass plain values"
                " with args=.",
            ) from error
    return dump((train_fn, args))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Puts the values of broadcast variables in their place: nodes do not have Spark's files."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__name__ == "Broadcast" and type(obj).__module__.startswith("pyspark."):
            return SimpleNamespace, (), {"value": obj.value}
        return super().reducer_override(obj)


def dump(value: Any) -> bytes:
    """The pickled value, as nodes can open it."""
    stream = io.BytesIO()
    with pickling_alone():
        _Pickler(stream).dump(value)
    return stream.getvalue()
