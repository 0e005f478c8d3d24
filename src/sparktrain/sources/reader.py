"""Reads TFRecord files for Spark: plans on the driver, Arrow batches in the tasks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparktrain.data.listing import Listing
from sparktrain.data.partition_folders import convert
from sparktrain.data.record_blocks import Block, Damage, raise_damage
from sparktrain.data.record_columns import ExampleReader, read_bytes
from sparktrain.data.record_groups import Group, group_blocks
from sparktrain.data.record_parts import Part, plan_tasks, read_part
from sparktrain.data.records import describe
from sparktrain.data.storage import open_plain, open_store
from sparktrain.errors import ConfigError
from sparktrain.sources.options import BYTE_ARRAY, BYTE_ARRAY_COLUMN, DROP, FAIL, ReadOptions


class TaskInput(InputPartition):
    """What one task reads: parts of files, each with the values of its folders' columns."""

    def __init__(self, parts: Sequence[tuple[Part, dict[str, Any]]]) -> None:
        super().__init__(None)
        self.parts = parts


@dataclass(frozen=True)
class BatchReader:
    """Makes Arrow batches of files; Spark pickles it into every task.

    Attributes:
        options: How files are read.
        schema: The columns, those of folders among them.
    """

    options: ReadOptions
    schema: StructType

    def plan(self, listing: Listing) -> list[TaskInput]:
        """What each task reads."""
        types = {field.name: field.dataType.typeName() for field in self.schema.fields}
        folders = {}
        for info, values in listing.files:
            found = {
                name: convert(name, value, types[name])
                for name, value in values.items()
                if name in types
            }
            self._check_byte_array(found)
            folders[info.url, info.path] = found
        infos = [info for info, _ in listing.files]
        tasks = plan_tasks(infos, self.options.partition_bytes)
        return [
            TaskInput([(part, folders[part.url, part.path]) for part in task]) for task in tasks
        ]

    def _check_byte_array(self, in_folders: Iterable[str]) -> None:
        inside = [field for field in self.schema.fields if field.name not in in_folders]
        kinds = [field.dataType.typeName() for field in inside]
        if self.options.record_type == BYTE_ARRAY and kinds not in ([], ["binary"]):
            raise ConfigError(
                problem="ByteArray files have one column, of bytes; the schema has those of"
                f" {', '.join(kinds)}.",
                advice=f"Expected `{BYTE_ARRAY_COLUMN} binary`, and columns of folders.",
            )

    def read(self, task: TaskInput) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self.schema, timezone="UTC")
        readers: dict[tuple[str, ...], _ColumnReader] = {}
        for group in group_blocks(self._read_blocks(task.parts)):
            in_folders = tuple(group.common)
            if in_folders not in readers:
                inside = [field for field in schema if field.name not in in_folders]
                readers[in_folders] = _ColumnReader(self.options, inside)
            columns, rows = readers[in_folders].read(group)
            found = iter(columns)
            arrays = [
                _repeat(group.common[field.name], field.type, rows)
                if field.name in in_folders
                else next(found)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read_blocks(
        self, parts: Iterable[tuple[Part, dict[str, Any]]]
    ) -> Iterator[tuple[Block, int, str, dict[str, Any]]]:
        tell = raise_damage if self.options.mode == FAIL else _ignore
        open_once = functools.cache(lambda url: open_store(url, self.options.storage)[0])
        for part, values in parts:
            filesystem = open_once(part.url)
            opened = (
                open_plain(filesystem, part.path)
                if part.start == 0 and part.end is None
                else filesystem.open(part.path, "rb")
            )
            with opened as stream:
                try:
                    blocks = read_part(stream, part, verify=self.options.verify, on_damage=tell)
                    for block, base in blocks:
                        yield block, base, part.path, values
                except Damage as damage:
                    raise describe(part.path, damage.offset, damage.problem) from None


class _ColumnReader:
    """The columns that are in the files."""

    def __init__(self, options: ReadOptions, fields: Sequence[pa.Field]) -> None:
        self._options = options
        self._size = len(fields)
        self._examples = ExampleReader(fields)

    def read(self, group: Group) -> tuple[Sequence[pa.Array], int]:
        """The columns, and how many rows they have; raises RecordError for a bad record."""
        size = len(group.block)
        if self._options.record_type == BYTE_ARRAY:
            return [read_bytes(group.block)] * self._size, size
        columns, bad = self._examples.read(group.block)
        if bad and self._options.mode == FAIL:
            first = min(bad)
            raise describe(*group.locate(first), bad[first])
        if bad and self._options.mode == DROP:
            good = pa.array([row for row in range(size) if row not in bad], pa.int64())
            return [column.take(good) for column in columns], len(good)
        return columns, size


class RecordSourceReader(DataSourceReader):
    """Reads what was there when the query was planned.

    It has no pushFilters: Spark 4.3 keeps what a reader made of one query's conditions with the
    DataFrame, and uses it for the next query, whose rows would then be missing.
    """

    def __init__(self, batches: BatchReader, listing: Listing) -> None:
        self._batches = batches
        self._listing = listing

    def partitions(self) -> Sequence[InputPartition]:
        return self._batches.plan(self._listing) or [TaskInput([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskInput)  # noqa: S101 (for the type)
        return self._batches.read(partition)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_listing": Listing(())}  # a task knows its part of it


def _repeat(value: Any, kind: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, kind) if value is None else pa.repeat(pa.scalar(value, kind), size)


def _ignore(damage: Damage) -> None:
    """What is damaged is left out, in the modes that say so."""
