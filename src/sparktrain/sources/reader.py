"""Reads TFRecord files for Spark: plans on the driver, Arrow batches in the tasks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

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
from sparktrain.data.records import describe, describe_misfit
from sparktrain.data.storage import find_compression, open_plain, open_store
from sparktrain.errors import ConfigError, RecordError
from sparktrain.sources.options import (
    BYTE_ARRAY,
    BYTE_ARRAY_COLUMN,
    DROP,
    FAIL,
    PERMISSIVE,
    ReadOptions,
)


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
        fields = list(to_arrow_schema(self.schema, timezone="UTC"))
        # As Spark does it: Day and day are one name, if there is none that is just the same.
        named = {field.name.lower(): field for field in fields}
        named |= {field.name: field for field in fields}
        folders = {}
        for info, values in listing:
            find_compression(info.path)  # refuses what cannot be read
            found = {}
            for name, value in values.items():
                field = named.get(name) or named.get(name.lower())
                if field is not None:
                    found[field.name] = convert(name, value, field.type, self.options.zone)
            self._check_columns(found)
            folders[info.url, info.path] = found
        tasks = plan_tasks([info for info, _ in listing], self.options.partition_bytes)
        return [
            TaskInput([(part, folders[part.url, part.path]) for part in task]) for task in tasks
        ]

    def _check_columns(self, in_folders: Mapping[str, Any]) -> None:
        inside = [field for field in self.schema.fields if field.name not in in_folders]
        for column in self.schema.fields:
            if not column.nullable and column.name in in_folders:
                if in_folders[column.name] is None:
                    raise ConfigError(
                        problem=f"Column {column.name!r} is null in the name of a folder, and is"
                        " not nullable.",
                        advice="Make it nullable, or leave the folder out of the path.",
                    )
            elif not column.nullable and self.options.mode == PERMISSIVE:
                raise ConfigError(
                    problem=f"Column {column.name!r} is not nullable, and mode=PERMISSIVE makes"
                    " rows of null.",
                    advice="Make it nullable, or use DROPMALFORMED.",
                )
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
            is_whole = part.start == 0 and part.end is None
            opened = open_plain(filesystem, part.path) if is_whole else _open(filesystem, part.path)
            try:
                with opened as stream:
                    blocks = read_part(stream, part, verify=self.options.verify, on_damage=tell)
                    for block, base in blocks:
                        yield block, base, part.path, values
            except Damage as damage:
                raise describe(part.path, damage) from None
            except FileNotFoundError as error:
                if self.options.skip_missing:
                    continue
                raise RecordError(
                    problem=f"{part.path} is not there any more.",
                    advice="It was there when the files were listed. Put it back, or leave out"
                    " such files with option ignoreMissingFiles=true.",
                ) from error


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
            raise describe_misfit(*group.locate(first), bad[first])
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
        return {**self.__dict__, "_listing": ()}  # a task knows its part of it


@contextmanager
def _open(filesystem: Any, path: str) -> Iterator[IO[bytes]]:
    with filesystem.open(path, "rb") as stream:
        yield stream


def _repeat(value: Any, kind: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, kind) if value is None else pa.repeat(pa.scalar(value, kind), size)


def _ignore(damage: Damage) -> None:
    """What is damaged is left out, in the modes that say so."""
