"""mapInArrow for columns of any name.

pyspark looks for each column by its plain name, in which a dot means a field of a struct: such
columns travel under names that count them, and have their own again where the task begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparktrain.driver.tables import has_odd_name, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Renaming:
    """A task for batches whose columns have lost their names."""

    task: Task
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.task(rename(batch, self.names) for batch in batches)


def rename(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    fields = [field.with_name(name) for field, name in zip(batch.schema, names, strict=True)]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def map_in_arrow(frame: DataFrame, task: Task, schema: Any) -> DataFrame:
    """What the task makes of the DataFrame's batches."""
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

    names = tuple(frame.columns)
    if any(has_odd_name(name) for name in names):
        places = enumerate(names)
        frame = frame.select([F.col(quote(name)).alias(f"c{place}") for place, name in places])
        task = Renaming(task, names)
    found: DataFrame = frame.mapInArrow(task, schema)
    return found
