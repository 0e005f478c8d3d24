"""Writes TFRecord files for Spark, so that a job's files appear together or not at all.

Tasks write into a hidden folder of the job and say what they wrote. When all are done, the
driver moves these files to their places; what failed or was tried twice stays hidden, and goes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparktrain.data.memory import keeping_memory
from sparktrain.sources.folder import HIDDEN, Move, OutputFolder
from sparktrain.sources.options import WriteOptions
from sparktrain.sources.output import TaskOutput, open_packed


@dataclass
class Written(WriterCommitMessage):
    """The files of one task, and of which streaming query it was."""

    moves: list[Move] = field(default_factory=list)
    query: str = ""


def collect(messages: list[WriterCommitMessage | None]) -> list[Move]:
    return [move for message in messages if isinstance(message, Written) for move in message.moves]


def write_task(
    options: WriteOptions, hidden: str, job: str, batches: Iterator[pa.RecordBatch]
) -> list[Move]:
    """Writes what a task gets into the hidden folder, under names no other attempt has."""
    context = TaskContext.get()
    number = context.partitionId() if context is not None else 0
    attempt = uuid.uuid4().hex[:8]
    folder = OutputFolder(options)
    moves: list[Move] = []

    def open_file(place: str) -> Any:
        if not moves:
            folder.make(hidden)
        count = f"-{len(moves):04d}" if moves else ""
        name = f"part-{number:05d}-{job}-{attempt}{count}.tfrecord{options.extension}"
        moves.append((f"{hidden}/{name}", f"{place}{name}"))
        return open_packed(folder.filesystem, folder.path(moves[-1][0]), options.compression)

    with keeping_memory(), TaskOutput(options, open_file) as output:
        for batch in batches:
            output.write(batch)
    return moves


class RecordSourceWriter(DataSourceArrowWriter):
    """Spark pickles this into every task."""

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        #: Of this job alone: several may write into one folder at the same time.
        self._job = uuid.uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Written(write_task(self._options, self._hidden, self._job, iterator))

    @property
    def _hidden(self) -> str:
        return f"{HIDDEN}{self._job}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        folder = OutputFolder(self._options)
        folder.make()
        moves = collect(messages)
        # What is replaced goes last: until then there are old files, new ones, or both.
        folder.publish(moves, folder.find_old(moves) if self._overwrite else [])
        folder.write_success()
        folder.remove(self._hidden)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        OutputFolder(self._options).remove(self._hidden)
