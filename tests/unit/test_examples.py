"""Examples read and written many at a time; tf.train.Example is the judge."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as some

from record_cases import LISTS, TYPES, make_block
from sparktrain.data import varints
from sparktrain.data.example_columns import Problems, make_values
from sparktrain.data.example_encode import encode_examples
from sparktrain.data.example_parse import BYTES, FLOAT, INT64, MISSING, NO_KIND
from sparktrain.data.example_scan import Scanner, Spans

numbers = some.one_of(
    some.integers(-(2**63), 2**63 - 1), some.integers(-3, 300), some.just(2**63 - 1)
)
floats = some.floats(width=32, allow_nan=False)
values = {
    BYTES: some.lists(some.binary(max_size=300), max_size=12),
    FLOAT: some.lists(floats, max_size=12),
    INT64: some.lists(numbers, max_size=12),
}
#: A kind and its values; NO_KIND has none.
features = some.one_of(
    *(some.tuples(some.just(kind), found) for kind, found in values.items()),
    some.just((NO_KIND, [])),
)
names = some.sampled_from(["a", "bb", "label", "image/encoded", "é", "", "n" * 200])
rows = some.lists(some.dictionaries(names, features, max_size=5), max_size=40)


def make_feature(kind: int, values: list[Any]) -> Any:
    feature = tf.train.Feature()
    if kind != NO_KIND:
        found = getattr(feature, LISTS[kind])
        found.SetInParent()
        found.value.extend(values)
    return feature


def make_record(row: dict[str, tuple[int, list[Any]]]) -> bytes:
    example = tf.train.Example()
    for name, (kind, values) in row.items():
        example.features.feature[name].CopyFrom(make_feature(kind, values))
    return bytes(example.SerializeToString())


def decode(records: list[bytes]) -> tuple[list[dict[str, Any]], set[int]]:
    """What is read of each row, as kinds and values; and which rows are malformed."""
    block = make_block(records)
    scanner = Scanner()
    scanner.scan(block)
    scanned = scanner.scan(block)  # again, with what it remembers of the first time
    malformed = scanned.malformed
    found: list[dict[str, Any]] = [{} for _ in records]
    problems = Problems()
    for name, one in scanned.features.items():
        for kind, element in TYPES.items():
            only = Spans(np.where(one.kinds == kind, kind, MISSING), one.starts, one.ends)
            column = make_values(block, name, only, pa.list_(element), problems)
            column.validate(full=True)
            for row, values in enumerate(column.to_pylist()):
                if values is not None:
                    found[row][name] = (kind, values)
        for row in np.flatnonzero(one.kinds == NO_KIND):
            found[row][name] = (NO_KIND, [])
    return found, {int(row) for row in np.flatnonzero(malformed)} | set(problems.by_row)


@settings(max_examples=150, deadline=None)
@given(rows)
def test_what_tensorflow_writes_is_read(rows: list[dict[str, Any]]) -> None:
    found, malformed = decode([make_record(row) for row in rows])
    assert found == rows and not malformed


def test_rows_in_any_order_of_names_and_with_any_left_out() -> None:
    """More orders than are tried in step: the rest is read one by one."""
    chance = random.Random(1)
    names = [f"f{number}" for number in range(8)]
    rows = []
    for number in range(500):
        chosen = chance.sample(names, chance.randint(0, 8))
        rows.append({name: (INT64, [number, len(name)]) for name in chosen})
    entries = [
        [
            tf.train.Features(feature={name: make_feature(*feature)}).SerializeToString()
            for name, feature in row.items()
        ]
        for row in rows
    ]
    records = []
    for row in entries:
        body = b"".join(row)
        records.append(b"\x0a" + bytes(varints.encode(np.array([len(body)]))[0]) + body)
    found, malformed = decode(records)
    assert found == rows and not malformed


@settings(max_examples=150, deadline=None)
@given(some.data())
def test_what_is_written_tensorflow_reads(data: some.DataObject) -> None:
    kinds = data.draw(some.dictionaries(names, some.sampled_from(list(TYPES)), max_size=4))
    size = data.draw(some.integers(0, 20))
    columns: list[pa.Array] = []
    for kind in kinds.values():
        if data.draw(some.booleans()):
            row: Any = some.none() | values[kind]
            column = pa.array(
                data.draw(some.lists(row, min_size=size, max_size=size)), pa.list_(TYPES[kind])
            )
        else:
            row = some.none() | values[kind].filter(len).map(lambda found: found[0])
            column = pa.array(data.draw(some.lists(row, min_size=size, max_size=size)), TYPES[kind])
        columns.append(column)
    # A slice, as Arrow's arrays often are: what is outside it must not show.
    skipped = data.draw(some.integers(0, size))
    columns = [column.slice(skipped) for column in columns]
    written = encode_examples(list(kinds), columns, size - skipped).join().to_pylist()
    assert len(written) == size - skipped
    for number, record in enumerate(written):
        example = tf.train.Example.FromString(record)
        found = {
            name: (
                feature.WhichOneof("kind"),
                list(getattr(feature, feature.WhichOneof("kind")).value),
            )
            for name, feature in example.features.feature.items()
        }
        expected = {}
        for (name, kind), column in zip(kinds.items(), columns, strict=True):
            value = column[number].as_py()
            if value is not None:
                whole = value if pa.types.is_list(column.type) else [value]
                expected[name] = (LISTS[kind], whole)
        assert found == expected


@settings(max_examples=400, deadline=None)
@given(rows, some.data())
def test_damaged_records_are_read_or_told_but_never_break(
    rows: list[dict[str, Any]], data: some.DataObject
) -> None:
    records = [make_record(row) for row in rows]
    for number in data.draw(some.lists(some.integers(0, 1000), max_size=5)):
        if records:
            broken = bytearray(records[number % len(records)])
            place = data.draw(some.integers(0, len(broken)))
            broken[place : place + data.draw(some.integers(0, 3))] = data.draw(
                some.binary(max_size=4)
            )
            records[number % len(records)] = bytes(broken)
    found, malformed = decode(records)
    for number, record in enumerate(records):
        try:
            example = tf.train.Example.FromString(record)
        except Exception:
            continue  # no word of ours is needed for what the format itself allows in places
        if number in malformed:
            continue
        expected = {}
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            numbers = {value: key for key, value in LISTS.items()}
            if kind is None:
                expected[name] = (NO_KIND, [])
            else:
                expected[name] = (numbers[kind], list(getattr(feature, kind).value))
        assert repr(found[number]) == repr(expected) or found[number] == expected


@pytest.mark.parametrize(
    "record",
    [
        b"\xff",
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a" + b"\x80" * 12,
        b"\x0a\x02\x0a\x05",
        b"\x03\x00",
        b"\x00",
    ],
)
def test_what_is_no_example_is_told(record: bytes) -> None:
    good = make_record({"a": (INT64, [1])})
    found, malformed = decode([good, record, good])
    assert malformed == {1} and found == [{"a": (INT64, [1])}, {}, {"a": (INT64, [1])}]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**14 - 1, 2**14, 2**63 - 1, -1, -(2**63)])
def test_varints_come_back(number: int) -> None:
    data, sizes = varints.encode(np.array([number, 5, number]))
    assert list(varints.sizes_of(np.array([number, 5, number]))) == list(sizes)
    found, ends, is_long = varints.decode(data)
    assert list(found) == [number, 5, number] and not is_long.any()
    assert list(ends) == list(np.cumsum(sizes))
