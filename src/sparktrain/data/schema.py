"""The one table of types: what a column of a DataFrame or a file becomes in a tensor.

Everything that cannot be is refused here, on the driver, before any job. `docs/types.md` is
written from this table (`python -m sparktrain.data.schema`).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sparktrain.errors import SchemaError

#: Spark's name of a type -> the tensor's dtype, and what to know about it.
TYPES: Mapping[str, tuple[str, str]] = {
    "boolean": ("bool", ""),
    "byte": ("int8", ""),
    "short": ("int16", ""),
    "integer": ("int32", ""),
    "long": ("int64", ""),
    "float": ("float32", ""),
    "double": ("float64", ""),
    "decimal": ("float64", "rounded to the nearest float64; cast to string to keep every digit"),
    "string": ("string", "UTF-8; `char` and `varchar` too"),
    "binary": ("string", "as bytes; with a declared shape uint8 of that shape"),
    "date": ("int32", "days since 1970-01-01"),
    "timestamp": ("int64", "microseconds since 1970-01-01 UTC"),
    "timestamp_ntz": ("int64", "microseconds since 1970-01-01, in no time zone"),
    "vector": ("float32", "dense and sparse vectors of Spark ML, dense here"),
    "image": ("uint8", "height, width, channels; blue first, as Spark reads images"),
}
#: An array's length that nobody has declared: the first row tells it.
UNKNOWN = -1
MASK_SUFFIX = "_is_null"
_IMAGE_FIELDS = ("origin", "height", "width", "nChannels", "mode", "data")
_VECTOR = "org.apache.spark.ml.linalg.VectorUDT"


@dataclass(frozen=True)
class Column:
    """One column on its way to a tensor.

    Attributes:
        kind: A row of TYPES, of the values themselves if the column is an array.
        depth: How deep arrays are nested; 0 for none.
        shape: Of one row. None where lengths vary, UNKNOWN where the first row tells.
        pad: What to pad varying lengths with; None leaves them ragged.
        fill: What stands for null; None makes null an error.
        is_masked: Whether a column name_is_null tells where nulls were.
    """

    name: str
    kind: str
    depth: int = 0
    shape: tuple[int | None, ...] = ()
    pad: Any = None
    fill: Any = None
    is_masked: bool = False

    @property
    def dtype(self) -> str:
        if self.kind == "binary" and self.shape and self.depth == 0:
            return "uint8"
        return TYPES[self.kind][0]

    @property
    def is_dense(self) -> bool:
        """Whether all rows have one shape that is known before the first batch."""
        return None not in self.shape

    @property
    def size(self) -> int:
        """Values in a row of a dense column."""
        return math.prod(length for length in self.shape if length is not None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        kept = {"pad": _pack(self.pad), "fill": _pack(self.fill)}
        return {**self.__dict__, **kept, "shape": list(self.shape)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Column:
        kept = {"pad": _unpack(values["pad"]), "fill": _unpack(values["fill"])}
        return cls(**{**values, **kept, "shape": tuple(values["shape"])})


def _pack(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _unpack(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class Wishes:
    """What the user declares about the columns of one table."""

    columns: Sequence[str] | None = None
    shapes: Mapping[str, Sequence[int | None]] | None = None
    pad: Mapping[str, Any] | None = None
    fill: Mapping[str, Any] | None = None
    mask: Sequence[str] = ()


def make_columns(table: str, fields: Sequence[Mapping[str, Any]], wishes: Wishes) -> list[Column]:
    """The columns of a table from the fields of Spark's schema as JSON; raises SchemaError."""
    by_name = {str(field["name"]): field["type"] for field in fields}
    given = Counter(str(field["name"]) for field in fields)
    _check_names(table, by_name, wishes)
    chosen = list(wishes.columns) if wishes.columns is not None else list(by_name)
    columns = [_make_column(table, name, by_name[name], wishes) for name in chosen]
    names = [column.name for column in columns]
    names += [column.name + MASK_SUFFIX for column in columns if column.is_masked]
    counts = Counter(names)
    doubled = sorted(name for name in counts if counts[name] > 1 or given[name] > 1)
    if doubled or not names:
        raise SchemaError(
            table=table,
            column=", ".join(doubled),
            problem="There is no column." if not names else "The name is there twice.",
            advice="Rename columns, or choose them with columns=[...].",
        )
    return columns


