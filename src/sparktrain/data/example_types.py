"""Which of the three kinds of lists each type of column is written as, and how.

| type | kind | values |
|---|---|---|
| boolean | int64 | 0 and 1 |
| byte, short, integer, long | int64 | |
| date | int64 | days since 1970-01-01 |
| timestamp, timestamp_ntz | int64 | microseconds since 1970-01-01 (UTC) |
| float | float | |
| double | float | rounded to float32, or refused; an error beyond its range |
| decimal | bytes | its digits as text, every one of them |
| string | bytes | UTF-8 |
| binary | bytes | |
| vector of Spark ML | float | all its values, rounded to float32 |
| array of these | the same | no element may be null |
| array of arrays | a feature list | in SequenceExamples; an array inside may be null |
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparktrain.data.vectors import densify, is_vector
from sparktrain.errors import RecordError


def to_kind(name: str, column: pa.Array) -> pa.Array:
    """The column with int64, float32 or binary values; raises RecordError."""
    if is_vector(column.type):
        column = densify(column)
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if not pa.types.is_list(column.type):
        return _convert(name, column)
    if is_vector(column.type.value_type):
        raise _refuse(name, column.type)
    if pa.types.is_null(column.type.value_type):
        column = column.cast(pa.list_(pa.int64()))  # all of them are empty, or null
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    values = column.values.slice(first, last - first)
    is_nested = pa.types.is_list(values.type)
    if values.null_count and not is_nested:
        _refuse_null(name, column)
    return pa.ListArray.from_arrays(
        pc.subtract(offsets, first),
        to_kind(name, values),
        mask=column.is_null() if column.null_count else None,
    )


def find_depth(kind: pa.DataType) -> int:
    """How many arrays are around the values."""
    return 1 + find_depth(kind.value_type) if pa.types.is_list(kind) else int(is_vector(kind))


def has_doubles(kind: pa.DataType) -> bool:
    """Whether values would be rounded to float32."""
    if pa.types.is_list(kind):
        return has_doubles(kind.value_type)
    return bool(pa.types.is_float64(kind) or is_vector(kind))


def _refuse_null(name: str, column: pa.Array) -> None:
    for value in column:
        if value.is_valid and value.values.null_count:
            shown = str(value.as_py())
            raise RecordError(
                problem=f"Column {name!r} has a null inside an array,"
                f" {shown if len(shown) < 100 else shown[:100] + '...'}:"
                " TFRecord lists have no place for null.",
                advice="Take nulls out of the array first, for example with filter(x -> x IS NOT"
                " NULL), or put a value in their place.",
            )


def _convert(name: str, values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_signed_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
    if pa.types.is_floating(kind):
        return _round(name, values)
    if pa.types.is_decimal(kind):
        return _spell(values)
    if any(is_text(kind) for is_text in _TEXTS):
        return values.cast(pa.binary())
    raise _refuse(name, kind)


_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def _round(name: str, values: pa.Array) -> pa.Array:
    rounded = values.cast(pa.float32(), safe=False)
    is_lost = pc.and_(pc.is_inf(rounded), pc.is_finite(values))
    if pc.any(is_lost).as_py():
        raise RecordError(
            problem=f"Column {name!r} has the value {values.filter(is_lost)[0].as_py()!r}, which"
            " is too large for a float: TFRecord has no place for more.",
            advice="Scale the column, or cast it to string for all digits.",
        )
    return rounded


def _spell(values: pa.Array) -> pa.Array:
    """All digits of decimals, also where Arrow would write 1E-9."""
    texts = values.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        plain = [None if value is None else f"{value:f}" for value in values.to_pylist()]
        texts = pa.array(plain, pa.string())
    return texts.cast(pa.binary())


def _refuse(name: str, kind: pa.DataType) -> RecordError:
    return RecordError(
        problem=f"Column {name!r} has the type {kind}, which TFRecord has no place for.",
        advice="Expected booleans, numbers, strings, bytes, dates, timestamps or arrays of them:"
        " cast the column, or leave it out.",
    )
