"""Errors of TensorFlow about rows, in words that name the column and the value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

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
            if not plan.positions or name not in tables:
                continue
            for block in tables[name].blocks_here():
                values = to_numpy(block, tables[name].columns)[plan.spec.column]
                values = values.values if isinstance(values, Ragged) else values
                bad = find_odd(values, (0, plan.positions - 1))
                if bad is not None:
                    return SchemaError(
                        table=name,
                        column=plan.spec.column,
                        problem=f"It has the label {bad:g}, but the model's output"
                        f" {plan.output!r} has {plan.positions} classes.",
                        advice=_advise(plan),
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


def _advise(plan: LabelPlan) -> str:
    expected = f"Expected whole numbers from 0 to {plan.positions - 1}"
    if plan.task != CLASSIFICATION:
        return f"{expected}."
    if plan.positions == 2:
        return f"{expected}; KerasRegressor takes what is between them."
    return f"{expected}; or strings, which KerasClassifier gives numbers to."
