"""Errors of TensorFlow about labels, in words that name the column and the label."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparktrain.data.views import Ragged, to_numpy
from sparktrain.errors import SchemaError
from sparktrain.fit_spec import CLASSIFICATION, TRAIN, VALIDATION
from sparktrain.trainer.fit_labels import LabelPlan

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context


@contextlib.contextmanager
def explaining(context: Context, labels: Sequence[LabelPlan]) -> Iterator[None]:
    """Around fit: if it failed, or went to NaN, because of a label, says so."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.InvalidArgumentError, FloatingPointError) as error:
        found = find_bad_label(context, labels)
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


def _find_bad(values: Any, num_classes: int) -> float | None:
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        return None  # places of one that is one, or of many
    numbers = values.astype("float64")
    is_bad = ~((numbers >= 0) & (numbers < num_classes) & (numbers == np.floor(numbers)))
    places = np.flatnonzero(is_bad)
    return float(numbers[places[0]]) if len(places) else None
