"""Mean and variance of columns, by one job: each task sends a few numbers, the driver merges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparktrain.data.arrow import cast_fill
from sparktrain.data.decimals import round_decimals
from sparktrain.data.schema import Column
from sparktrain.data.vectors import densify, is_vector
from sparktrain.driver.arrow_jobs import map_in_arrow
from sparktrain.driver.tables import quote
from sparktrain.errors import SchemaError
from sparktrain.fit_spec import TRAIN, Moments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "column string, count long, mean array<double>, spread array<double>"
_ARROW = pa.schema(
    [
        ("column", pa.string()),
        ("count", pa.int64()),
        ("mean", pa.list_(pa.float64())),
        ("spread", pa.list_(pa.float64())),
    ]
)


@dataclass(frozen=True)
class Sums:
    """What can be merged: how many rows, their mean, and the sum of squares around it."""

    count: int
    mean: Any
    spread: Any

    def merge(self, other: Sums) -> Sums:
        """Of both together. Not sums of squares: those lose digits where means are large."""
        count = self.count + other.count
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        spread = self.spread + other.spread + step**2 * (self.count * other.count / count)
        return Sums(count, mean, spread)


def sum_up(values: Any) -> Sums:
    """Of rows of one array."""
    mean = values.mean(axis=0)
    return Sums(len(values), mean, ((values - mean) ** 2).sum(axis=0))


class SumTask:
    """What runs on the executors: batches of Arrow in, a row for each column out.

    And one without a mean for rows of arrays that are null where nulls are filled: their length
    is that of others, which need not be here.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[str, Sums] = {}
        filled: dict[str, int] = {}
        for batch in batches:
            for column in self._columns:
                array = batch.column(column.name)
                array = densify(array) if is_vector(array.type) else array
                if _is_list(array.type):
                    if column.fill is not None:
                        filled[column.name] = filled.get(column.name, 0) + array.null_count
                    array = array.drop_null()  # without a fill the feed says which row has one
                values = _to_rows(array, column)
                if len(values):
                    sums = sum_up(values)
                    before = found.get(column.name)
                    found[column.name] = sums if before is None else before.merge(sums)
        rows = [(name, one.count, one.mean, one.spread) for name, one in found.items()]
        rows += [(name, count, np.zeros(0), np.zeros(0)) for name, count in filled.items() if count]
        if rows:
            yield pa.RecordBatch.from_pylist(
                [
                    {"column": name, "count": count, "mean": list(mean), "spread": list(spread)}
                    for name, count, mean, spread in rows
                ],
                schema=_ARROW,
            )


def _to_rows(array: pa.Array, column: Column) -> Any:
    """An array of numpy: a row for each row, filled as the feed does it."""
    size = len(array)
    is_nested = _is_list(array.type)
    while _is_list(array.type):
        array = array.flatten()
    array = round_decimals(array)
    if column.fill is not None and array.null_count:
        array = array.fill_null(cast_fill(column.fill, array.type))
    elif not is_nested:
        array = array.drop_null()
        size = len(array)
    values = _to_numbers(array)
    if size and len(values) % size:
        raise ValueError(
            f"Column {column.name!r}: rows have different lengths, which cannot be"
            " standardised. Leave the column out of standardize."
        )
    return values.reshape(size, -1) if size else values


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _to_numbers(array: pa.Array) -> Any:
    """As the feed makes them: days, microseconds, zero and one."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date(array.type) or pa.types.is_boolean(array.type):
        array = array.cast(pa.int32())
    return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def find_moments(frame: DataFrame, columns: Sequence[Column]) -> dict[str, Moments]:
    """Mean and variance of each column; raises SchemaError for one that has none."""
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

    for column in columns:
        if column.dtype == "string" or None in column.shape or column.kind in ("image", "binary"):
            raise SchemaError(
                table=TRAIN,
                column=column.name,
                problem=f"standardize names it, but it is a tensor of {column.dtype} with the"
                f" shape {column.shape}.",
                advice="Expected numbers, vectors, or arrays of one length; name the columns:"
                " standardize=['age', 'income'].",
            )
    chosen = frame.select([F.col(quote(column.name)) for column in columns])
    found: dict[str, Sums] = {}
    filled: dict[str, int] = {}
    for row in map_in_arrow(chosen, SumTask(columns), SCHEMA).collect():
        name = row["column"]
        sums = Sums(row["count"], np.array(row["mean"]), np.array(row["spread"]))
        if not len(sums.mean):
            filled[name] = filled.get(name, 0) + sums.count
            continue
        before = found.get(name)
        if before is not None and before.mean.shape != sums.mean.shape:
            raise SchemaError(
                table=TRAIN,
                column=name,
                problem=f"Rows have {len(before.mean)} values and {len(sums.mean)}.",
                advice="Only arrays of one length can be standardised.",
            )
        found[name] = sums if before is None else before.merge(sums)
    for column in columns:
        if column.name in filled and column.name in found:
            found[column.name] = add_filled(found[column.name], filled[column.name], column.fill)
    return {column.name: _finish(column.name, found.get(column.name)) for column in columns}


def add_filled(sums: Sums, count: int, fill: Any) -> Sums:
    """With so many rows of which every value is what stands for null."""
    mean = np.full_like(sums.mean, float(fill))
    return sums.merge(Sums(count, mean, np.zeros_like(mean)))


def _finish(name: str, sums: Sums | None) -> Moments:
    if sums is None:
        raise SchemaError(
            table=TRAIN,
            column=name,
            problem="There is no row with a value.",
            advice="Check how the DataFrame was made.",
        )
    variance = sums.spread / sums.count
    if not (np.isfinite(sums.mean).all() and np.isfinite(variance).all()):
        raise SchemaError(
            table=TRAIN,
            column=name,
            problem="It has NaN or infinite values, so it has no mean.",
            advice="Leave out such rows, or the column out of standardize.",
        )
    # A column that never changes stays zero, whatever comes later.
    variance = np.where(variance > 0, variance, 1.0)
    return Moments(tuple(sums.mean.tolist()), tuple(variance.tolist()))
