"""Parquet: from a file's own schema to fields, and from its row groups to blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparktrain.data.arrow import make_block
from sparktrain.data.faults import BadFileError, BadRowError, Place
from sparktrain.data.schema import Column
from sparktrain.data.shards import Shard

_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    # An unsigned number needs the next larger type; for uint64 there is none.
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.date64(): "date",
}
#: Kind -> the Arrow type in which make_block takes it.
ARROW_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.float64(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def spark_type(kind: pa.DataType) -> Any:
    """The name of an Arrow type in Spark's JSON, or one that the type table refuses."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = spark_type(kind.value_type)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    # By name: older versions of Arrow have no views.
    if str(kind) in ("string", "large_string", "string_view"):
        return "string"
    if str(kind) in ("binary", "large_binary", "binary_view"):
        return "binary"
    return "binary" if pa.types.is_fixed_size_binary(kind) else f"{kind} of Arrow"


def find_fields(stored: Any) -> list[dict[str, Any]]:
    """The fields of an open file."""
    schema = pq.ParquetFile(stored).schema_arrow
    return [{"name": field.name, "type": spark_type(field.type)} for field in schema]


@dataclass(frozen=True)
class _FilePlace(Place):
    """A batch of chosen row groups, which names the row of the whole file."""

    #: Rows before each chosen group: among the chosen ones, and in the file.
    chosen: tuple[int, ...]
    whole: tuple[int, ...]

    def refuse(self, column: Column, row: int, problem: str, advice: str) -> BadRowError:
        position = self.first_row + row
        group = bisect_right(self.chosen, position) - 1
        found = self.whole[group] + position - self.chosen[group]
        return BadRowError(
            f"column {column.name!r} of {self.table} {problem} in row {found} (counted from 0)."
            f" {advice}"
        )


def read_parquet(
    stored: Any, shard: Shard, columns: Sequence[Column], limits: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """The blocks of a shard of an open file, at most so many (rows, bytes) each."""
    source = pq.ParquetFile(stored, pre_buffer=True, coerce_int96_timestamp_unit="us")
    names = [column.name for column in columns]
    _check_names(shard, names, source.schema_arrow.names)
    found = source.metadata
    every = [found.row_group(group) for group in range(found.num_row_groups)]
    groups = list(range(len(every)) if shard.row_groups is None else shard.row_groups)
    if groups and groups[-1] >= len(every):
        raise BadFileError(
            f"{shard.path} has {len(every)} row groups, but had more when the driver listed it."
            " Do not rewrite files while a run reads them."
        )
    counts = [every[group].num_rows for group in groups]
    before = [0, *accumulate(group.num_rows for group in every)]
    chosen = (0, *accumulate(counts))[: len(counts)]
    whole = tuple(before[group] for group in groups)
    num_bytes = sum(every[group].total_byte_size for group in groups)
    num_rows = max(1, min(limits[0], limits[1] * sum(counts) // max(num_bytes, 1)))
    first = 0
    for batch in source.iter_batches(num_rows, row_groups=groups, columns=names):
        place = _FilePlace(shard.path, 0, first, chosen, whole)
        yield make_block(_normalise(batch, columns, shard), columns, place)
        first += batch.num_rows


def _check_names(shard: Shard, names: Sequence[str], known: Sequence[str]) -> None:
    missing = [name for name in names if known.count(name) != 1]
    if missing:
        raise BadFileError(
            f"{shard.path} has not exactly one column {missing[0]!r}; it has {', '.join(known)}."
            " The first file of the list tells the columns: write all files with one schema, or"
            " choose columns=[...] that all of them have."
        )


def _normalise(batch: pa.RecordBatch, columns: Sequence[Column], shard: Shard) -> pa.RecordBatch:
    """Columns in the types of the first file; the others of the list may differ a little."""
    arrays = []
    for column in columns:
        array = batch.column(column.name)
        kind = ARROW_TYPES[column.kind]
        for _ in range(column.depth):
            kind = pa.list_(kind)
        try:
            arrays.append(array if array.type == kind else _cast(array, kind))
        except pa.ArrowException as error:
            raise BadFileError(
                f"{shard.path}: column {column.name!r} is {array.type} and does not fit"
                f" {kind}, as in the first file of the list ({error}). Write all files with one"
                " schema."
            ) from error
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    leaf = array.type
    while hasattr(leaf, "value_type"):
        leaf = leaf.value_type
    # Nanoseconds and the digits of decimals are lost by design, as in docs/types.md.
    is_lossy = pa.types.is_timestamp(leaf) or pa.types.is_decimal(leaf)
    return array.cast(kind, safe=not is_lossy)
