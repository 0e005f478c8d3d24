"""How an estimator feeds its DataFrame: as columns, if its rows are then the same as of its RDD."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

_NUMBERS = (BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)
_PLAIN = (*_NUMBERS, StringType, BinaryType)


def feed_frame(cluster: Any, frame: Any, epochs: int) -> None:
    """Trains on a DataFrame. Nulls and arrays of unequal lengths, which no tensor can hold, go
    as rows of Python values: next_batch() gives them as they are, and there is no dataset().
    """
    if not all(is_plain(field.dataType) for field in frame.schema.fields):
        cluster.train(frame.rdd, epochs)
        return
    kept = frame.persist()  # looked at once, then fed: it must not be computed twice
    try:
        cluster.train(kept if is_even(kept) else kept.rdd, epochs)
    finally:
        kept.unpersist()


def is_plain(kind: DataType) -> bool:
    """Whether a value is the same by way of columns."""
    if isinstance(kind, ArrayType):
        return isinstance(kind.elementType, _NUMBERS)
    return isinstance(kind, _PLAIN)


def is_even(frame: Any) -> bool:
    """Whether there is no null, and every array of a column is as long as the others."""
    checks = []
    for field in frame.schema.fields:
        column = F.col(f"`{field.name}`")
        checks.append(F.count(F.when(column.isNull(), True)) == 0)
        if isinstance(field.dataType, ArrayType):
            size = F.size(column)
            checks.append(F.coalesce(F.min(size) == F.max(size), F.lit(True)))
            inside = F.exists(column, lambda value: value.isNull())
            checks.append(F.count(F.when(inside, True)) == 0)
    (row,) = frame.agg(*(check.alias(str(n)) for n, check in enumerate(checks))).collect()
    return all(row)
