"""Every type of column, written, read by TensorFlow, and read back."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as some

from record_cases import make_block
from sparktrain.data.example_encode import encode_examples
from sparktrain.data.example_types import find_depth, has_doubles, to_kind
from sparktrain.data.record_columns import ExampleReader
from sparktrain.data.vectors import count_values, densify, is_vector, make_dense, make_vectors
from sparktrain.errors import RecordError

DAY = datetime.date(1970, 1, 1)
UTC = datetime.UTC
START = datetime.datetime(1970, 1, 1)
times = some.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
text = some.text(some.characters(codec="utf-8"), max_size=20)


#: As Spark ML's vectors are in Arrow.
VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())),
        pa.field("values", pa.list_(pa.float64())),
    ]
)


def to_float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def micros(value: datetime.datetime) -> int:
    return (value.replace(tzinfo=None) - START) // datetime.timedelta(microseconds=1)


#: Type -> values, kind of list, what TensorFlow must find, what must come back.
CASES: dict[str, tuple[pa.DataType, Any, str, Any, Any]] = {
    "boolean": (pa.bool_(), some.booleans(), "int64_list", int, None),
    "byte": (pa.int8(), some.integers(-128, 127), "int64_list", int, None),
    "short": (pa.int16(), some.integers(-(2**15), 2**15 - 1), "int64_list", int, None),
    "integer": (pa.int32(), some.integers(-(2**31), 2**31 - 1), "int64_list", int, None),
    "long": (pa.int64(), some.integers(-(2**63), 2**63 - 1), "int64_list", int, None),
    "float": (pa.float32(), some.floats(width=32, allow_nan=False), "float_list", float, None),
    "double": (
        pa.float64(),
        some.floats(-1e38, 1e38),
        "float_list",
        to_float32,
        to_float32,
    ),
    "decimal": (
        pa.decimal128(20, 4),
        some.decimals(-(10**15), 10**15, places=4),
        "bytes_list",
        lambda value: f"{value:.4f}".encode(),
        None,
    ),
    "string": (pa.string(), text, "bytes_list", str.encode, None),
    "binary": (pa.binary(), some.binary(max_size=20), "bytes_list", bytes, None),
    "date": (
        pa.date32(),
        some.dates(),
        "int64_list",
        lambda value: (value - DAY).days,
        None,
    ),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        times.map(lambda value: value.replace(tzinfo=UTC)),
        "int64_list",
        micros,
        None,
    ),
    "timestamp_ntz": (pa.timestamp("us"), times, "int64_list", micros, None),
}


def write(column: pa.Array) -> list[bytes]:
    return encode_examples(["c"], [to_kind("c", column)], len(column)).join().to_pylist()


def read(records: list[bytes], kind: pa.DataType) -> list[Any]:
    [column], bad = ExampleReader([pa.field("c", kind)]).read(make_block(records))
    assert not bad and column.type == kind
    return column.to_pylist()


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40, deadline=None)
@given(data=some.data())
def test_values_come_back_and_are_what_tensorflow_reads(name: str, data: some.DataObject) -> None:
    kind, values, list_name, expected, back = CASES[name]
    single = data.draw(some.lists(some.none() | values, max_size=20))
    lists = data.draw(some.lists(some.none() | some.lists(values, max_size=5), max_size=20))
    for rows, whole_kind in ((single, kind), (lists, pa.list_(kind))):
        records = write(pa.array(rows, whole_kind))
        for row, record in zip(rows, records, strict=True):
            features = tf.train.Example.FromString(record).features.feature
            if row is None:
                assert not features
                continue
            assert features["c"].WhichOneof("kind") == list_name
            found = list(getattr(features["c"], list_name).value)
            assert found == [expected(one) for one in (row if isinstance(row, list) else [row])]
        if back is not None:
            rows = [
                None
                if row is None
                else [back(x) for x in row]
                if isinstance(row, list)
                else back(row)
                for row in rows
            ]
        assert read(records, whole_kind) == rows


@settings(max_examples=60, deadline=None)
@given(
    some.lists(
        some.none()
        | some.lists(some.floats(-(2.0**90), 2.0**90, width=32), max_size=6)
        | some.dictionaries(some.integers(0, 9), some.floats(-9, 9, width=32), max_size=4),
        max_size=12,
    )
)
def test_vectors_are_lists_of_all_their_values(rows: list[Any]) -> None:
    dense = {"type": 1, "size": None, "indices": None}
    structs = [
        None
        if row is None
        else {**dense, "values": row}
        if isinstance(row, list)
        else {
            "type": 0,
            "size": 10,
            "indices": sorted(row),
            "values": [row[k] for k in sorted(row)],
        }
        for row in rows
    ]
    kind = VECTOR
    assert is_vector(kind) and find_depth(kind) == 1 and has_doubles(kind)
    expected = [
        row if row is None or isinstance(row, list) else [row.get(n, 0.0) for n in range(10)]
        for row in rows
    ]
    column = pa.array(structs, kind)
    assert count_values(column) == sum(
        0 if row is None else len(row) if isinstance(row, list) else 10 + len(row) for row in rows
    )
    assert densify(column).to_pylist() == expected
    assert densify(column.slice(1)).to_pylist() == expected[1:]
    batch = pa.RecordBatch.from_pydict({"v": column, "n": pa.array(range(len(rows)), pa.int64())})
    floats = make_dense(batch)
    assert floats.schema.types == [pa.list_(pa.float32()), pa.int64()]
    assert floats.to_pydict() == {"v": expected, "n": list(range(len(rows)))}
    found = read(write(column), kind)
    assert [None if one is None else one["values"] for one in found] == expected
    assert make_vectors(densify(column), kind).type == kind


@pytest.mark.parametrize(
    ("stored", "kind", "expected"),
    [
        (pa.array([1]), pa.float64(), [1.0]),
        (pa.array([1]), pa.string(), ["1"]),
        (pa.array([1]), pa.decimal128(5, 2), [decimal.Decimal("1.00")]),
        (pa.array([0.1], pa.float32()), pa.decimal128(5, 2), [decimal.Decimal("0.10")]),
        (pa.array([3]), pa.bool_(), [True]),
        (pa.array([b"1.25"]), pa.decimal128(5, 2), [decimal.Decimal("1.25")]),
        (pa.nulls(1), pa.int64(), [None]),
        (pa.array([[]], pa.list_(pa.int64())), pa.int64(), [None]),
    ],
)
def test_types_that_others_wrote_otherwise(stored: Any, kind: pa.DataType, expected: Any) -> None:
    assert read(write(stored), kind) == expected


@pytest.mark.parametrize(
    ("stored", "kind", "problem"),
    [
        (pa.array([300]), pa.int8(), "feature 'c' .int64. has a value that is no int8"),
        (pa.array([0.5], pa.float32()), pa.int64(), "'c' .float. has a value that is no int64"),
        (pa.array([b"1.255"]), pa.decimal128(5, 2), "has a value that is no decimal"),
        (pa.array([math.nan], pa.float32()), pa.decimal128(5, 2), "a value that is no decimal"),
        (pa.array([b"\xff"]), pa.string(), "'c' .bytes. has a value that is no string"),
        (pa.array([[1, 2]]), pa.int64(), "'c' has 2 values where one is expected"),
        (pa.array([1]), pa.list_(pa.list_(pa.int64())), "'c' .int64. has a value that is no list"),
    ],
)
def test_values_that_do_not_fit_are_told(stored: Any, kind: pa.DataType, problem: str) -> None:
    [column], bad = ExampleReader([pa.field("c", kind)]).read(make_block(write(stored)))
    assert column.to_pylist() == [None]
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(bad[0])


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([], pa.map_(pa.string(), pa.int64())), "Column 'm' has the type map"),
        (pa.array([], pa.list_(VECTOR)), "Column 'm' has the type list"),
        (pa.array([], pa.struct([("type", pa.int8())])), "Column 'm' has the type struct"),
        (
            pa.array([1.0, 1e300]),
            r"Column 'm' has the value 1e\+300, which is too large for a float",
        ),
        (pa.array([[1], None, [2, None]]), r"a null inside an array, \[2, None\]:"),
        (pa.array([[[1], [None]]]), r"a null inside an array, \[None\]:"),
    ],
)
def test_what_has_no_place_is_refused(column: pa.Array, problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        to_kind("m", column)


def test_infinity_and_small_decimals_are_kept() -> None:
    assert read(write(pa.array([math.inf, -math.inf])), pa.float64()) == [math.inf, -math.inf]
    small = decimal.Decimal("1E-38")
    [record] = write(pa.array([small], pa.decimal128(38, 38)))
    stored = tf.train.Example.FromString(record).features.feature["c"].bytes_list.value[0]
    assert stored == b"0." + b"0" * 37 + b"1"
    assert read([record], pa.decimal128(38, 38)) == [small]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a"], None, []], pa.large_list(pa.large_string())),
        pa.array([b"x", None], pa.large_binary()),
        pa.array(["x", None], pa.large_string()),
    ],
)
def test_arrow_types_with_long_offsets(column: pa.Array) -> None:
    element = pa.string() if "string" in str(column.type) else pa.binary()
    kind = pa.list_(element) if pa.types.is_large_list(column.type) else element
    assert read(write(column), kind) == column.to_pylist()


def test_a_struct_that_only_looks_like_a_vector_is_none() -> None:
    fields = [("type", pa.int32()), ("size", pa.int32()), ("indices", pa.list_(pa.int32()))]
    assert not is_vector(pa.struct([*fields, ("values", pa.list_(pa.float64()))]))
    assert is_vector(VECTOR) and not is_vector(pa.int8())


@pytest.mark.parametrize(
    ("kind", "nullable", "problem"),
    [
        (pa.int64(), False, "is missing, and the column is not nullable"),
        (pa.list_(pa.field("element", pa.list_(pa.int64()), False)), True, "a feature of no kind"),
    ],
)
def test_null_where_none_may_be(kind: pa.DataType, nullable: bool, problem: str) -> None:
    good, bad = tf.train.SequenceExample(), tf.train.SequenceExample()
    if pa.types.is_list(kind):
        for example in (good, bad):
            steps = example.feature_lists.feature_list["c"]
            steps.feature.add().int64_list.value.append(1)
        steps.feature.add()
    else:
        good.context.feature["c"].int64_list.value.append(1)
    records = [good.SerializeToString(), bad.SerializeToString(), good.SerializeToString()]
    reader = ExampleReader([pa.field("c", kind, nullable)])
    [column], problems = reader.read(make_block(records))
    assert list(problems) == [1] and problem in problems[1]
    assert column.is_null().to_pylist() == [False, True, False]
