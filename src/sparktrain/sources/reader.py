"""Reads TFRecord files for Spark: plans on the driver, Arrow batches in the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sparktrain.data.example_scan import Block
from sparktrain.data.partition_folders import convert
from sparktrain.data.record_blocks import HEAD, Damage, raise_damage
from sparktrain.data.record_columns import BadRecord, read_bytes, read_examples
from sparktrain.data.record_parts import Part, plan_tasks, read_part
from sparktrain.data.storage import open_plain, open_store
from sparktrain.errors import RecordError
from sparktrain.sources.listing import Listing
from sparktrain.sources.options import BYTE_ARRAY, DROP, FAIL, ReadOptions


@dataclass
class TaskInput(InputPartition):
    """What one task reads: parts of files, each with the values of its folders."""

    parts: Sequence[tuple[Part, dict[str, Any]]]

    def __init__(self, parts: Sequence[tuple[Part, dict[str, Any]]]) -> None:
        super().__init__(None)
        self.parts = parts


class RecordSourceReader(DataSourceReader):
    """Spark pickles this into every task."""

    def __init__(
        self,
        options: ReadOptions,
        listing: Listing,
        schema: pa.Schema,
        folder_types: dict[str, str],
    ) -> None:
        self._options = options
        self._listing = listing
        self._schema = schema
        self._folder_types = {
            name: kind for name, kind in folder_types.items() if name in schema.names
        }

    def partitions(self) -> Sequence[InputPartition]:
        folders = {(info.url, info.path): values for info, values in self._listing.files}
        tasks = plan_tasks((info for info, _ in self._listing.files), self._options.partition_bytes)
        return [
            TaskInput([(part, self._convert(folders[part.url, part.path])) for part in task])
            for task in tasks
        ] or [TaskInput([])]

    def _convert(self, values: dict[str, str | None]) -> dict[str, Any]:
        return {name: convert(values[name], kind) for name, kind in self._folder_types.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskInput)  # noqa: S101 (for the type)
        for part, values in partition.parts:
            filesystem, _ = open_store(part.url, {})
            opened = (
                open_plain(filesystem, part.path)
                if part.start == 0 and part.end is None
                else filesystem.open(part.path, "rb")
            )
            with opened as stream:
                tell = raise_damage if self._options.mode == FAIL else _ignore
                try:
                    blocks = read_part(stream, part, verify=self._options.verify, on_damage=tell)
                    for block, base in blocks:
                        yield self._make_batch(part.path, block, base, values)
                except Damage as damage:
                    raise _describe(part.path, damage.offset, damage.problem) from None

    def _make_batch(
        self, path: str, block: Block, base: int, values: dict[str, Any]
    ) -> pa.RecordBatch:
        fields = [field for field in self._schema if field.name not in values]
        bad: list[BadRecord] = []
        if self._options.record_type == BYTE_ARRAY:
            columns = [read_bytes(block)] * len(fields)
        else:
            columns, bad = read_examples(block, base, fields)
        if bad and self._options.mode == FAIL:
            raise _describe(path, bad[0].offset, bad[0].problem)
        found = dict(zip((field.name for field in fields), columns, strict=True))
        arrays = [
            found[field.name]
            if field.name in found
            else _repeat(values[field.name], field.type, len(block))
            for field in self._schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if bad and self._options.mode == DROP:
            places = {base + int(start) - HEAD.size: row for row, start in enumerate(block.starts)}
            dropped = {places[one.offset] for one in bad}
            kept = [row for row in range(len(block)) if row not in dropped]
            batch = batch.take(pa.array(kept, pa.int64()))
        return batch


def _repeat(value: Any, kind: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, kind) if value is None else pa.repeat(pa.scalar(value, kind), size)


def _ignore(damage: Damage) -> None:
    """What is damaged is left out, in the modes that say so."""


def _describe(path: str, offset: int, problem: str) -> RecordError:
    return RecordError(
        problem=f"{path} cannot be read at byte {offset}: {problem}.",
        advice=f'option("mode", "{DROP}") leaves such records out; `sparktrain tfrecord verify`'
        " shows all damage of a file.",
    )
