"""Blocks: every type to numpy values, slices, nulls, lengths, and errors that name the row."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.data.arrow import make_block, stored_schema
from sparktrain.data.faults import BadRowError, Place
from sparktrain.data.schema import Column
from sparktrain.data.views import Ragged, to_numpy

PLACE = Place("t", partition=3, first_row=1000)
DAY = 86_400_000_000
EARLY = dt.datetime(1969, 12, 31, tzinfo=dt.UTC)
_SIZES = [(name, pa.int32()) for name in ("height", "width", "nChannels", "mode")]
IMAGE = pa.struct([("origin", pa.string()), *_SIZES, ("data", pa.binary())])


def make_image(data: bytes | None, height: int | None = 2) -> dict[str, Any]:
    return {"origin": "f", "height": height, "width": 1, "nChannels": 3, "mode": 16, "data": data}


def col(kind: str, depth: int = 0, shape: tuple[int | None, ...] = (), **more: Any) -> Column:
    return Column("x", kind, depth, shape, **more)


def block_of(array: pa.Array, column: Column) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_arrays([array], names=["x"])
    block = make_block(batch, [column], PLACE)
    block.validate(full=True)
    assert block.schema == stored_schema([column])
    assert all(one.null_count == 0 for one in block.columns)
    return block


def convert(array: pa.Array, column: Column, name: str = "x") -> Any:
    return to_numpy(block_of(array, column), [column])[name]


def refuse(array: pa.Array, column: Column, row: int, *parts: str) -> None:
    """Expects an error for a row of the array."""
    with pytest.raises(BadRowError) as caught:
        convert(array, column)
    assert f"column 'x' of 't' {parts[0]}" in str(caught.value)
    for part in (f"in row {1000 + row} of partition 3 ", *parts):
        assert part in str(caught.value)


def to_lists(values: Any) -> list[Any]:
    """The rows as Python's lists, ragged ones too."""
    if not isinstance(values, Ragged):
        return list(values.tolist())
    rows = list(values.values.tolist())
    for splits in reversed(values.splits):
        rows = [rows[start:stop] for start, stop in itertools.pairwise(splits)]
    return rows


def lists(kind: Any, depth: int = 1) -> pa.DataType:
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