def _check_names(table: str, known: Mapping[str, Any], wishes: Wishes) -> None:
    named: tuple[tuple[str, Iterable[str]], ...] = (
        ("columns", wishes.columns or ()),
        ("shapes", wishes.shapes or ()),
        ("pad", wishes.pad or ()),
        ("fill", wishes.fill or ()),
        ("mask", wishes.mask),
    )
    for option, names in named:
        for name in names:
            if name not in known:
                raise SchemaError(
                    table=table,
                    column=str(name),
                    problem=f"{option} names it, but it is not there.",
                    advice=f"The columns are {', '.join(known)}.",
                )


def _make_column(table: str, name: str, spark_type: Any, wishes: Wishes) -> Column:
    kind, depth = _find_kind(spark_type)
    if kind is None:
        raise SchemaError(
            table=table,
            column=name,
            problem=f"Its type {_describe(spark_type)} has no tensor.",
            advice="Leave it out with columns=[...], select the fields of a struct, or cast it."
            f" Types that work: {', '.join(TYPES)}, and arrays of them.",
        )
    own = {"vector": 1, "image": 3}.get(kind, 0)
    shape: tuple[int | None, ...] = (UNKNOWN,) * (depth + own)
    declared = (wishes.shapes or {}).get(name)
    if declared is not None:
        shape = _check_shape(table, name, declared, depth + own, kind)
    pad = (wishes.pad or {}).get(name)
    if pad is not None:
        if depth == 0:
            raise SchemaError(
                table=table,
                column=name,
                problem=f"pad names it, but it is no array ({_describe(spark_type)}).",
                advice="Only arrays are padded.",
            )
        pad = _check_value(table, name, kind, "pad", pad)
        if declared is None:
            shape = (None,) * len(shape)
    elif kind in ("vector", "image") and None in shape:
        raise SchemaError(
            table=table,
            column=name,
            problem=f"shapes declares {tuple(shape)}, but a {kind} has no varying length.",
            advice="Declare whole numbers; resize images to one size first.",
        )
    is_masked = name in wishes.mask
    fill = _check_fill(table, name, kind, (wishes.fill or {}).get(name), is_masked)
    column = Column(name, kind, depth, shape, pad, fill, is_masked)
    if column.dtype == "uint8" and fill and len(fill) != column.size:
        raise SchemaError(
            table=table,
            column=name,
            problem=f"fill={fill!r} has {len(fill)} bytes, its shape {shape} has {column.size}.",
            advice="Expected as many bytes, or none at all for zeros.",
        )
    return column


def _find_kind(spark_type: Any) -> tuple[str | None, int]:
    """(row of TYPES or None, how deep arrays are nested)."""
    depth = 0
    while isinstance(spark_type, Mapping) and spark_type.get("type") == "array":
        spark_type = spark_type["elementType"]
        depth += 1
    if isinstance(spark_type, Mapping):
        if spark_type.get("type") == "udt" and spark_type.get("class") == _VECTOR:
            return ("vector" if depth == 0 else None), depth
        names = tuple(field["name"] for field in spark_type.get("fields", ()))
        return ("image" if names == _IMAGE_FIELDS and depth == 0 else None), depth
    name = str(spark_type).split("(")[0].split(" ")[0]
    name = {"char": "string", "varchar": "string", "int": "integer", "tinyint": "byte"}.get(
        name, name
    )
    return (name if name in TYPES and name not in ("vector", "image") else None), depth


def _check_shape(
    table: str, name: str, declared: Any, depth: int, kind: str
) -> tuple[int | None, ...]:
    def refuse(problem: str) -> SchemaError:
        return SchemaError(
            table=table,
            column=name,
            problem=f"shapes declares {declared!r}: {problem}.",
            advice="Expected a tuple of whole numbers such as (28, 28, 1), with None where"
            " lengths vary.",
        )

    is_list = isinstance(declared, Sequence) and not isinstance(declared, str)
    lengths = list(declared) if is_list else [declared]
    for length in lengths:
        is_count = isinstance(length, int) and not isinstance(length, bool) and length > 0
        if length is not None and not is_count:
            raise refuse(f"{length!r} is no length")
    if depth == 0 and kind != "binary":
        raise refuse("the column holds single values")
    if kind == "binary" and depth == 0 and None in lengths:
        raise refuse("bytes have a shape only as a whole, without None")
    if not lengths or len(lengths) < depth:
        raise refuse(f"the arrays are nested {depth} deep")
    if None in lengths and len(lengths) != depth:
        raise refuse(f"with None it needs exactly {depth} lengths, one for each array")
    return tuple(lengths)


