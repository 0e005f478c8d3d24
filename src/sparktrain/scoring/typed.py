"""Answers as columns of the types that were told before the job: for each row a value, or null."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.errors import ScoringError
from sparktrain.scoring.flow import Answered
from sparktrain.scoring.picks import make_column
from sparktrain.scoring.plan import Answers
from sparktrain.scoring.spec import Pick


def make_columns(answers: Answers, answered: Answered, num_rows: int) -> list[pa.Array]:
    """The columns of the answers, and that of the reasons if there is one.

    A value that its type cannot hold fails the job; where reasons are told it leaves its row
    without an answer.
    """
    arrays: list[pa.Array] = []
    reasons = dict(answered.reasons)
    if answered.values:
        good = answered.good if answered.good is not None else np.arange(num_rows)
        for pick, kind in zip(answers.picks, answers.types, strict=True):
            values = answered.values[pick.output]
            try:
                arrays.append(_cast(make_column(pick, values), pick, kind))
            except ScoringError:
                if not answers.error_column:
                    raise
                array, bad = _make_each(values, pick, kind)
                arrays.append(array)
                reasons.update({int(good[row]): why for row, why in bad.items()})
    arrays = _spread(arrays, answered, reasons, num_rows)
    if not arrays:
        arrays = [pa.nulls(num_rows, kind) for kind in answers.types]
    if answers.error_column:
        arrays.append(pa.array([reasons.get(row) for row in range(num_rows)], pa.string()))
    return arrays


def can_cast(found: pa.DataType, wished: pa.DataType) -> bool:
    """Whether values of a type can become those of another one at all; some may still not fit."""
    if pa.types.is_list(found) and pa.types.is_list(wished):
        return can_cast(found.value_type, wished.value_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wished):
        # Arrow would take fields by name, and fill those that it does not find with null.
        pairs = list(zip(found, wished, strict=False))
        is_same = [field.name for field in found] == [field.name for field in wished]
        return is_same and all(can_cast(one.type, other.type) for one, other in pairs)
    if pa.types.is_nested(found) or pa.types.is_nested(wished):
        return False
    try:
        pa.nulls(1, found).cast(wished)
    except pa.ArrowException:
        return False
    return True


def _cast(array: pa.Array, pick: Pick, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowException as error:
        raise ScoringError(
            problem=f"The output {pick.output!r} is {array.type} and the column {pick.column!r}"
            f" {kind}: {error}.",
            advice=f"Give types={{{pick.column!r}: ...}} with a type that holds the values;"
            " 'binary' for bytes that are no text.",
        ) from error


def _make_each(values: Any, pick: Pick, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """With null for rows that cannot be made or cast, and why: halves are tried until one is
    left.
    """
    pieces: list[pa.Array] = [pa.nulls(0, kind)]
    reasons: dict[int, str] = {}
    pending = [(0, len(values))] if len(values) else []
    while pending:
        start, stop = pending.pop()
        try:
            pieces.append(_cast(make_column(pick, _take(values, start, stop)), pick, kind))
        except ScoringError as error:
            if stop - start == 1:
                reasons[start] = error.problem.rstrip(".")
                pieces.append(pa.nulls(1, kind))
                continue
            middle = (start + stop) // 2
            pending += [(middle, stop), (start, middle)]
    return pa.concat_arrays(pieces), reasons


def _take(values: Any, start: int, stop: int) -> Any:
    if isinstance(values, pa.Array):
        # Not a slice: Arrow looks also at what lists have before and behind it.
        return values.take(pa.array(np.arange(start, stop)))
    return values[start:stop]


def _spread(
    arrays: list[pa.Array], answered: Answered, reasons: dict[int, str], num_rows: int
) -> list[pa.Array]:
    """To the rows that have an answer; one with a reason has none in any column."""
    if answered.good is None and not reasons:
        return arrays
    good = answered.good if answered.good is not None else np.arange(num_rows)
    places = np.full(num_rows, -1)
    places[good] = np.arange(len(good))
    places[list(reasons)] = -1
    index = pa.array(places, mask=places < 0)
    return [array.take(index) for array in arrays]
