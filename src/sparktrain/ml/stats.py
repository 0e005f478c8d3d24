"""Mean and variance of columns, by one job: each task sends a few numbers, the driver merges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparktrain.data.schema import Column
from sparktrain.data.vectors import densify, is_vector
from sparktrain.driver.arrow_jobs import map_in_arrow
from sparktrain.driver.tables import quote
from sparktrain.errors import SchemaError
from sparktrain.fit_spec import TRAIN, Moments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "column string, count long, mean array<double>, spread array<double>"


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
    """What runs on the executors: batches of Arrow in, a row for each column out."""

    def __init__(self, columns: Sequence[Column], fill: Mapping[str, Any]) -> None:
        self._columns = columns
        self._fill = dict(fill)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[str, Sums] = {}
        for batch in batches:
            for column in self._columns:
                values = self._to_rows(batch.column(column.name), column)
                if len(values):
                    sums = sum_up(values)
                    before = found.get(column.name)
                    found[column.name] = sums if before is None else before.merge(sums)
        rows = [
            {
                "column": name,
                "count": sums.count,
                "mean": sums.mean.tolist(),
                "spread": sums.spread.tolist(),
            }
            for name, sums in found.items()
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows)

    def _to_rows(self, array: pa.Array, column: Column) -> Any:
        array = densify(array) if is_vector(array.type) else array
        is_nested = _is_list(array.type)
        if is_nested:
            array = array.drop_null()  # the feed says which row has one
        size = len(array)
        while _is_list(array.type):
            array = array.flatten()
        if column.name in self._fill:
            array = array.fill_null(self._fill[column.name])
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


def find_moments(
    frame: DataFrame, columns: Sequence[Column], fill: Mapping[str, Any]
) -> dict[str, Moments]:
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
    for row in map_in_arrow(chosen, SumTask(columns, fill), SCHEMA).collect():
        sums = Sums(row["count"], np.array(row["mean"]), np.array(row["spread"]))
        before = found.get(row["column"])
        if before is not None and before.mean.shape != sums.mean.shape:
            raise SchemaError(
                table=TRAIN,
                column=row["column"],
                problem=f"Rows have {len(before.mean)} values and {len(sums.mean)}.",
                advice="Only arrays of one length can be standardised.",
            )
        found[row["column"]] = sums if before is None else before.merge(sums)
    return {column.name: _finish(column.name, found.get(column.name)) for column in columns}


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