#: (column, Arrow type, values as Spark has them, values of the tensor)
CASES: list[tuple[Column, pa.DataType, list[Any], list[Any]]] = [
    (col("boolean"), pa.bool_(), [True, False, True], [True, False, True]),
    (col("byte"), pa.int8(), [-128, 0, 127], [-128, 0, 127]),
    (col("short"), pa.int16(), [-(2**15), 7], [-(2**15), 7]),
    (col("integer"), pa.int32(), [-(2**31), 7], [-(2**31), 7]),
    (col("long"), pa.int64(), [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    (col("float"), pa.float32(), [0.5, float("inf")], [0.5, float("inf")]),
    (col("double"), pa.float64(), [0.1, -0.0], [0.1, -0.0]),
    (col("decimal"), pa.decimal128(5, 2), [Decimal("-1.25"), Decimal("0.01")], [-1.25, 0.01]),
    (col("string"), pa.string(), ["", "é日本\0x", "a"], [b"", "é日本\0x".encode(), b"a"]),
    (col("binary"), pa.binary(), [b"\xff\0", b""], [b"\xff\0", b""]),
    (col("binary", 0, (2, 1)), pa.binary(), [b"\xff\0", b"ab"], [[[255], [0]], [[97], [98]]]),
    (col("binary", 0, (2,)), pa.large_binary(), [b"\xff\0", b"ab"], [[255, 0], [97, 98]]),
    (col("binary", 1, (1,)), lists(pa.binary()), [[b"\xff\0"], [b""]], [[b"\xff\0"], [b""]]),
    (col("date"), pa.date32(), [dt.date(1969, 12, 31), dt.date(1970, 1, 3)], [-1, 2]),
    (col("timestamp"), pa.timestamp("us", "UTC"), [-DAY - 1], [-DAY - 1]),
    (col("timestamp"), pa.timestamp("us", "Asia/Tokyo"), [EARLY], [-DAY]),
    (col("timestamp"), pa.timestamp("ns", "UTC"), [5_000_000_999, -1000], [5_000_000, -1]),
    (col("timestamp_ntz"), pa.timestamp("us"), [dt.datetime(1970, 1, 1, 0, 0, 1)], [1_000_000]),
    (col("vector", 0, (2,)), lists(pa.float32()), [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    (col("image", 0, (2, 1, 3)), IMAGE, [make_image(b"abcdef")], [[[[97, 98, 99]],
     [[100, 101, 102]]]]),
    (col("boolean", 1, (2,)), lists(pa.bool_()), [[True, False]], [[True, False]]),
    (col("string", 1, (2,)), lists(pa.string()), [["é", ""]], [["é".encode(), b""]]),
    (col("double", 1, (2, 2)), lists(pa.float64()), [[1, 2, 3, 4]], [[[1, 2], [3, 4]]]),
    (col("long", 2, (2, 1)), lists(pa.int64(), 2), [[[1], [2]], [[3], [4]]], [[[1], [2]], [[3],
     [4]]]),
    (col("long", 1, (None,)), lists(pa.int64()), [[], [1, 2], [3]], [[], [1, 2], [3]]),
    (col("string", 1, (None,)), lists(pa.string()), [["é"], []], [["é".encode()], []]),
    (col("binary", 1, (None,)), lists(pa.binary()), [[b"\xff"], []], [[b"\xff"], []]),
    (col("short", 2, (None, None)), lists(pa.int16(), 2), [[[1, 2], []], []], [[[1, 2], []], []]),
    (col("long", 2, (None, 2)), lists(pa.int64(), 2), [[[1, 2]], []], [[[1, 2]], []]),
    (col("long", 1, (3,), pad=9), lists(pa.int64()), [[], [1], [1, 2, 3]], [[9, 9, 9], [1, 9, 9],
     [1, 2, 3]]),
    (col("boolean", 1, (2,), pad=True), lists(pa.bool_()), [[False]], [[False, True]]),
    (col("string", 1, (2,), pad="-"), lists(pa.string()), [["é"], []], [["é".encode(), b"-"],
     [b"-", b"-"]]),
    (col("date", 1, (2,), pad=-5), lists(pa.date32()), [[dt.date(1970, 1, 2)]], [[1, -5]]),
    (col("decimal", 1, (2,), pad=1e9), lists(pa.decimal128(3, 1)), [[Decimal("0.3")]],
     [[0.3, 1e9]]),
    (col("long", 2, (2, 2), pad=0), lists(pa.int64(), 2), [[[1]], [], [[], [2, 3]]],
     [[[1, 0], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [2, 3]]]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "kind", "given", "expected"), CASES)
def test_values_of_every_type(
    column: Column, kind: pa.DataType, given: list[Any], expected: list[Any]
) -> None:
    values = convert(pa.array(given, kind), column)
    assert to_lists(values) == expected
    flat = values.values if isinstance(values, Ragged) else values
    assert flat.dtype == (object if column.dtype == "string" else np.dtype(column.dtype))
    if column.is_dense:
        assert flat.shape == (len(given), *column.shape)


@pytest.mark.parametrize(("column", "kind", "given", "expected"), CASES)
def test_slices_of_batches_and_of_blocks(
    column: Column, kind: pa.DataType, given: list[Any], expected: list[Any]
) -> None:
    given, expected = given * 7, expected * 7
    array = pa.array(given, kind)
    whole = block_of(array, column)
    for start in range(len(given)):
        for stop in {start, start + 1, (start + len(given)) // 2, len(given)}:
            piece = convert(array.slice(start, stop - start), column)
            assert to_lists(piece) == expected[start:stop]
            sliced = to_numpy(whole.slice(start, stop - start), [column])
            assert to_lists(sliced["x"]) == expected[start:stop]


@pytest.mark.parametrize(("column", "kind", "given", "expected"), CASES)
def test_batches_without_rows(
    column: Column, kind: pa.DataType, given: list[Any], expected: list[Any]
) -> None:
    block = block_of(pa.array([], kind), column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_batch(block)
    again = pa.ipc.open_stream(sink.getvalue()).read_next_batch()
    for one in (block, again):
        values = to_numpy(one, [column])["x"]
        assert to_lists(values) == []
        if column.is_dense:
            assert values.shape == (0, *column.shape)


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (15, 15), (15, 0), (18, 6), (38, 18)])
def test_decimals_become_the_nearest_number(precision: int, scale: int) -> None:
    rng = random.Random(precision)
    digits = [rng.randrange(10 ** rng.randrange(1, precision + 1)) for _ in range(500)]
    given = [Decimal(one * rng.choice((1, -1))).scaleb(-scale, Context(prec=60)) for one in digits]
    array = pa.array([*given, None], pa.decimal128(precision, scale))
    found = convert(array, col("decimal", fill=-0.5))
    assert found.tolist() == [*map(float, given), -0.5]
    assert convert(array.slice(400), col("decimal", fill=0.0)).tolist()[0] == float(given[400])


@pytest.mark.parametrize("scale", [0, 1, 18, 22, 23, 37])
def test_decimals_at_the_edges_of_what_a_number_can_hold(scale: int) -> None:
    edges = [0, 1, 3, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 2**64 + 1, 10**37]
    for edge in (*edges, *(-edge for edge in edges)):
        given = [Decimal(one).scaleb(-scale, Context(prec=60)) for one in (edge, 1)]
        array = pa.array([given[0], None, given[1]], pa.decimal128(38, scale))
        found = convert(array, col("decimal", fill=0.25))
        assert found.tolist() == [float(given[0]), 0.25, float(given[1])]


@pytest.mark.parametrize(("column", "kind", "given", "expected"), CASES)
def test_a_null_names_its_row_and_partition(
    column: Column, kind: pa.DataType, given: list[Any], expected: list[Any]
) -> None:
    array = pa.array([*given, None, *given, None], kind)
    refuse(array, column, len(given), "is null", "fill={'x': ...}", "mask=['x']")
    refuse(array.slice(len(given)), column, 0, "is null")


#: (column, Arrow type, values with nulls, values of the tensor)
FILLED: list[tuple[Column, pa.DataType, list[Any], list[Any]]] = [
    (col("boolean", fill=True), pa.bool_(), [None, False], [True, False]),
    (col("byte", fill=-1), pa.int8(), [1, None], [1, -1]),
    (col("float", fill=0.5), pa.float32(), [None, 1], [0.5, 1]),
    (col("string", fill="é"), pa.string(), ["a", None], [b"a", "é".encode()]),
    (col("binary", fill=b"\xff"), pa.binary(), [None], [b"\xff"]),
    (col("binary", 0, (2,), fill=b"ab"), pa.binary(), [None, b"\0\1"], [[97, 98], [0, 1]]),
    (col("binary", 0, (2,), fill=b""), pa.binary(), [None, b"\0\1"], [[0, 0], [0, 1]]),
    (col("date", fill=-3), pa.date32(), [None], [-3]),
    (col("timestamp", fill=-3), pa.timestamp("us", "UTC"), [None], [-3]),
    (col("decimal", fill=1e12), pa.decimal128(4, 1), [None], [1e12]),
    (col("long", 1, (2,), fill=9), lists(pa.int64()), [None, [1, None]], [[9, 9], [1, 9]]),
    (col("boolean", 1, (1,), fill=True), lists(pa.bool_()), [None, [False]], [[True], [False]]),
    (col("date", 1, (1,), fill=2), lists(pa.date32()), [None, [None]], [[2], [2]]),
    (col("string", 1, (2,), fill="-"), lists(pa.string()), [None, ["a", None]], [[b"-", b"-"],
     [b"a", b"-"]]),
    (col("long", 2, (1, 2), fill=9), lists(pa.int64(), 2), [None, [[1, None]]], [[[9, 9]],
     [[1, 9]]]),
    (col("long", 1, (None,), fill=9), lists(pa.int64()), [None, [None, 1]], [[], [9, 1]]),
    (col("long", 2, (None, None), fill=9), lists(pa.int64(), 2), [[None, [None]], None], [[[],
     [9]], []]),
    (col("long", 1, (2,), pad=7, fill=9), lists(pa.int64()), [None, [None], []], [[9, 9], [9, 7],
     [7, 7]]),
    (col("long", 2, (2, 1), pad=7, fill=9), lists(pa.int64(), 2), [[None, [None]]], [[[7], [9]]]),
    (col("string", 1, (2,), pad="", fill="-"), lists(pa.string()), [None, ["a"]], [[b"-", b"-"],
     [b"a", b""]]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "kind", "given", "expected"), FILLED)
def test_nulls_are_filled_and_the_mask_tells_where_rows_were_null(
    column: Column, kind: pa.DataType, given: list[Any], expected: list[Any]
) -> None:
    masked = Column(**{**column.__dict__, "is_masked": True})
    array = pa.array(given * 5, kind)
    assert to_lists(convert(array, column)) == expected * 5
    for start in range(len(array)):
        assert to_lists(convert(array.slice(start), masked)) == (expected * 5)[start:]
        mask = convert(array.slice(start), masked, "x_is_null")
        assert mask.dtype == bool
        assert mask.tolist() == [one is None for one in (given * 5)[start:]]


@pytest.mark.parametrize(
    ("kind", "given", "row", "column"),
    [
        (lists(pa.int64()), [[1, 2], [3, None]], 1, col("long", 1, (2,))),
        (lists(pa.int64()), [[1, 2], [3], [None]], 2, col("long", 1, (None,))),
        (lists(pa.int64()), [[1, 2], [None], [3]], 1, col("long", 1, (3,), pad=0)),
        (lists(pa.int64(), 2), [[[1], [2]], [[3], None]], 1, col("long", 2, (2, 1))),
        (lists(pa.int64(), 2), [[[1]], [], [[1], None]], 2, col("long", 2, (None, None))),
        (lists(pa.int64(), 2), [[], [[1], [None]]], 1, col("long", 2, (None, None))),
        (lists(pa.int64(), 2), [[], [[1], None]], 1, col("long", 2, (2, 2), pad=0)),
        (IMAGE, [make_image(b"abcdef"), make_image(None)], 1, col("image", 0, (2, 1, 3))),
        (IMAGE, [make_image(b"abcdef", None)], 0, col("image", 0, (2, 1, 3))),
    ],
)
def test_a_null_inside_names_its_row(
    kind: pa.DataType, given: list[Any], row: int, column: Column
) -> None:
    refuse(pa.array(given, kind), column, row, "has a null inside")
    refuse(pa.array(given, kind).slice(row), column, 0, "has a null inside")


@pytest.mark.parametrize(
    ("kind", "given", "row", "column", "problem"),
    [
        (lists(pa.int64()), [[1, 2], [3]], 1, col("long", 1, (2,)), "1 values where 2"),
        (lists(pa.int64()), [[1], [2, 3]], 1, col("long", 1, (1,)), "(None,)"),
        (lists(pa.int64()), [None, [1], [2]], 1, col("long", 1, (2,), fill=0), "1 values"),
        (lists(pa.int64(), 2), [[[1, 2]], [[3]]], 1, col("long", 2, (1, 2)),
         "1 values at depth 2 where 2"),
        (lists(pa.int64(), 2), [[[1]], [[2], [3]]], 1, col("long", 2, (1, 1)), "(None, None)"),
        (lists(pa.int64(), 2), [[[1, 2]], [[1, 2], [3]]], 1, col("long", 2, (None, 2)),
         "1 values at depth 2"),
        (lists(pa.int64(), 2), [[[1]], [[2], [3]]], 1, col("long", 2, (1, None)),
         "2 values where 1"),
        (lists(pa.int64()), [None, [1], [1, 2]], 2, col("long", 1, (1,), pad=0, fill=0),
         "at most 1"),
        (lists(pa.int64(), 2), [[[1]], [[], [2, 3]]], 1, col("long", 2, (2, 1), pad=0),
         "2 values at depth 2 where at most 1"),
        (lists(pa.int64(), 2), [[], [[2, 3]]], 1, col("long", 2, (None, 1), pad=0),
         "at depth 2 where at most 1"),
        (pa.binary(), [b"ab", b"abc"], 1, col("binary", 0, (2,)), "3 bytes where 2"),
        (IMAGE, [make_image(b"abcdef"), make_image(b"", 7)], 1, col("image", 0, (2, 1, 3)),
         "(7, 1, 3) where (2, 1, 3)"),
        (IMAGE, [make_image(b"abcde")], 0, col("image", 0, (2, 1, 3)), "5 bytes where 6"),
    ],
)  # fmt: skip
def test_a_wrong_length_at_any_depth_names_its_row(
    kind: pa.DataType, given: list[Any], row: int, column: Column, problem: str
) -> None:
    refuse(pa.array(given, kind), column, row, "", problem)
    refuse(pa.array(given, kind).slice(row), column, 0, "", problem)


def test_random_ragged_rows_are_the_same_however_they_are_cut() -> None:
    rng = random.Random(5)
    rows = [[[rng.random() for _ in range(rng.randrange(4))] for _ in range(rng.randrange(4))]
            for _ in range(200)]  # fmt: skip
    column = col("double", 2, (None, None))
    array = pa.array(rows, lists(pa.float64(), 2))
    edges = sorted({0, 200, *(rng.randrange(200) for _ in range(20))})
    found: list[Any] = []
    for start, stop in itertools.pairwise(edges):
        found += to_lists(convert(array.slice(start, stop - start), column))
    assert found == rows
    padded = col("double", 2, (3, 3), pad=-1.0)
    for row, tensor in zip(rows, convert(array, padded).tolist(), strict=True):
        assert tensor == [[*inner, -1, -1, -1][:3] for inner in [*row, [], [], []][:3]]


def test_only_the_columns_asked_for_are_stored_in_their_order() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": ["u"], "c": [True]})
    columns = [Column("c", "boolean", fill=False, is_masked=True), Column("a", "long")]
    block = make_block(batch, columns, PLACE)
    assert block.schema.names == ["c", "c_is_null", "a"]
    assert list(to_numpy(block, [columns[1]])) == ["a"]
    assert not to_numpy(block, columns)["a"].flags.owndata  # looks at the block's own bytes
