"""What a fit feeds: the tables for run(), and what the trainer is told about them.

Everything that can be refused is refused here; jobs of Spark come behind what needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparktrain.data.schema import Column
from sparktrain.data.tables import Table, table
from sparktrain.driver.tables import quote
from sparktrain.errors import ConfigError, SchemaError
from sparktrain.fit_spec import TRAIN, VALIDATION, DataSpec, LabelSpec, Moments
from sparktrain.ml.columns import Chosen, check_alike, check_columns, check_names, choose
from sparktrain.ml.labels import find_classes, needs_lookup, refuse_texts, to_index
from sparktrain.ml.split import split
from sparktrain.ml.stats import find_moments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class DataWishes:
    """The Params that say what is fed, as they are."""

    features: Any
    label: Any
    weight: str | None
    validation: Any
    seed: int
    classes: Sequence[Any] | None
    standardize: Any
    shapes: Mapping[str, Any] | None
    pad: Mapping[str, Any] | None
    fill: Mapping[str, Any] | None
    #: For each output with labels: whether its loss is one of classes; None if nobody knows yet.
    is_of_classes: Mapping[str, bool | None]


@dataclass(frozen=True)
class Prepared:
    """What run() is given as data, and the trainer as a part of its arguments.

    Attributes:
        wishes: What else decides which rows are fed, and as what; for who compares fits.
    """

    tables: Mapping[str, Table]
    spec: DataSpec
    wishes: Mapping[str, Any] = field(default_factory=dict)


def prepare(frame: DataFrame, wishes: DataWishes) -> Prepared:
    """Checks the columns, splits the rows, finds classes and moments."""
    chosen = choose(wishes.features, wishes.label, wishes.weight)
    declared: dict[str, Any] = {"shapes": wishes.shapes, "pad": wishes.pad, "fill": wishes.fill}
    for what, named in declared.items():
        check_names(what, list(named or ()), chosen)
    columns = check_columns(TRAIN, frame, chosen, declared)
    standard = _choose_standard(wishes.standardize, chosen, columns)
    vectors = [name for name, one in columns.items() if one.kind == "vector"]
    train, held_out = split(frame, wishes.validation, chosen.names, vectors, wishes.seed)
    frames = {TRAIN: train}
    if held_out is not None:
        check_alike(columns, check_columns(VALIDATION, held_out, chosen, declared))
        frames[VALIDATION] = held_out
    labels = [_find_label(frames, output, columns[name], wishes) for output, name in chosen.labels]
    moments: dict[str, Moments] = {}
    if standard:
        moments = find_moments(train, [columns[name] for name in standard])
    spec = DataSpec(
        columns=chosen.features,
        labels=tuple(labels),
        feeds=chosen.feeds,
        weight=chosen.weight,
        has_validation=held_out is not None,
        moments=moments,
    )
    tables = {
        name: table(_index(one, labels, columns), columns=list(chosen.names), **declared)
        for name, one in frames.items()
    }
    kept = {"validation": wishes.validation, "seed": wishes.seed} if held_out is not None else {}
    return Prepared(tables, spec, {**declared, **kept})


def _choose_standard(standardize: Any, chosen: Chosen, columns: Mapping[str, Column]) -> list[str]:
    if standardize is True:
        return [name for name in chosen.features if columns[name].dtype != "string"]
    wished = list(standardize or ())
    for name in wished:
        if name not in chosen.features:
            raise ConfigError(
                problem=f"standardize names {name!r}, which is none of featureCols.",
                advice=f"These are {', '.join(chosen.features)}.",
            )
    return wished


def _find_label(
    frames: dict[str, DataFrame], output: str, column: Column, wishes: DataWishes
) -> LabelSpec:
    refuse_texts(column)
    is_of_classes = wishes.is_of_classes.get(output)
    # Strings can be nothing else than names of classes.
    if is_of_classes is None and (column.dtype == "string" or wishes.classes is not None):
        is_of_classes = True
    if not is_of_classes and column.dtype == "string":
        raise SchemaError(
            table=TRAIN,
            column=column.name,
            problem="It has strings as labels, but the loss is not one of classes.",
            advice="Use KerasClassifier, or a loss such as 'sparse_categorical_crossentropy'.",
        )
    if not is_of_classes:
        return LabelSpec(column.name, output)
    return find_classes(frames, output, column, wishes.classes)


def _index(
    frame: DataFrame, labels: Sequence[LabelSpec], columns: Mapping[str, Column]
) -> DataFrame:
    """Labels as positions of their classes, in the place of values of them."""
    looked_up = {
        one.column: to_index(one.column, one.classes)
        for one in labels
        if needs_lookup(one, columns[one.column])
    }
    if not looked_up:
        return frame
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

    return frame.select(
        *[
            looked_up[name].alias(name) if name in looked_up else F.col(quote(name))
            for name in columns
        ]
    )
