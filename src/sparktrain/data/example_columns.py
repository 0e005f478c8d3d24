"""Columns of Arrow data from the features of many Examples."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktrain.data.example_lists import read_lists
from sparktrain.data.example_scan import BYTES, FLOAT, INT64, KIND_NAMES, Block, Spans


class Problems:
    """What is wrong with rows: the first thing for each."""

    def __init__(self) -> None:
        self.by_row: dict[int, str] = {}

    def add(self, rows: Any, what: str) -> None:
        for row in rows:
            self.by_row.setdefault(int(row), what)


def make_column(
    block: Block, name: str, spans: Spans, kind: pa.DataType, problems: Problems
) -> pa.Array:
    """The column; null where the feature is missing, has no kind, or is a problem."""
    is_list = pa.types.is_list(kind)
    element = kind.value_type if is_list else kind
    parts: list[pa.Array] = []
    places = np.full(len(block), -1, np.int64)
    filled = 0
    for source in (BYTES, FLOAT, INT64):
        rows = np.flatnonzero(spans.kinds == source)
        if not len(rows):
            continue
        lists, malformed = read_lists(block, source, spans.starts[rows], spans.ends[rows])
        problems.add(rows[malformed], f"feature {name!r} is not a list of {KIND_NAMES[source]}")
        values, is_bad = convert(source, lists.values, element)
        counts = np.diff(lists.offsets.to_numpy())
        if is_bad.any():
            owners = np.repeat(np.arange(len(rows)), counts)[is_bad]
            what = f"feature {name!r} ({KIND_NAMES[source]}) has a value that is no {element}"
            problems.add(rows[np.unique(owners)], what)
        if is_list:
            parts.append(pa.ListArray.from_arrays(lists.offsets, values).cast(kind))
            places[rows] = filled + np.arange(len(rows))
            filled += len(rows)
            continue
        many = np.flatnonzero(counts > 1)
        if len(many):
            what = f"feature {name!r} has {counts[many[0]]} values where one is expected"
            problems.add(rows[many], what)
        one = counts == 1
        starts = lists.offsets.to_numpy()[:-1]
        parts.append(values)
        places[rows[one]] = filled + starts[one]
        filled += len(values)
    if len(parts) == 1 and filled == len(block) and (places == np.arange(len(block))).all():
        return parts[0]
    whole = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    return whole.take(pa.array(places, mask=places < 0))


def convert(source: int, values: pa.Array, target: pa.DataType) -> tuple[pa.Array, Any]:
    """The values as the target type, and which of them cannot be, as a mask: they are null."""
    is_bad = np.zeros(len(values), bool)
    if values.type == target:
        return values, is_bad
    if pa.types.is_decimal(target):
        return _each(values, lambda value: _to_decimal(value, target), target)
    if source == BYTES:
        if not pa.types.is_string(target):
            return pa.nulls(len(values), target), ~is_bad
        try:
            return values.cast(target), is_bad
        except pa.ArrowInvalid:
            return _each(values, lambda value: value.decode(), target)
    if pa.types.is_string(target) or pa.types.is_binary(target):
        return values.cast(pa.string()).cast(target), is_bad
    if pa.types.is_floating(target):
        return values.cast(target, safe=False), is_bad
    if source == FLOAT:
        return pa.nulls(len(values), target), ~is_bad
    if pa.types.is_boolean(target):
        return pc.not_equal(values, 0), is_bad
    if pa.types.is_timestamp(target):
        return values.view(target), is_bad
    width = 32 if pa.types.is_date32(target) else target.bit_width
    numbers = values.to_numpy()
    is_bad = (numbers < -(1 << (width - 1))) | (numbers >= 1 << (width - 1))
    narrow = pa.array(np.where(is_bad, 0, numbers).astype(f"i{width // 8}"), mask=is_bad)
    return narrow.cast(target), is_bad


def _each(values: pa.Array, make: Any, target: pa.DataType) -> tuple[pa.Array, Any]:
    """One value after the other, for what Arrow cannot do or where some values are bad."""
    made: list[Any] = []
    for value in values.to_pylist():
        try:
            made.append(make(value))
        except (ValueError, ArithmeticError):
            made.append(None)
    return pa.array(made, target), np.array([value is None for value in made], bool)


def _to_decimal(value: Any, target: pa.DataType) -> decimal.Decimal:
    """Exactly, from text and whole numbers; a float, as old files have them, is rounded."""
    exact = decimal.Decimal(value.decode() if isinstance(value, bytes) else value)
    with decimal.localcontext(prec=76):
        scaled = exact.quantize(decimal.Decimal(1).scaleb(-target.scale))
        if not isinstance(value, float) and scaled != exact:
            raise ValueError(f"{exact} has more digits than {target}")
        if len(scaled.as_tuple().digits) > target.precision:
            raise ValueError(f"{exact} is too large for {target}")
    return scaled
