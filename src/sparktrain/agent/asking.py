"""What the tasks of cluster.predict() run: rows go to a trainer, and come back with answers."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sparktrain.agent.failure import NodeFailureError
from sparktrain.agent.feeding import (
    PIECE_BYTES,
    Target,
    choose,
    find_task,
    lost_trainer,
    pickle_rows,
)
from sparktrain.data.arrow import cut_batch, make_block, stored_schema
from sparktrain.data.faults import BadRowError, Place
from sparktrain.data.rows import PICKLED
from sparktrain.data.schema import Column
from sparktrain.data.vectors import make_dense
from sparktrain.spec import Failure
from sparktrain.wire.flight import connect, pack

#: How long rows that nobody wants any more may take to stop coming.
CANCEL_WAIT_S = 10.0


@dataclass(frozen=True)
class AskTask:
    """The callable given to mapInArrow.

    Args:
        columns: What the trainer is asked; names of other columns of the rows just come back.
        answers: The answers' columns as the DataFrame has them; None hands back the schema of
            the first answer instead, as JSON.
    """

    target: Target
    columns: tuple[Column, ...]
    answers: pa.Schema | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, _ = find_task()
        asked: deque[pa.RecordBatch] = deque()

        def pieces() -> Iterator[pa.RecordBatch]:
            done = 0
            for batch in batches:
                if batch.num_rows == 0:
                    continue
                asked.append(batch)
                rows = make_dense(batch.select(self._names))
                for part in cut_batch(rows, self.columns, PIECE_BYTES):
                    place = Place("predict", partition, done)
                    done += part.num_rows
                    yield make_block(part, self.columns, place)

        schema = stored_schema(self.columns)
        for answer in converse(self.target, partition, self.columns, schema, pieces()):
            if self.answers is None:
                yield _describe(answer.schema)
                return
            start = 0
            while start < answer.num_rows:
                batch = asked.popleft()
                count = min(batch.num_rows, answer.num_rows - start)
                if count < batch.num_rows:
                    asked.appendleft(batch.slice(count))
                yield self._join(batch.slice(0, count), answer.slice(start, count))
                start += count

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.columns]

    def _join(self, rows: pa.RecordBatch, answer: pa.RecordBatch) -> pa.RecordBatch:
        if self.answers is None:
            raise RuntimeError("no answers are expected")
        arrays = list(rows.columns)
        for declared in self.answers:
            if declared.name not in answer.schema.names:
                raise _refuse(
                    f"the function answered {', '.join(answer.schema.names)}; expected"
                    f" {', '.join(self.answers.names)}"
                )
            try:
                arrays.append(answer.column(declared.name).cast(declared.type))
            except pa.ArrowException as error:
                kind = answer.schema.field(declared.name).type
                raise _refuse(
                    f"the answer {declared.name!r} is {kind}, which cannot become"
                    f" {declared.type}: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, names=[*rows.schema.names, *self.answers.names])


def ask_rows(
    target: Target, rows: Iterator[Any], idle_timeout_s: float | None = None
) -> Iterator[Any]:
    """For an RDD: one answer for each row, of any kind."""
    import pickle

    partition, _ = find_task()
    pieces = (piece for piece, _, _ in pickle_rows(rows))
    for answer in converse(target, partition, (), PICKLED, pieces, idle_timeout_s):
        for data in answer.column(0).to_pylist():
            # By the trainer of this cluster: nobody else listens at its door.
            yield from pickle.loads(data)


def converse(
    target: Target,
    partition: int,
    columns: tuple[Column, ...],
    schema: pa.Schema,
    pieces: Iterator[pa.RecordBatch],
    idle_timeout_s: float | None = None,
) -> Iterator[pa.RecordBatch]:
    """Sends the rows in a thread, yields the answers as they come.

    Args:
        idle_timeout_s: How long rows may wait there while none is taken and none is answered.
    """
    pieces = _refusing(pieces)
    first = next(pieces, None)
    if first is None:
        return  # nobody is asked about no rows
    door = choose(target, partition)
    with lost_trainer(target, door.node):
        client, options = connect(door, target.token)
        with client:
            wishes: dict[str, Any] = {"columns": [column.to_dict() for column in columns]}
            wishes["idle_timeout_s"] = idle_timeout_s
            descriptor = fl.FlightDescriptor.for_command(pack(wishes))
            writer, reader = client.do_exchange(descriptor, options)
            errors: list[BaseException] = []

            def send() -> None:
                try:
                    writer.begin(schema)
                    writer.write_batch(first)
                    for piece in pieces:
                        writer.write_batch(piece)
                    # Not that writing is done: Arrow's reader says so when the trainer ends the
                    # call, and gRPC ends the process if both do at once.
                    writer.write_metadata(b"end")
                except BaseException as error:
                    errors.append(error)
                    reader.cancel()

            sender = threading.Thread(target=send, name="sparktrain-ask", daemon=True)
            sender.start()
            try:
                for chunk in _until_end(reader):
                    yield chunk.data
                sender.join()
                writer.close()
            except GeneratorExit:  # nobody wants the rest
                reader.cancel()
                sender.join(CANCEL_WAIT_S)
                _close_quietly(writer, sender)
                raise
            except (fl.FlightError, pa.ArrowException):
                sender.join(5.0)
                _close_quietly(writer, sender)
                own = [error for error in errors if isinstance(error, NodeFailureError)]
                if own:
                    raise own[0] from None
                raise


def _close_quietly(writer: Any, sender: threading.Thread) -> None:
    """Else Arrow does it, whenever Python lets go of the writer, and prints how the call ended."""
    if not sender.is_alive():
        with contextlib.suppress(fl.FlightError, pa.ArrowException):
            writer.close()


def _until_end(reader: Any) -> Iterator[Any]:
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


def _refusing(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from pieces
    except BadRowError as error:
        raise _refuse(str(error).rstrip(".")) from error


def _refuse(what: str) -> NodeFailureError:
    return NodeFailureError(Failure("predict", "", "data", what))


def _describe(schema: pa.Schema) -> pa.RecordBatch:
    """A schema as a row: its names and types in Arrow's own form."""
    return pa.RecordBatch.from_pydict({"schema": [schema.serialize().to_pybytes()]})
