"""Which of the three kinds of lists each type of column is written as, and how.

| type | kind | values |
|---|---|---|
| boolean | int64 | 0 and 1 |
| byte, short, integer, long | int64 | |
| date | int64 | days since 1970-01-01 |
| timestamp, timestamp_ntz | int64 | microseconds since 1970-01-01 (UTC) |
| float | float | |
| double | float | rounded to float32, or refused |
| decimal | bytes | its digits as text, every one of them |
| string | bytes | UTF-8 |
| binary | bytes | |
| array of these | the same | no element may be null |
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparktrain.errors import RecordError


def to_kind(name: str, column: pa.Array) -> pa.Array:
    """The column with int64, float32 or binary values; raises RecordError."""
    if not pa.types.is_list(column.type):
        return _convert(name, column)
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    values = column.values.slice(first, last - first)
    if values.null_count:
        _refuse_null(name, column)
    lists = pa.ListArray.from_arrays(
        pc.subtract(offsets, first),
        _convert(name, values),
        mask=column.is_null() if column.null_count else None,
    )
    return lists


def _refuse_null(name: str, column: pa.Array) -> None:
    for row, value in enumerate(column):
        if value.is_valid and value.values.null_count:
            raise RecordError(
                problem=f"Column {name!r} has a null inside an array, in row {row} of this batch:"
                " TFRecord lists have no place for null.",
                advice="Take nulls out of the array first, for example with filter(x -> x IS NOT"
                " NULL), or put a value in their place.",
            )


def _convert(name: str, values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_signed_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float32(), safe=False)
    if pa.types.is_decimal(kind):
        return values.cast(pa.string()).cast(pa.binary())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return values.cast(pa.binary())
    raise RecordError(
        problem=f"Column {name!r} has the type {kind}, which TFRecord has no place for.",
        advice="Expected booleans, numbers, strings, bytes, dates, timestamps or arrays of them:"
        " cast the column, or leave it out.",
    )
