"""What an estimator tells the trainer: which columns, which model, how to train. Plain values.

A loss is known by its name on both sides: the driver looks for classes if it is one of them, and
the trainer gives labels the form it wants.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Names of the tables of a fit.
TRAIN, VALIDATION = "train", "validation"
#: Where candidates that are done wait for the end of their run, below the run directory.
DONE_FOLDER = "candidates"
#: What a task may be.
CLASSIFICATION, REGRESSION, VALUES = "classification", "regression", "values"
#: What labels a loss takes: those of classes; a number for each value of an output, of whatever
#: kind; or none that a column of classes could be.
SPARSE, CATEGORICAL, BINARY = "sparse", "categorical", "binary"
EACH, NO_CLASSES = "each", "no classes"

_KINDS = {
    "sparsecategoricalcrossentropy": SPARSE,
    "categoricalgeneralizedcrossentropy": SPARSE,
    "categoricalcrossentropy": CATEGORICAL,
    "categoricalfocalcrossentropy": CATEGORICAL,
    "binarycrossentropy": BINARY,
    "binaryfocalcrossentropy": BINARY,
    "bce": BINARY,
    **dict.fromkeys(("circle", "ctc"), NO_CLASSES),
    **dict.fromkeys(("mse", "mae", "mape", "msle", "kld"), EACH),
    **dict.fromkeys(("meansquarederror", "meanabsoluteerror", "huber", "logcosh"), EACH),
    **dict.fromkeys(("meanabsolutepercentageerror", "meansquaredlogarithmicerror"), EACH),
    **dict.fromkeys(("kldivergence", "poisson", "cosinesimilarity"), EACH),
    **dict.fromkeys(("hinge", "squaredhinge", "categoricalhinge", "dice", "tversky"), EACH),
}
#: They compare scores of any size, of which zero is the limit between two classes.
_MARGINS = ("hinge", "squaredhinge", "categoricalhinge")


@dataclass(frozen=True)
class LossKind:
    """What is known of a loss: the labels it takes, and whether outputs are scores of any size.

    Attributes:
        labels: Empty for a loss that is none of Keras' own.
        ignored: A label that is left out, whether it is a class or not.
    """

    labels: str = ""
    is_logits: bool = False
    name: str = field(default="", compare=False)
    ignored: int | None = None

    @property
    def is_of_classes(self) -> bool:
        return self.labels in (SPARSE, CATEGORICAL, BINARY)


def find_kind(loss: Any) -> LossKind:
    """The kind of a loss: its name, what Keras serialised of it, the object or the function."""
    config: Any = {}
    if isinstance(loss, functools.partial):
        loss, config = loss.func, loss.keywords
    elif hasattr(loss, "get_config"):
        config = loss.get_config()
    if isinstance(loss, Mapping):
        config = loss.get("config")
        if loss.get("class_name") == "function":
            return find_kind(config)
        name = str(loss.get("class_name", ""))
        if "pickled" in loss and str(loss.get("name")).startswith("keras."):
            name = loss["name"].rsplit(".", 1)[-1]  # with arguments: functools.partial
    elif isinstance(loss, str):
        name = loss
    else:
        name = getattr(loss, "__name__", type(loss).__name__)
    plain = name.replace("_", "").lower()
    given = config if isinstance(config, Mapping) else {}
    is_logits = given.get("from_logits", getattr(loss, "from_logits", plain in _MARGINS))
    return LossKind(_KINDS.get(plain, ""), bool(is_logits), name, given.get("ignore_class"))


def split_loss(loss: Any, outputs: tuple[str, ...]) -> tuple[Any, ...]:
    """The loss of each output: one for all, or a list or dict of them."""
    if isinstance(loss, Mapping) and "class_name" not in loss:
        return tuple(loss.get(name) for name in outputs)
    if isinstance(loss, (list, tuple)) and len(loss) == len(outputs):
        return tuple(loss)
    return (loss,) * len(outputs)


@dataclass(frozen=True)
class LabelSpec:
    """One column of labels.

    Attributes:
        output: The output it belongs to; empty for the model's only one.
        num_classes: How many classes there are, if labels are positions of them that the driver
            has looked at.
        classes: Their names, if labels have names.
    """

    column: str
    output: str = ""
    num_classes: int | None = None
    classes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Moments:
    """Mean and variance of the values of a column, by their position in a row."""

    mean: tuple[float, ...]
    variance: tuple[float, ...]


@dataclass(frozen=True)
class DataSpec:
    """What is fed.

    Attributes:
        columns: The columns of features, in order.
        feeds: Input -> its columns, if the user named inputs.
        labels: One for each output that has a loss.
        moments: Of columns to be standardised.
    """

    columns: tuple[str, ...]
    labels: tuple[LabelSpec, ...]
    feeds: Mapping[str, tuple[str, ...]] | None = None
    weight: str | None = None
    has_validation: bool = False
    moments: Mapping[str, Moments] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that is fed, once."""
        wished = [*self.columns, *(label.column for label in self.labels)]
        wished += [self.weight] if self.weight is not None else []
        return tuple(dict.fromkeys(wished))


@dataclass(frozen=True)
class ModelPart:
    """The model to train: a pickled function with its arguments, or a file of Keras.

    Attributes:
        classes: What the model in the file is made of and compiled with that is the user's own,
            pickled; empty if there is none.
    """

    name: str
    function: bytes = field(default=b"", repr=False)
    args: Mapping[str, Any] = field(default_factory=dict)
    file: bytes = field(default=b"", repr=False)
    classes: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Candidate:
    """One training.

    Attributes:
        loss, optimizer, metrics, loss_weights, learning_rate: As Keras takes them, or what it
            serialised of them; None to keep what the model was compiled with.
        callbacks: A pickled list of callbacks, or of a function that makes one; empty for none.
        window: Rows to shuffle within; 0 keeps the order.
        patience: Arguments of early stopping; None for none.
        is_of_classes: What the user said about labels; None if the loss says.
    """

    model: ModelPart
    batch_size: int
    epochs: int
    seed: int
    loss: Any = None
    optimizer: Any = None
    metrics: Any = None
    loss_weights: Any = None
    learning_rate: Any = None
    callbacks: bytes = field(default=b"", repr=False)
    window: int = 0
    patience: Mapping[str, Any] | None = None
    time_limit_s: float | None = None
    verbose: int = 0
    is_of_classes: bool | None = None


@dataclass(frozen=True)
class FitSpec:
    """Candidates that are trained one after the other on the same rows."""

    data: DataSpec
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Fitted:
    """What became of a candidate.

    Attributes:
        model: The file of Keras.
        contract: What goes in and comes out, as JSON takes it.
        summary: As Keras prints it.
        stopped: Why training ended before its last epoch; empty if it did not.
        classes: The user's own that the model is made of, pickled; empty if there are none.
    """

    model: bytes = field(repr=False)
    contract: Mapping[str, Any]
    summary: str = field(repr=False)
    stopped: str = ""
    classes: bytes = field(default=b"", repr=False)
