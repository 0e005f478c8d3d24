"""What the Params of an estimator take: each converter checks a value and says what it expected.

Instances, not functions: a Param is copied and pickled with its converter.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.errors import ConfigError
from sparktrain.ml.packing import to_json


def refuse(name: str, value: Any, expected: str) -> ConfigError:
    shown = repr(value)
    shown = shown if len(shown) < 200 else f"{shown[:200]} ..."
    return ConfigError(problem=f"The parameter {name} got {shown}.", advice=f"Expected {expected}.")


@dataclass(frozen=True)
class Whole:
    """A whole number of at least `least`."""

    name: str
    least: int = 1
    most: int | None = None

    def __call__(self, value: Any) -> int:
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        is_whole = is_number and math.isfinite(value) and value == int(value)
        limit = "" if self.most is None else f" and at most {self.most}"
        if not is_whole or value < self.least or (self.most is not None and value > self.most):
            raise refuse(self.name, value, f"a whole number of at least {self.least}{limit}")
        return int(value)


@dataclass(frozen=True)
class Seconds:
    """A number above zero."""

    name: str

    def __call__(self, value: Any) -> float:
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value <= 0:
            raise refuse(self.name, value, "a number of seconds above zero")
        return float(value)


@dataclass(frozen=True)
class Text:
    name: str
    is_column: bool = True

    def __call__(self, value: Any) -> str:
        if not isinstance(value, str):
            what = "the name of a column" if self.is_column else "a text"
            raise refuse(self.name, value, what)
        return str(value)


@dataclass(frozen=True)
class Columns:
    """Names of columns: a list, or a dict from a name to one or several of them."""

    name: str

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return [value]
        if isinstance(value, Mapping) and value:
            return {self._name(key): self._list(one) for key, one in value.items()}
        return self._list(value)

    def _list(self, value: Any) -> list[str]:
        names = [value] if isinstance(value, str) else value
        is_list = isinstance(names, Sequence) and not isinstance(names, (bytes, Mapping))
        if not is_list or not names or not all(isinstance(one, str) for one in names):
            expected = "names of columns, or a dict from an input to its columns"
            raise refuse(self.name, value, expected)
        if len(set(names)) != len(names):
            raise refuse(self.name, value, "each column once")
        return [str(one) for one in names]

    def _name(self, value: Any) -> str:
        if not isinstance(value, str):
            raise refuse(self.name, value, "names of inputs as text")
        return value


@dataclass(frozen=True)
class LabelColumn:
    """The name of a column, or a dict from an output to one."""

    name: str

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str) and value:
            return value
        is_dict = isinstance(value, Mapping) and value
        if not is_dict or not all(isinstance(one, str) for pair in value.items() for one in pair):
            raise refuse(
                self.name, value, "the name of a column, or a dict from an output to a column"
            )
        return dict(value)


@dataclass(frozen=True)
class OutputColumns:
    """A dict from an output to the column it becomes; an empty name leaves it out."""

    name: str

    def __call__(self, value: Any) -> dict[str, str]:
        is_dict = isinstance(value, Mapping)
        if not is_dict or not all(isinstance(one, str) for pair in value.items() for one in pair):
            raise refuse(self.name, value, "a dict from an output of the model to a column")
        return dict(value)


@dataclass(frozen=True)
class OneOf:
    """A number in a range, or one of some other things."""

    name: str
    expected: str
    kinds: tuple[type, ...]

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, self.kinds) or (isinstance(value, int) and value < 0):
            raise refuse(self.name, value, self.expected)
        return os.fspath(value) if isinstance(value, os.PathLike) else value  # it may be saved


@dataclass(frozen=True)
class Validation:
    """A fraction, the name of a column, or a DataFrame."""

    name: str

    def __call__(self, value: Any) -> Any:
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if is_number and 0 <= value < 1:
            return float(value)
        if isinstance(value, str) and value:
            return value
        if hasattr(value, "mapInArrow") and hasattr(value, "schema"):
            return value
        raise refuse(
            self.name, value, "a fraction below 1, the name of a boolean column, or a DataFrame"
        )


@dataclass(frozen=True)
class Json:
    """Plain values, with objects of Keras and functions inside turned into plain values."""

    name: str
    expected: str = "plain values"

    def __call__(self, value: Any) -> Any:
        return to_json(self.name, value)


@dataclass(frozen=True)
class Classes:
    """A list of names of classes, or of numbers."""

    name: str

    def __call__(self, value: Any) -> list[Any]:
        listed = value.tolist() if isinstance(value, np.ndarray) else value
        is_list = isinstance(listed, (list, tuple)) and len(listed) > 0
        given = listed if is_list else ()
        found = [one.item() if isinstance(one, np.generic) else one for one in given]
        is_of_one_kind = any(
            all(isinstance(one, kind) for one in found) for kind in (str, (int, float))
        )
        if not is_list or not is_of_one_kind:
            raise refuse(self.name, value, "a list of strings, or of numbers")
        return found


@dataclass(frozen=True)
class Plain:
    """A dict of plain values."""

    name: str

    def __call__(self, value: Any) -> dict[str, Any]:
        is_dict = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        if not is_dict or not _is_json(value):
            raise refuse(self.name, value, "a dict of plain values (numbers, texts, lists)")
        return dict(value)


@dataclass(frozen=True)
class Patience:
    """Epochs to wait, or a dict of the arguments of keras.callbacks.EarlyStopping."""

    name: str

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Mapping) and _is_json(value):
            return dict(value)
        try:
            return Whole(self.name, 0)(value)
        except ConfigError:
            expected = "how many epochs to wait, or a dict of EarlyStopping's arguments"
            raise refuse(self.name, value, expected) from None


@dataclass(frozen=True)
class AsIs:
    """Whatever it is, paths as text: it is looked at when a fit begins."""

    name: str

    def __call__(self, value: Any) -> Any:
        return str(value) if isinstance(value, Path) else value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
