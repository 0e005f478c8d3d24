"""SequenceExamples read and written many at a time; tf.train.SequenceExample is the judge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as some

from record_cases import LISTS, TYPES, make_block
from sparktrain.data.example_columns import Problems, make_column
from sparktrain.data.example_encode import encode_sequences
from sparktrain.data.example_infer import Inference
from sparktrain.data.example_parse import BYTES, FLOAT, INT64, NO_KIND
from sparktrain.data.example_scan import Scanner
from sparktrain.errors import ConfigError

numbers = some.one_of(some.integers(-(2**63), 2**63 - 1), some.integers(-3, 300))
values = {
    BYTES: some.lists(some.binary(max_size=200), max_size=5),
    FLOAT: some.lists(some.floats(width=32, allow_nan=False), max_size=5),
    INT64: some.lists(numbers, max_size=5),
}
names = some.sampled_from(["a", "bb", "frames/rgb", "é", "n" * 150])
#: The features of one list are of one kind, or have none.
steps = some.one_of(
    *(
        some.tuples(some.just(kind), some.lists(some.none() | found, max_size=14))
        for kind, found in values.items()
    )
)
rows = some.lists(some.dictionaries(names, steps, max_size=4), max_size=25)


def make_record(row: dict[str, tuple[int, list[Any]]]) -> bytes:
    example = tf.train.SequenceExample()
    example.context.feature["id"].int64_list.value.append(len(row))
    for name, (kind, features) in row.items():
        found = example.feature_lists.feature_list[name]
        found.SetInParent()
        for one in features:
            feature = found.feature.add()
            if one is not None:
                values = getattr(feature, LISTS[kind])
                values.SetInParent()
                values.value.extend(one)
    return bytes(example.SerializeToString())


def read(records: list[bytes], name: str, kind: pa.DataType) -> tuple[list[Any], Problems]:
    block, scanner, problems = make_block(records), Scanner([name]), Problems()
    scanner.scan(block)
    column = make_column(block, name, scanner.scan(block), kind, problems)
    column.validate(full=True)
    assert column.type == kind
    return column.to_pylist(), problems


@settings(max_examples=80, deadline=None)
@given(rows)
def test_feature_lists_of_tensorflow_are_read(rows: list[dict[str, Any]]) -> None:
    records = [make_record(row) for row in rows]
    assert read(records, "id", pa.int64())[0] == [len(row) for row in rows]
    for name in {name for row in rows for name in row}:
        for kind, element in TYPES.items():
            # Rows of another kind are a problem of theirs, and null.
            found, problems = read(records, name, pa.list_(pa.list_(element)))
            for number, row in enumerate(rows):
                if name not in row:
                    assert found[number] is None
                elif row[name][0] == kind or not any(row[name][1]):
                    assert found[number] == row[name][1] and number not in problems.by_row


@settings(max_examples=150, deadline=None)
@given(some.data())
def test_what_is_written_tensorflow_reads(data: some.DataObject) -> None:
    kinds = data.draw(some.dictionaries(names, some.sampled_from(list(TYPES)), max_size=3))
    size = data.draw(some.integers(0, 12))
    columns = []
    for kind in kinds.values():
        row: Any = some.none() | some.lists(some.none() | values[kind], max_size=6)
        drawn = data.draw(some.lists(row, min_size=size, max_size=size))
        columns.append(pa.array(drawn, pa.list_(pa.list_(TYPES[kind]))))
    skipped = data.draw(some.integers(0, size))
    columns = [column.slice(skipped) for column in columns]
    context = pa.array(range(size), pa.int64()).slice(skipped)
    written = encode_sequences(["id", *kinds], [context, *columns], size - skipped).join()
    assert len(written) == size - skipped
    for number, record in enumerate(written.to_pylist()):
        example = tf.train.SequenceExample.FromString(record)
        assert example.context.feature["id"].int64_list.value[:] == [number + skipped]
        found = {
            name: [
                None
                if feature.WhichOneof("kind") is None
                else list(getattr(feature, feature.WhichOneof("kind")).value)
                for feature in one.feature
            ]
            for name, one in example.feature_lists.feature_list.items()
        }
        expected = {
            name: column[number].as_py()
            for name, column in zip(kinds, columns, strict=True)
            if column[number].is_valid
        }
        assert found == expected


@settings(max_examples=120, deadline=None)
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
    Inference().add(make_block(records))
    for name in {name for row in rows for name in row}:
        for element in TYPES.values():
            read(records, name, pa.list_(pa.list_(element)))
            read(records, name, pa.list_(element))


def test_a_list_of_single_values_may_be_read_as_an_array() -> None:
    records = [make_record({"t": (INT64, [[1], [2], [3]])}), make_record({"t": (INT64, [])})]
    assert read(records, "t", pa.list_(pa.int64()))[0] == [[1, 2, 3], []]
    wrong, problems = read([make_record({"t": (INT64, [[1, 2]])})], "t", pa.list_(pa.int64()))
    assert "2 values where one is expected" in problems.by_row[0] and wrong == [[None]]
    _, problems = read(records, "t", pa.int64())
    assert "is a list of features, which is no int64" in problems.by_row[0]


def test_the_context_counts_where_a_name_is_in_both() -> None:
    """In one record; no type fits both where they are in different ones."""
    both = tf.train.SequenceExample()
    both.context.feature["x"].float_list.value.extend([0.5, 1])
    both.feature_lists.feature_list["x"].feature.add().float_list.value.append(2)
    only = tf.train.SequenceExample()
    only.feature_lists.feature_list["x"].feature.add().float_list.value.append(3)
    records = [both.SerializeToString(), only.SerializeToString()]
    assert read(records, "x", pa.list_(pa.float32()))[0] == [[0.5, 1], [3]]
    inference = Inference()
    inference.add(make_block(records))
    with pytest.raises(ConfigError, match="'x' is a feature in some records, and a list"):
        inference.types()


@pytest.mark.parametrize(
    ("feature_lists", "expected"),
    [
        ({"a": (INT64, [[1], [2, 3]])}, "array<array<long>>"),
        ({"a": (INT64, [[1]])}, "array<array<long>>"),
        ({"a": (FLOAT, [])}, "array<array<string>>"),
        ({"a": (BYTES, [[b"\xff"]])}, "array<array<binary>>"),
        ({"a": (BYTES, [["é".encode()], None])}, "array<array<string>>"),
        ({"a": (NO_KIND, [None])}, "array<array<string>>"),
    ],
)
def test_types_of_feature_lists(feature_lists: dict[str, Any], expected: str) -> None:
    inference = Inference()
    inference.add(make_block([make_record(feature_lists), make_record({})]))
    assert inference.types() == {"a": expected, "id": "long"}
    assert inference.num_malformed == 0
    kinds = {"long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    element = kinds[expected.removeprefix("array<array<").removesuffix(">>")]
    _, problems = read([make_record(feature_lists)], "a", pa.list_(pa.list_(element)))
    assert not problems.by_row
