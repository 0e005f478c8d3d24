"""A model or callbacks as a saved estimator has them: sent to the nodes as they are, and opened
only for who asks. A search that is loaded to score has nothing to open, whatever it was made of.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from sparktrain.errors import ConfigError
from sparktrain.fit_spec import ModelPart
from sparktrain.scoring.own_classes import load_with

#: The part that is written -> the field of ModelPart.
_FIELDS = {"keras": "file", "own": "classes", "pickle": "function"}


@dataclass(frozen=True)
class Kept:
    """The value of a Param that is no JSON.

    Attributes:
        what: The name of the Param.
        part: A file of Keras, or what is pickled, as its function.
        path: Where it was loaded from; empty before it is saved.
    """

    what: str
    part: ModelPart
    path: str = ""

    def __repr__(self) -> str:
        return f"{self.part.name} of {self.path!r}"

    def to_parts(self) -> dict[str, bytes]:
        """As they are written; what is empty is left out."""
        bodies = {kind: getattr(self.part, field) for kind, field in _FIELDS.items()}
        named = {"name": self.part.name.encode(), **bodies}
        return {f"{self.what}.{kind}": body for kind, body in named.items() if body}

    @classmethod
    def from_parts(cls, what: str, parts: Mapping[str, bytes], path: str) -> Kept | None:
        """What to_parts() gave; None if it is not among them."""
        name = parts.get(f"{what}.name")
        if name is None:
            return None
        bodies: dict[str, Any] = {
            field: parts.get(f"{what}.{kind}", b"") for kind, field in _FIELDS.items()
        }
        return cls(what, ModelPart(name.decode(), **bodies), path)

    def open(self) -> Any:
        """The value itself. Code: open only what you trust."""
        try:
            if not self.part.file:
                return cloudpickle.loads(self.part.function)
            models: Any = importlib.import_module("keras.models")
            with tempfile.TemporaryDirectory(prefix="sparktrain-model-") as folder:
                path = Path(folder, "model.keras")
                path.write_bytes(self.part.file)
                return load_with(models, str(path), self.part.classes)
        except Exception as error:
            raise ConfigError(
                problem=f"The {self.what} of the estimator at {self.path!r} cannot be opened:"
                f" {type(error).__name__}: {error}.",
                advice="Make the modules it was written with importable, or set it anew.",
            ) from error