def _check_fill(table: str, name: str, kind: str, fill: Any, is_masked: bool) -> Any:
    if fill is None and not is_masked:
        return None
    if kind in ("vector", "image"):
        problem = "mask names it" if fill is None else f"fill={fill!r} does not fit"
        raise SchemaError(
            table=table,
            column=name,
            problem=f"{problem}, but nothing stands for a null {kind}.",
            advice="Leave out rows without a vector or an image: df.dropna(subset=[...]).",
        )
    if fill is None:
        fill = "" if TYPES[kind][0] == "string" else 0
    return _check_value(table, name, kind, "fill", fill)


def _check_value(table: str, name: str, kind: str, option: str, value: Any) -> Any:
    """A fill or a pad as the plain Python value of its kind; raises SchemaError."""
    # A scalar of numpy has a plain one inside.
    plain = value.item() if getattr(value, "shape", None) == () else value
    dtype = TYPES[kind][0]
    try:
        if isinstance(plain, (str, bytes)) != (dtype == "string"):
            raise ValueError(plain)
        if kind == "binary":
            return plain.encode() if isinstance(plain, str) else plain
        if dtype == "string":
            return plain.decode() if isinstance(plain, bytes) else plain
        if not isinstance(plain, (bool, int, float, Decimal)):
            raise ValueError(plain)
        if dtype.startswith("float"):
            return float(plain)
        limit = 1 if dtype == "bool" else 2 ** (int(dtype.removeprefix("int")) - 1) - 1
        lowest = 0 if dtype == "bool" else -limit - 1
        if plain != int(plain) or not lowest <= plain <= limit:
            raise ValueError(plain)
        return bool(plain) if dtype == "bool" else int(plain)
    except (ValueError, OverflowError) as error:
        raise SchemaError(
            table=table,
            column=name,
            problem=f"{option}={value!r} does not fit a {kind}, which is a tensor of {dtype}.",
            advice="Expected a number in its range for numbers, dates and timestamps, True or"
            " False for booleans, text for strings, bytes for binary.",
        ) from error


def needs_first_row(columns: Sequence[Column]) -> list[str]:
    """The columns whose lengths nobody has declared."""
    return [column.name for column in columns if UNKNOWN in column.shape]


def with_lengths(table: str, column: Column, found: Sequence[int]) -> Column:
    """The column with the lengths of its first row in place of UNKNOWN."""
    if 0 in found:
        raise SchemaError(
            table=table,
            column=column.name,
            problem="Its length was to be found from the first row, where it is empty.",
            advice=f"Declare it: shapes={{{column.name!r}: (3,)}}, or (None,) if lengths vary.",
        )
    return replace(column, shape=tuple(found))


def _describe(spark_type: Any) -> str:
    if isinstance(spark_type, Mapping):
        if spark_type.get("type") == "array":
            return f"array<{_describe(spark_type['elementType'])}>"
        return str(spark_type.get("class") or spark_type.get("type"))
    return str(spark_type)


def to_markdown() -> str:
    """The text of docs/types.md."""
    lines = [
        "# Types",
        "",
        "What a column becomes in `ctx.dataset()`. This page is written from",
        "`sparktrain/data/schema.py` by `python -m sparktrain.data.schema > docs/types.md`.",
        "",
        "| Spark type | tensor | |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | `{dtype}` | {doc} |" for name, (dtype, doc) in TYPES.items()]
    lines += [
        "| `array<...>` | dense, ragged or padded | nested as deep as you like |",
        "",
        "An **array** is taken to have one length, that of the first row; a row of another length",
        'is an error that names it. `shapes={"pixels": (28, 28, 1)}` declares the shape and',
        'reshapes; `shapes={"words": (None,)}` makes a ragged tensor; `pad={"words": 0}` pads to',
        "the longest row of the batch, or to a declared shape.",
        "",
        'A **null** is an error that names column and row, unless `fill={"age": 0}` says what',
        'stands for it. `mask=["age"]` fills too, and adds a boolean column `age_is_null`.',
        "",
        "Anything else (maps, structs, intervals): `SchemaError` on the driver, before any job.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(to_markdown())
