"""The table of types: what Spark's schema becomes, and what is refused before any job."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from sparktrain.data import schema
from sparktrain.data.schema import TYPES, UNKNOWN, Column, Wishes, make_columns
from sparktrain.data.tables import TableSpec
from sparktrain.errors import SchemaError
from sparktrain.wire import frames

#: As spark.read.format("image") gives it.
IMAGE = T.StructType().add("origin", "string")
IMAGE = IMAGE.add("height", "integer").add("width", "integer").add("nChannels", "integer")
IMAGE = IMAGE.add("mode", "integer").add("data", "binary")
#: One or more of Spark's types for each row of TYPES.
SPARK_TYPES: dict[str, list[Any]] = {
    "boolean": [T.BooleanType()],
    "byte": [T.ByteType()],
    "short": [T.ShortType()],
    "integer": [T.IntegerType()],
    "long": [T.LongType()],
    "float": [T.FloatType()],
    "double": [T.DoubleType()],
    "decimal": [T.DecimalType(10, 2), T.DecimalType(38, 18)],
    "string": [T.StringType(), T.CharType(3), T.VarcharType(9), T.StringType("UTF8_LCASE")],
    "binary": [T.BinaryType()],
    "date": [T.DateType()],
    "timestamp": [T.TimestampType()],
    "timestamp_ntz": [T.TimestampNTZType()],
    "vector": [VectorUDT()],
    "image": [IMAGE],
}
#: The dimensions a row has without any array around it.
OWN = {"vector": 1, "image": 3}
PLAIN = [kind for kind in TYPES if kind not in OWN]


def make(spark_type: Any, **wishes: Any) -> Column:
    """The column "x" of table "t"."""
    (column,) = make_all({"x": spark_type}, **wishes)
    return column


def make_all(fields: dict[str, Any], **wishes: Any) -> list[Column]:
    struct = T.StructType([T.StructField(name, kind) for name, kind in fields.items()])
    return make_columns("t", struct.jsonValue()["fields"], Wishes(**wishes))


def refuse(spark_type: Any, *parts: str, **wishes: Any) -> None:
    """Expects an error that names table and column, and has these parts."""
    with pytest.raises(SchemaError) as caught:
        make(spark_type, **wishes)
    assert (caught.value.table, caught.value.column) == ("t", "x")
    assert str(caught.value).startswith("Column 'x' of 't': ")
    for part in parts:
        assert part in str(caught.value)


def nest(kind: Any, depth: int) -> Any:
    for _ in range(depth):
        kind = T.ArrayType(kind)
    return kind


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_becomes_the_tensor_of_its_row(kind: str) -> None:
    for spark_type in SPARK_TYPES[kind]:
        column = make(spark_type)
        assert column == Column("x", kind, shape=(UNKNOWN,) * OWN.get(kind, 0))
        assert column.dtype == TYPES[kind][0]


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_arrays_keep_the_tensor_of_their_values(kind: str, depth: int) -> None:
    for spark_type in SPARK_TYPES[kind]:
        column = make(nest(spark_type, depth))
        assert column == Column("x", kind, depth=depth, shape=(UNKNOWN,) * depth)
        assert column.dtype == TYPES[kind][0]


@pytest.mark.parametrize(
    ("spark_type", "named"),
    [
        (T.MapType(T.StringType(), T.LongType()), "map"),
        (T.StructType([T.StructField("a", T.LongType())]), "struct"),
        (T.ArrayType(T.StructType([T.StructField("a", T.LongType())])), "array<struct>"),
        (T.ArrayType(VectorUDT()), "array<org.apache.spark.ml.linalg.VectorUDT>"),
        (T.ArrayType(IMAGE), "array<struct>"),
        (T.NullType(), "void"),
        (T.DayTimeIntervalType(), "interval"),
        (T.CalendarIntervalType(), "interval"),
        (T.VariantType(), "variant"),
    ],
)
def test_other_types_are_refused_with_all_that_work(spark_type: Any, named: str) -> None:
    refuse(spark_type, named, *TYPES, "columns=[...]")
    make_all({"x": spark_type, "y": T.LongType()}, columns=["y"])  # left out, it does not matter


def test_columns_come_in_the_order_they_are_asked_for() -> None:
    fields = {"a": T.LongType(), "b": T.LongType(), "c": T.LongType()}
    assert [column.name for column in make_all(fields)] == ["a", "b", "c"]
    assert [column.name for column in make_all(fields, columns=["c", "a"])] == ["c", "a"]


@pytest.mark.parametrize("option", ["columns", "shapes", "pad", "fill", "mask"])
def test_a_wish_for_a_column_that_is_not_there_names_those_that_are(option: str) -> None:
    names: Any = ["no"] if option in ("columns", "mask") else {"no": (1,)}
    with pytest.raises(SchemaError, match="a, b") as caught:
        make_all({"a": T.LongType(), "b": T.LongType()}, **{option: names})
    assert (caught.value.table, caught.value.column) == ("t", "no")
    assert option in str(caught.value)


def test_names_that_are_there_twice_are_refused() -> None:
    with pytest.raises(SchemaError, match="Column 'a' of 't': The name is there twice"):
        make_all({"a": T.LongType()}, columns=["a", "a"])
    with pytest.raises(SchemaError, match="Column 'a_is_null' of 't'"):
        make_all({"a": T.LongType(), "a_is_null": T.LongType()}, mask=["a"])


def test_a_frame_with_two_columns_of_one_name_is_refused_if_they_are_fed() -> None:
    kinds = (("a", T.LongType()), ("a", T.StringType()), ("b", T.LongType()))
    fields = T.StructType([T.StructField(*one) for one in kinds]).jsonValue()["fields"]
    with pytest.raises(SchemaError, match="Column 'a' of 't': The name is there twice"):
        make_columns("t", fields, Wishes())
    assert make_columns("t", fields, Wishes(columns=["b"])) == [Column("b", "long")]


def test_a_table_without_columns_is_refused() -> None:
    for fields, wishes in (([], Wishes()), ([{"name": "a", "type": "long"}], Wishes(columns=[]))):
        with pytest.raises(SchemaError, match="The columns of 't': There is no column"):
            make_columns("t", fields, wishes)


@pytest.mark.parametrize(
    ("spark_type", "declared", "shape"),
    [
        (nest(T.FloatType(), 1), 784, (784,)),
        (nest(T.FloatType(), 1), [28, 28, 1], (28, 28, 1)),
        (nest(T.FloatType(), 1), (None,), (None,)),
        (nest(T.FloatType(), 2), (None, 3), (None, 3)),
        (nest(T.FloatType(), 2), (2, 3, 4), (2, 3, 4)),
        (nest(T.BinaryType(), 1), (None,), (None,)),
        (T.BinaryType(), (28, 28), (28, 28)),
        (VectorUDT(), (4,), (4,)),
        (IMAGE, (8, 8, 3), (8, 8, 3)),
    ],
)
def test_declared_shapes(spark_type: Any, declared: Any, shape: tuple[int | None, ...]) -> None:
    column = make(spark_type, shapes={"x": declared})
    assert column.shape == shape
    assert column.is_dense == (None not in shape)
    is_bytes = isinstance(spark_type, T.BinaryType)  # and not an array of bytes
    assert column.dtype == ("uint8" if is_bytes else TYPES[column.kind][0])
    if column.is_dense:
        assert column.size == math.prod(length or 0 for length in shape)


@pytest.mark.parametrize(
    ("spark_type", "declared", "problem"),
    [
        (T.LongType(), (1,), "single values"),
        (nest(T.LongType(), 1), (0,), "0 is no length"),
        (nest(T.LongType(), 1), (2.0,), "2.0 is no length"),
        (nest(T.LongType(), 1), (True,), "True is no length"),
        (nest(T.LongType(), 1), "28", "'28' is no length"),
        (nest(T.LongType(), 1), (), "nested 1 deep"),
        (nest(T.LongType(), 2), (6,), "nested 2 deep"),
        (nest(T.LongType(), 1), (None, 2), "exactly 1 lengths"),
        (T.BinaryType(), (None,), "without None"),
        (T.BinaryType(), (), "nested 0 deep"),
        (VectorUDT(), (None,), "vector has no varying length"),
        (IMAGE, (None, None, 3), "image has no varying length"),
        (IMAGE, (8, 8), "nested 3 deep"),
    ],
)
def test_shapes_that_cannot_be(spark_type: Any, declared: Any, problem: str) -> None:
    refuse(spark_type, f"shapes declares {declared!r}", problem, "numbers", shapes={"x": declared})


def test_padding_makes_lengths_vary_unless_a_shape_is_declared() -> None:
    words = nest(T.LongType(), 2)
    assert make(words, pad={"x": 7}) == Column("x", "long", 2, (None, None), pad=7)
    assert make(words, pad={"x": 7}, shapes={"x": (2, 3)}).shape == (2, 3)
    assert make(words, pad={"x": None}).shape == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize("spark_type", [T.LongType(), T.BinaryType(), VectorUDT(), IMAGE])
def test_only_arrays_are_padded(spark_type: Any) -> None:
    refuse(spark_type, "pad names it, but it is no array", "Only arrays", pad={"x": 0})


#: Kind, what is declared, what becomes of it (None: refused).
VALUES: list[tuple[str, Any, Any]] = [
    ("boolean", 1, True),
    ("boolean", np.False_, False),
    ("boolean", 2, None),
    ("byte", -128, -128),
    ("byte", 128, None),
    ("byte", 1.5, None),
    ("short", np.int64(5), 5),
    ("integer", 2**31, None),
    ("integer", math.nan, None),
    ("long", 2**63 - 1, 2**63 - 1),
    ("long", "0", None),
    ("float", 1, 1.0),
    ("float", np.float32(0.5), 0.5),
    ("double", Decimal("0.5"), 0.5),
    ("double", [0.0], None),
    ("decimal", Decimal("1.25"), 1.25),
    ("string", "é", "é"),
    ("string", "é".encode(), "é"),
    ("string", b"\xff", None),
    ("string", 0, None),
    ("binary", b"\xff", b"\xff"),
    ("binary", "é", "é".encode()),
    ("date", -1, -1),
    ("date", "1970-01-01", None),
    ("timestamp", 10**15, 10**15),
]


@pytest.mark.parametrize("option", ["fill", "pad"])
@pytest.mark.parametrize(("kind", "value", "expected"), VALUES)
def test_fill_and_pad_are_plain_values_of_their_kind(
    option: str, kind: str, value: Any, expected: Any
) -> None:
    spark_type = nest(SPARK_TYPES[kind][0], 1)
    if expected is None:
        refuse(spark_type, f"{option}={value!r}", kind, "Expected", **{option: {"x": value}})
        return
    found = getattr(make(spark_type, **{option: {"x": value}}), option)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_mask_fills_too(kind: str) -> None:
    column = make(SPARK_TYPES[kind][0], mask=["x"])
    assert column.is_masked and column.fill is not None and not column.fill
    declared = b"1" if kind == "binary" else "1" if kind == "string" else 1
    assert make(SPARK_TYPES[kind][0], mask=["x"], fill={"x": declared}).fill == declared
    assert not make(SPARK_TYPES[kind][0], fill={"x": declared}).is_masked


@pytest.mark.parametrize("kind", OWN)
def test_nothing_stands_for_a_vector_or_an_image(kind: str) -> None:
    refuse(SPARK_TYPES[kind][0], "mask names it", kind, "dropna", mask=["x"])
    refuse(SPARK_TYPES[kind][0], "fill=0", kind, "dropna", fill={"x": 0})


def test_bytes_of_a_shape_are_filled_with_as_many() -> None:
    shapes = {"x": (2, 2)}
    assert make(T.BinaryType(), shapes=shapes, fill={"x": b"1234"}).fill == b"1234"
    assert make(T.BinaryType(), shapes=shapes, mask=["x"]).fill == b""
    refuse(T.BinaryType(), "fill=b'12' has 2 bytes", "4", shapes=shapes, fill={"x": b"12"})


def test_lengths_of_the_first_row_take_the_place_of_unknown_ones() -> None:
    columns = make_all({"a": nest(T.LongType(), 2), "b": T.LongType(), "v": VectorUDT()})
    assert schema.needs_first_row(columns) == ["a", "v"]
    found = schema.with_lengths("t", columns[0], [2, 3])
    assert (found.shape, found.size) == ((2, 3), 6)
    assert schema.needs_first_row([found]) == []
    with pytest.raises(SchemaError, match=r"Column 'a' of 't'.*empty.*shapes=\{'a'"):
        schema.with_lengths("t", columns[0], [2, 0])


@pytest.mark.parametrize(("kind", "value", "expected"), VALUES)
def test_a_table_is_the_same_behind_a_frame(kind: str, value: Any, expected: Any) -> None:
    if expected is None:
        return
    spark_type = nest(SPARK_TYPES[kind][0], 1)
    spec = TableSpec("t", (make(spark_type, pad={"x": value}, fill={"x": value}, mask=["x"]),))
    body = frames.encode({"tables": [spec.to_dict()]})[frames.HEADER.size :]
    (values,) = frames.decode_body(body)["tables"]
    assert TableSpec.from_dict(values) == spec
    assert Column.from_dict(json.loads(json.dumps(spec.columns[0].to_dict()))).fill == expected


def test_the_page_of_types_is_written_from_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "types.md"
    assert page.read_text() == schema.to_markdown()
    for kind, (dtype, _) in TYPES.items():
        assert f"| `{kind}` | `{dtype}` |" in schema.to_markdown()
