"""The Params of the estimators and their models: one table, from which the classes are made."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params

from sparktrain.errors import ConfigError
from sparktrain.ml.values import (
    AsIs,
    Classes,
    Columns,
    Json,
    LabelColumn,
    OneOf,
    OutputColumns,
    Patience,
    Plain,
    Seconds,
    Text,
    Validation,
    Whole,
)

C = TypeVar("C", bound=type)

#: What numpy, and so Keras, takes for a seed.
MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class Row:
    """One Param.

    Attributes:
        is_training: Whether it changes only how a model is trained, not the rows it is fed:
            candidates that differ in nothing else share a run.
    """

    name: str
    doc: str
    convert: Callable[[Any], Any]
    default: Any = None
    is_training: bool = False


def _train(name: str, doc: str, convert: Any, default: Any = None) -> Row:
    return Row(name, doc, convert, default, is_training=True)


#: What a model has as well: which columns go in, and which come out.
MODEL_ROWS = (
    Row("featureCols", "columns of features: a list, or input -> columns", Columns("featureCols")),
    Row("labelCol", "the column of labels, or output -> column", LabelColumn("labelCol")),
    Row("predictionCol", "predictions; empty for none", Text("predictionCol"), "prediction"),
    Row("probabilityCol", "probabilities of classes", Text("probabilityCol"), "probability"),
    Row("rawPredictionCol", "what the model gave", Text("rawPredictionCol"), "rawPrediction"),
    Row(
        "predictedLabelCol",
        "the name of the predicted class, if classes have names",
        Text("predictedLabelCol"),
        "predicted_label",
    ),
    Row(
        "labelIndexCol",
        "the position of the label's class, if classes have names and labels are there",
        Text("labelIndexCol"),
        "label_index",
    ),
    Row("outputCols", "output -> column, for several outputs", OutputColumns("outputCols")),
    Row("scoringBatchSize", "rows of a call of the model", Whole("scoringBatchSize"), 512),
    Row("pad", "column -> what to pad arrays of varying length with", Plain("pad")),
    Row("fill", "column -> what stands for null", Plain("fill")),
    Row("shapes", "column -> shape of a row", Plain("shapes")),
)

#: What only an estimator has.
FIT_ROWS = (
    _train("model", "a function, a Keras model, or the path of a .keras file", AsIs("model")),
    _train("modelArgs", "keyword arguments of the model function", Plain("modelArgs")),
    _train("loss", "as in compile; default: what the model is compiled with", Json("loss")),
    _train("optimizer", "as in compile", Json("optimizer")),
    _train("metrics", "as in compile", Json("metrics")),
    _train("lossWeights", "as in compile", Json("lossWeights")),
    _train("learningRate", "of the optimizer: a number or a schedule", Json("learningRate")),
    _train("batchSize", "rows of a step, over all workers", Whole("batchSize"), 32),
    _train("epochs", "passes over the rows", Whole("epochs"), 1),
    _train("callbacks", "a list of callbacks, or a function that makes one", AsIs("callbacks")),
    _train("earlyStopping", "epochs to wait for a better loss", Patience("earlyStopping")),
    _train("timeLimit", "seconds of training", Seconds("timeLimit")),
    _train("verbose", "as in fit, for the chief's log", Whole("verbose", 0), 0),
    _train(
        "shuffle",
        "True mixes within 10,000 rows, a number within so many, False keeps the order",
        OneOf("shuffle", "True, False, or how many rows to mix within", (bool, int)),
        True,
    ),
    Row("weightCol", "the column of sample weights", Text("weightCol")),
    Row("validation", "a fraction, a boolean column, or a DataFrame", Validation("validation")),
    Row("classes", "the classes in the order of their positions", Classes("classes")),
    Row("standardize", "True, or the columns to standardise", OneOf(
        "standardize", "True, False, or a list of columns", (bool, list, tuple)), False),
    Row("numWorkers", "how many nodes train together", Whole("numWorkers"), 1),
    Row("seed", "of weights, order and the validation split", Whole("seed", 0, MAX_SEED), 0),
    Row("maxRestarts", "how often to go on after a lost node", Whole("maxRestarts", 0), 0),
    Row("runDir", "a shared folder; an unfinished fit goes on there", Text("runDir", False)),
    Row("env", "environment variables of the nodes", Plain("env")),
    Row("settings", "settings of run()", Plain("settings")),
    _train(
        "mlflow",
        "True to record each fit as a run of MLflow, or the name of an experiment",
        OneOf("mlflow", "True, False, or the name of an experiment", (bool, str)),
        False,
    ),
    Row("tensorboard", "whether TensorBoard runs, or the path of what it shows", OneOf(
        "tensorboard", "True, False, or a path", (bool, str, os.PathLike)), False),
    Row("progress", "what the driver shows, as in run()", OneOf(
        "progress", "True, False, 'live', 'plain' or 'off'", (bool, str))),
)  # fmt: skip


class TableParams(Params):
    """Params of the table: None stands for the default of each."""

    def _set(self, **given: Any) -> Any:
        for name in [name for name, value in given.items() if value is None]:
            self.clear(getattr(self, name))
            del given[name]
        return super()._set(**given)


def with_params(*rows: Row) -> Callable[[C], C]:
    """Adds to a class of Params, for each row, the Param with its setter and getter."""

    def add(cls: C) -> C:
        for row in rows:
            _add(cls, row)
        before: tuple[Row, ...] = getattr(cls, "rows", ())
        cls.rows = (*before, *rows)  # type: ignore[attr-defined]
        return cls

    return add


def _add(cls: type, row: Row) -> None:
    name, suffix = row.name, row.name[0].upper() + row.name[1:]

    def set_value(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def get_value(self: Any) -> Any:
        return self.getOrDefault(name)

    set_value.__doc__ = f"Sets {name}: {row.doc}."
    get_value.__doc__ = f"Gets {name}: {row.doc}."
    param: Param[Any] = Param(Params._dummy(), name, row.doc, typeConverter=row.convert)
    members: tuple[tuple[str, Any], ...] = (
        (name, param),
        (f"set{suffix}", set_value),
        (f"get{suffix}", get_value),
    )
    for key, member in members:
        if callable(member):
            member.__name__, member.__qualname__ = key, f"{cls.__name__}.{key}"
        setattr(cls, key, member)


def set_defaults(owner: Any) -> None:
    owner._setDefault(**{row.name: row.default for row in type(owner).rows})


def set_given(owner: Any, given: dict[str, Any]) -> None:
    """Sets what was given by keyword; raises ConfigError for a name that is no Param."""
    known = [row.name for row in type(owner).rows]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {close[0]}? " if close else ""
            raise ConfigError(
                problem=f"{type(owner).__name__} got an unknown parameter {name!r}.",
                advice=f"{hint}Parameters are {', '.join(sorted(known))}.",
            )
    owner._set(**given)


def make_signature(rows: tuple[Row, ...]) -> inspect.Signature:
    """What help() and editors show of a constructor that takes the Params by keyword."""
    kind = inspect.Parameter.KEYWORD_ONLY
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = [inspect.Parameter(row.name, kind, default=row.default) for row in rows]
    return inspect.Signature([own, *rest])
