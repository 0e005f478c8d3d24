"""Values as the files of an experiment have them: JSON, which every reader of it takes."""

from __future__ import annotations

import json
import math
import os
from typing import Any

#: JSON has no such numbers; they are written as these texts, which float() reads.
_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def to_plain(value: Any) -> Any:
    """Numbers of numpy and TensorFlow become Python's, others their text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(_mark(to_plain(value)), indent=indent, allow_nan=False)


def from_json(data: str | bytes) -> Any:
    """What to_json() wrote, with the numbers that JSON has not."""
    return _unmark(json.loads(data))


def _mark(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mark(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_mark(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value


def _unmark(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmark(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_unmark(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
