"""Errors of TensorFlow about rows, in words that name the column and the value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparktrain.data.views import Ragged, to_numpy
from sparktrain.errors import SchemaError
from sparktrain.fit_spec import CLASSIFICATION, TRAIN, VALIDATION
from sparktrain.trainer.fit_casts import Limits, find_limits, find_odd
from sparktrain.trainer.fit_inputs import InputPlan
from sparktrain.trainer.fit_labels import LabelPlan

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context


@contextlib.contextmanager
def explaining(
    context: Context, inputs: Sequence[InputPlan], labels: Sequence[LabelPlan]
) -> Iterator[None]:
    """Around fit: if it failed, or went to NaN, because of a value or a label, says so."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.InvalidArgumentError, FloatingPointError) as error:
        found = find_bad_label(context, labels) or find_bad_value(context, inputs, labels)
        if found is None:
            raise
        raise found from error


def find_bad_label(context: Context, labels: Sequence[LabelPlan]) -> SchemaError | None:
    """The first label on this worker that is not a position of a class."""
    tables: dict[str, Any] = context.feed.tables
    for name in (TRAIN, VALIDATION):
        for plan in labels:
            if plan.task != CLASSIFICATION or name not in tables:
                continue
            for block in tables[name].blocks_here():
                values = to_numpy(block, tables[name].columns)[plan.spec.column]
                bad = None if isinstance(values, Ragged) else _find_bad(values, plan.num_classes)
                if bad is not None:
                    return SchemaError(
                        table=name,
                        column=plan.spec.column,
                        problem=f"It has the label {bad:g}, but the model's output"
                        f" {plan.output!r} has {plan.num_classes} classes.",
                        advice=f"Expected whole numbers from 0 to {plan.num_classes - 1}; or"
                        " strings, which KerasClassifier gives numbers to.",
                    )
    return None


def find_bad_value(
    context: Context, inputs: Sequence[InputPlan], labels: Sequence[LabelPlan]
) -> SchemaError | None:
    """The first value on this worker that the model's type does not have."""
    wanted = [(name, f"input {one.name!r}", one.dtype) for one in inputs for name in one.columns]
    wanted += [(one.spec.column, f"output {one.output!r}", one.dtype) for one in labels]
    for table in (TRAIN, VALIDATION):
        for name, place, dtype in wanted if table in context.feed.tables else ():
            found = _find_odd(context, table, name, dtype)
            if found is not None:
                odd, (low, high) = found
                return SchemaError(
                    table=table,
                    column=name,
                    problem=f"It has the value {odd}, but the model's {place} takes {dtype}: whole"
                    f" numbers from {low} to {high}.",
                    advice="Round or cast the column in Spark, or give the model another type.",
                )
    return None


def _find_odd(context: Context, table: str, name: str, dtype: str) -> tuple[float, Limits] | None:
    source: Any = context.feed.tables[table]
    column = next(one for one in source.columns if one.name == name)
    limits = find_limits(column.dtype, dtype)
    if limits is None:
        return None
    for block in source.blocks_here():
        values = to_numpy(block, [column])[name]
        odd = find_odd(values.values if isinstance(values, Ragged) else values, limits)
        if odd is not None:
            return odd, limits
    return None


def _find_bad(values: Any, num_classes: int) -> float | None:
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        return None  # places of one that is one, or of many
    numbers = values.astype("float64")
    is_bad = ~((numbers >= 0) & (numbers < num_classes) & (numbers == np.floor(numbers)))
    places = np.flatnonzero(is_bad)
    return float(numbers[places[0]]) if len(places) else None
