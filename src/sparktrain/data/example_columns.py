"""Columns of Arrow data from the features of many Examples."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktrain.data import varints
from sparktrain.data.example_entry import read_kinds
from sparktrain.data.example_lists import make_lists, read_lists, read_single, walk, walk_alone
from sparktrain.data.example_parse import (
    BYTES,
    FEATURE_LIST,
    FLOAT,
    INT64,
    KIND_NAMES,
    MISSING,
    MalformedError,
    parse_feature,
)
from sparktrain.data.example_scan import Scanned, Spans
from sparktrain.data.record_blocks import Block
from sparktrain.data.vectors import is_vector, make_vectors


class Problems:
    """What is wrong with rows: the first thing for each."""

    def __init__(self) -> None:
        self.by_row: dict[int, str] = {}

    def add(self, rows: Any, what: str) -> None:
        for row in rows:
            self.by_row.setdefault(int(row), what)


def make_column(
    block: Block, name: str, scanned: Scanned, kind: pa.DataType, problems: Problems
) -> pa.Array:
    """The column; null where the feature is missing, has no kind, or is a problem."""
    if is_vector(kind):
        lists = make_column(block, name, scanned, pa.list_(pa.float64()), problems)
        return make_vectors(lists, kind)
    features = scanned.features[name]
    column = make_values(block, name, features, kind, problems)
    lists = scanned.lists.get(name)
    if lists is None:
        return column
    # Of a feature that is in both, the one of the context counts.
    is_list = (lists.kinds == FEATURE_LIST) & (features.kinds == MISSING)
    if not is_list.any():
        return column
    lists = Spans(np.where(is_list, FEATURE_LIST, MISSING), lists.starts, lists.ends)
    nested = make_nested(block, name, lists, kind, problems)
    return nested if is_list.all() else pc.if_else(pa.array(is_list), nested, column)


def make_nested(
    block: Block, name: str, spans: Spans, kind: pa.DataType, problems: Problems
) -> pa.Array:
    """The column of a feature list: its features are the elements."""
    rows = np.flatnonzero(spans.kinds == FEATURE_LIST)
    if not pa.types.is_list(kind):
        problems.add(rows, f"feature {name!r} is a list of features, which is no {kind}")
        return pa.nulls(len(block), kind)
    owners, features = read_features(block, spans, rows, problems, name)
    # Each feature is a row of its own, for a while.
    found = Problems()
    alone = Block(block.data, features.starts, features.ends)
    values = make_values(alone, name, features, kind.value_type, found)
    for row, what in found.by_row.items():
        problems.add([rows[owners[row]]], what)
    counts = np.zeros(len(block), np.int64)
    counts[rows] = np.bincount(owners, minlength=len(rows))
    lists = make_lists(counts, values).cast(kind)
    if len(rows) == len(block):
        return lists
    is_there = np.zeros(len(block), bool)
    is_there[rows] = True
    return pc.if_else(pa.array(is_there), lists, pa.scalar(None, kind))


def read_features(
    block: Block, spans: Spans, rows: Any, problems: Problems, name: str
) -> tuple[Any, Spans]:
    """The features in the feature lists of these rows, and the position of each one's row."""
    starts, ends = spans.starts[rows], spans.ends[rows]
    owners, first, last, is_odd = walk(block, starts, ends)
    words = varints.words_of(block.data)
    kinds, begin, is_sound = read_kinds(block.data, words, first, last)
    if not is_sound.all():
        is_odd[owners[~is_sound]] = True
        kept = ~is_odd[owners]
        owners, kinds, begin, last = owners[kept], kinds[kept], begin[kept], last[kept]
    if not is_odd.any():
        return owners, Spans(kinds, begin, last)
    alone: list[tuple[int, int, int, int]] = []
    for position in np.flatnonzero(is_odd):
        try:
            alone += _read_alone(block, int(position), int(starts[position]), int(ends[position]))
        except MalformedError:
            problems.add([rows[position]], f"feature {name!r} is not a list of features")
    more = np.array(alone, np.int64).reshape(-1, 4)
    owners = np.concatenate([owners, more[:, 0]])
    order = np.argsort(owners, kind="stable")
    return owners[order], Spans(
        np.concatenate([kinds, more[:, 1].astype(np.uint8)])[order],
        np.concatenate([begin, more[:, 2]])[order],
        np.concatenate([last, more[:, 3]])[order],
    )


def _read_alone(
    block: Block, position: int, start: int, end: int
) -> list[tuple[int, int, int, int]]:
    found = []
    for first, last in walk_alone(block, start, end):
        feature = bytes(block.data[first:last])
        kind, begin, stop = parse_feature(feature, 0, len(feature))
        found.append((position, kind, first + begin, first + stop))
    return found


def make_values(
    block: Block, name: str, spans: Spans, kind: pa.DataType, problems: Problems
) -> pa.Array:
    """The column of single features."""
    is_list = pa.types.is_list(kind)
    element = kind.value_type if is_list else kind
    parts: list[pa.Array] = []
    places = np.full(len(spans.kinds), -1, np.int64)
    filled = 0
    for source in (BYTES, FLOAT, INT64):
        rows = np.flatnonzero(spans.kinds == source)
        if not len(rows):
            continue
        starts, ends = spans.starts[rows], spans.ends[rows]
        single = None if is_list else read_single(block, source, starts, ends)
        if single is not None:
            values, is_bad = convert(source, single, element)
            if is_bad.any():
                problems.add(rows[is_bad], _describe_bad(name, source, element))
            parts.append(values)
            places[rows] = filled + np.arange(len(rows))
            filled += len(rows)
            continue
        lists, malformed = read_lists(block, source, starts, ends)
        problems.add(rows[malformed], f"feature {name!r} is not a list of {KIND_NAMES[source]}")
        values, is_bad = convert(source, lists.values, element)
        counts = np.diff(lists.offsets.to_numpy())
        if is_bad.any():
            owners = np.repeat(np.arange(len(rows)), counts)[is_bad]
            problems.add(rows[np.unique(owners)], _describe_bad(name, source, element))
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
        begins = lists.offsets.to_numpy()[:-1]
        parts.append(values)
        places[rows[one]] = filled + begins[one]
        filled += len(values)
    if len(parts) == 1 and filled == len(places) and (places == np.arange(len(places))).all():
        return parts[0]
    whole = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    return whole.take(pa.array(places, mask=places < 0))


def _describe_bad(name: str, source: int, element: pa.DataType) -> str:
    return f"feature {name!r} ({KIND_NAMES[source]}) has a value that is no {element}"


def convert(source: int, values: pa.Array, target: pa.DataType) -> tuple[pa.Array, Any]:
    """The values as the target type, and which of them cannot be, as a mask: they are null."""
    is_bad = np.zeros(len(values), bool)
    if values.type == target:
        return values, is_bad
    if pa.types.is_null(target):
        return pa.nulls(len(values)), is_bad
    if pa.types.is_nested(target):
        return pa.nulls(len(values), target), ~is_bad
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
    if not exact.is_finite():
        raise ValueError(f"{exact} is no decimal")
    with decimal.localcontext(prec=76):
        scaled = exact.quantize(decimal.Decimal(1).scaleb(-target.scale))
        if not isinstance(value, float) and scaled != exact:
            raise ValueError(f"{exact} has more digits than {target}")
        if len(scaled.as_tuple().digits) > target.precision:
            raise ValueError(f"{exact} is too large for {target}")
    return scaled
