"""What a scoring task is told: which model, what goes in, what comes out. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: What a model can be.
KERAS, SAVED_MODEL, WEIGHTS = "keras", "saved_model", "weights"
#: What can be made of an output.
AS_IS, VALUE, ARGMAX, CLASS, TOP_K, PROBABILITIES, FIRST = (
    "as_is",
    "value",
    "argmax",
    "class",
    "top_k",
    "probabilities",
    "first",
)


@dataclass(frozen=True)
class ModelSource:
    """A model on its way to the workers.

    Attributes:
        kind: KERAS for a file of Keras, SAVED_MODEL for a folder, WEIGHTS for a file of weights
            with a function that builds the model.
        name: As the user knows it; for messages.
        key: The same key is the same model: workers keep what they have loaded by it.
        path: Where workers read it; empty if it travels with the task.
        packed: The file itself, or the folder as a zip, if it travels with the task.
        build: cloudpickle of the function, for WEIGHTS.
        classes: Those of the user's own that a model is made of, for KERAS.
        signature: Of a SavedModel.
        layers: Layers whose outputs are asked for as well.
        python_path: The driver's import path: workers on the same machine find classes of the
            user's own modules there.
    """

    kind: str
    name: str
    key: str
    path: str = ""
    packed: bytes = field(default=b"", repr=False)
    build: bytes = field(default=b"", repr=False)
    classes: bytes = field(default=b"", repr=False)
    signature: str = "serving_default"
    layers: tuple[str, ...] = ()
    python_path: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model, as one row has it.

    Attributes:
        shape: Without the batch; None where lengths vary.
        is_ragged: Whether rows of one batch may have different lengths.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] = ()
    is_ragged: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TensorInfo:
        return cls(**{**values, "shape": tuple(values["shape"])})


@dataclass(frozen=True)
class ModelInfo:
    """What goes into a model and what comes out of it.

    Attributes:
        fixed_batch: How many rows every call must have; None for any number.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    fixed_batch: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelInfo:
        return cls(
            tuple(TensorInfo.from_dict(one) for one in values["inputs"]),
            tuple(TensorInfo.from_dict(one) for one in values["outputs"]),
            values.get("fixed_batch"),
        )


@dataclass(frozen=True)
class Pick:
    """A column that is made of an output of the model.

    Attributes:
        output: The model's name of it.
        column: The name of the column.
        how: AS_IS; VALUE for the one value of a row, in its own type; FIRST for that as a double;
            ARGMAX for the position of the largest value, as a double; CLASS for its name; TOP_K for
            structs of class and score; PROBABILITIES for values that add up to one, of scores or of
            a single probability.
        classes: Names of the positions, for CLASS and TOP_K.
        k: How many, for TOP_K.
        is_logits: Whether the output is not yet a probability, for PROBABILITIES and TOP_K.
        spark_type: What to cast the column to, as DDL; empty for what it is.
    """

    output: str
    column: str
    how: str = AS_IS
    classes: tuple[Any, ...] = ()
    k: int = 0
    is_logits: bool = False
    spark_type: str = ""
