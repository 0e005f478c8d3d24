"""Writes a stream into a folder, each batch once, also across restarts.

Spark tries the last batch again if it does not know that it was done. So what a batch is about
to make visible is written down first, in a note of the query and the batch. Whoever finds such
a note does what it says, and drops what was written again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sparktrain.errors import RecordError
from sparktrain.sources.folder import HIDDEN, OutputFolder
from sparktrain.sources.options import WriteOptions
from sparktrain.sources.writer import Written, collect, write_task


class RecordStreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one for the tasks and another one for each commit."""

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if query is None or batch is None:
            raise RecordError(
                problem="Spark does not tell this task which streaming query and batch it is of.",
                advice="Write with foreachBatch and st.tfrecord.write instead.",
            )
        hidden = f"{_home(query)}/batch-{batch}"
        job = f"{query[:8]}-{int(batch):06d}-{uuid.uuid4().hex[:4]}"
        return Written(write_task(self._options, hidden, job, iterator), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query = _find_query(messages)
        if query is None:
            return  # no task, no rows
        folder = OutputFolder(self._options)
        folder.make()
        name = f"{_home(query)}/note-{batchId}"
        note = folder.read_note(name)
        if note is None:
            moves = collect(messages)
            old = folder.find_old(moves) if self._overwrite else []
            note = {"moves": moves, "old": old, "is_done": False}
            folder.write_note(name, note)
        if not note["is_done"]:
            folder.publish([(hidden, place) for hidden, place in note["moves"]], note["old"])
            folder.write_note(name, {"is_done": True})
        folder.remove(f"{_home(query)}/batch-{batchId}")
        # Spark never goes back further than one batch.
        folder.remove(f"{_home(query)}/note-{batchId - 2}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query = _find_query(messages)
        if query is None:
            return
        folder = OutputFolder(self._options)
        if folder.read_note(f"{_home(query)}/note-{batchId}") is None:
            folder.remove(f"{_home(query)}/batch-{batchId}")


def _home(query: str) -> str:
    """Where a query's hidden files and notes are."""
    return f"{HIDDEN}stream-{query}"


def _find_query(messages: list[WriterCommitMessage | None]) -> str | None:
    queries = [message.query for message in messages if isinstance(message, Written)]
    return queries[0] if queries else None
