"""Estimators and models of this package as stages of a Pipeline that is saved and loaded."""

from __future__ import annotations

import base64
import json
from typing import Any

from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

from tensorflowonspark.namespace import Namespace


class SavedWithPickles(MLWritable, MLReadable):  # type: ignore[type-arg]
    """Saves the Params as Spark does, and beside them the arguments and functions.

    Arguments are JSON if JSON can hold them. Functions are pickled: load only what you trust.
    """

    #: Attributes that are functions.
    _pickled: tuple[str, ...] = ()
    args: Any

    def write(self) -> MLWriter:
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        return _Reader(cls)


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        one = self._instance
        values = one.args.argv or one.args.__dict__
        extra: dict[str, Any] = {"functions": {n: _pack(getattr(one, n)) for n in one._pickled}}
        if _is_json(values):
            extra["args"] = values
        else:
            extra["pickled_args"] = _pack(values)
        DefaultParamsWriter.saveMetadata(one, path, self.sparkSession, extraMetadata=extra)


class _Reader(MLReader[Any]):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls: Any = cls

    def load(self, path: str) -> Any:
        found = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        functions = {name: _unpack(data) for name, data in found["functions"].items()}
        args = found["args"] if "args" in found else _unpack(found["pickled_args"])
        one = self._cls(**functions, tf_args=Namespace(args))
        one._resetUid(found["uid"])
        DefaultParamsReader.getAndSetParams(one, found)
        return one


def _is_json(values: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(values)) == values)
    except (TypeError, ValueError):
        return False


def _pack(value: Any) -> str:
    import cloudpickle

    return base64.b64encode(cloudpickle.dumps(value)).decode()


def _unpack(text: str) -> Any:
    import cloudpickle

    return cloudpickle.loads(base64.b64decode(text))
