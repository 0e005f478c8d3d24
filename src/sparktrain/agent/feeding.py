"""What the tasks of a feeding job run: find a trainer, bring it the rows, say how many it took.

A partition goes to one trainer: one on this host if there is any, else the least busy. All
attempts of a task must come to the same one, which knows what is there already; so the choice
is written down at the partition's home, a trainer that the number of the partition tells.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import pickle
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sparktrain.agent.cause import ask_for_cause
from sparktrain.agent.failure import NodeFailureError
from sparktrain.agent.known_rows import Mark, differ, fingerprint, leave_out
from sparktrain.data.arrow import cut_batch, make_block, stored_schema
from sparktrain.data.faults import BadRowError, Place
from sparktrain.data.fed_row import FedRow
from sparktrain.data.rows import PICKLED
from sparktrain.data.schema import Column
from sparktrain.spec import ControlAddress, Failure
from sparktrain.wire.flight import CONNECT_TIMEOUT_S, Door, connect, pack, unpack

#: The schema of what a task yields: where its rows went, and how many.
SCHEMA = "node string, rows long, is_wanted boolean"
#: Rows are brought in pieces of about this size.
PIECE_BYTES = 1 << 20
#: Rows that are pickled together at first, until their size is known.
FIRST_ROWS = 32
MAX_ROWS = 4096
#: Trainers whose load is looked at before one is chosen.
MAX_LOOKED_AT = 4
#: Rows on their way: as they travel, how many they are, and their fingerprint.
Brought = tuple[pa.RecordBatch, int, int]


@dataclass(frozen=True)
class Target:
    """Where the rows of a job go."""

    run_id: str
    doors: tuple[Door, ...]
    token: str = field(repr=False)
    control: ControlAddress | None = None


@dataclass(frozen=True)
class FeedTask:
    """The callable given to mapInArrow, or to mapPartitions of an RDD.

    Args:
        feed: Names the feed, and its epoch.
        table: The table the rows are of.
        columns: Of the rows; none for rows of Python values.
    """

    target: Target
    feed: str
    table: str
    columns: tuple[Column, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for node, rows, is_wanted in self._feed(lambda known: self._pieces(batches, known)):
            values = {"node": [node], "rows": [rows], "is_wanted": [is_wanted]}
            kinds = [pa.string(), pa.int64(), pa.bool_()]
            yield pa.RecordBatch.from_arrays(
                [pa.array(v, k) for v, k in zip(values.values(), kinds, strict=True)],
                names=list(values),
            )

    def feed_rows(self, rows: Iterable[Any]) -> Iterator[tuple[str, int, bool]]:
        """For an RDD: rows of any kind."""
        partition, _ = find_task()
        place = Place(self.table, partition, 0)
        return self._feed(lambda known: pickle_rows(rows, known, place))

    def _feed(
        self, pieces: Callable[[list[Mark]], Iterator[Brought]]
    ) -> Iterator[tuple[str, int, bool]]:
        partition, attempt = find_task()
        door = find_door(self.target, self.feed, partition)
        schema = stored_schema(self.columns) if self.columns else PICKLED
        command = {
            "feed": self.feed,
            "partition": partition,
            "attempt": attempt,
            "table": self.table,
            "columns": [column.to_dict() for column in self.columns],
        }
        with lost_trainer(self.target, door.node):
            client, options = connect(door, self.target.token)
            with client:
                descriptor = fl.FlightDescriptor.for_command(pack(command))
                writer, reader = client.do_put(descriptor, schema, options)
                begun = _read(writer, reader)
                if not begun["is_wanted"]:
                    writer.close()
                    yield door.node, 0, False
                    return
                # Rows that an earlier attempt brought are counted, not brought again.
                known = [(int(count), int(mark)) for count, mark in begun["known"]]
                rows = sum(count for count, _ in known)
                with LastWord(writer, reader) as last:
                    for piece, count, mark in pieces(known):
                        if last.is_said:  # no more are wanted, or the trainer is gone
                            break
                        writer.write_with_metadata(piece, str(mark).encode())
                        rows += count
                said = last.said
                writer.close()
                if said is None:
                    raise fl.FlightServerError("the trainer ended the call without a word")
                yield door.node, rows, bool(unpack(said)["is_wanted"])

    def _pieces(self, batches: Iterable[pa.RecordBatch], known: list[Mark]) -> Iterator[Brought]:
        partition, _ = find_task()
        place = Place(self.table, partition, 0)
        for block in leave_out(self._blocks(batches, partition), known, place):
            yield block, block.num_rows, fingerprint(block)

    def _blocks(
        self, batches: Iterable[pa.RecordBatch], partition: int
    ) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in batches:
            for part in cut_batch(batch, self.columns, PIECE_BYTES):
                place = Place(self.table, partition, done)
                done += part.num_rows
                try:
                    yield make_block(part, self.columns, place)
                except BadRowError as error:
                    what = str(error).rstrip(".")
                    raise NodeFailureError(Failure("the feed", "", "data", what)) from error


def find_task() -> tuple[int, int]:
    """The number of this task's partition, and of its attempt, which no other task has."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return int(context.partitionId()), int(context.taskAttemptId())


def find_door(target: Target, feed: str, partition: int) -> Door:
    """The trainer that a partition goes to."""
    doors = target.doors
    if len(doors) == 1:
        return doors[0]
    wished = choose(target, partition)
    home = doors[zlib.crc32(f"{feed}/{partition}".encode()) % len(doors)]
    body = {"feed": feed, "partition": partition, "node": wished.node}
    with lost_trainer(target, home.node):
        found = call(target, home, "bind", body)["node"]
    return next(door for door in doors if door.node == found)


def choose(target: Target, partition: int) -> Door:
    """The least busy of the trainers on this host, or of a few if there is none here."""
    here = [door for door in target.doors if door.is_here]
    found = here or list(target.doors)
    # Tasks that begin together begin to look in different places.
    start = partition % len(found)
    found = [*found[start:], *found[:start]][:MAX_LOOKED_AT]
    if len(found) == 1:
        return found[0]
    loads = []
    for door in found:
        with lost_trainer(target, door.node):
            loads.append(tuple(call(target, door, "load", {})["load"]))
    return found[loads.index(min(loads))]


def call(target: Target, door: Door, action: str, body: dict[str, Any]) -> dict[str, Any]:
    client, options = connect(door, target.token, CONNECT_TIMEOUT_S)
    with client:
        return unpack(next(iter(client.do_action(fl.Action(action, pack(body)), options))).body)


def is_waiting(target: Target, door: Door) -> bool:
    """Whether a trainer has rows that its function has not taken, or is not done with.

    False also where it cannot be asked.
    """
    with contextlib.suppress(fl.FlightError, pa.ArrowException, StopIteration, OSError):
        _, _, waiting, in_hand = call(target, door, "load", {})["load"]
        return bool(waiting or in_hand)
    return False


@contextlib.contextmanager
def lost_trainer(target: Target, node: str) -> Iterator[None]:
    """Says what became of a trainer that is not there any more."""
    try:
        yield
    except (fl.FlightError, pa.ArrowException, StopIteration, OSError) as error:
        cause = ask_for_cause(target.control, target.run_id)
        what = cause or f"the rows could not be handed over: {str(error).splitlines()[0][:500]}"
        raise NodeFailureError(
            Failure(node, "", "lost" if cause is None else "exception", what)
        ) from error


def _read(writer: Any, reader: Any) -> dict[str, Any]:
    """What the trainer says; of a call that failed, its error."""
    said = reader.read()
    if said is None:
        writer.close()  # raises it
        raise fl.FlightServerError("the trainer ended the call without a word")
    return unpack(said)


class LastWord:
    """Hears, while rows are written, what the trainer says at the end. Use as a context manager."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer = writer
        self._reader = reader
        self._thread = threading.Thread(target=self._hear, name="sparktrain-answer", daemon=True)
        self.is_said = False
        self.said: Any = None

    def __enter__(self) -> LastWord:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        # Also after an error of our own: a call that nobody ends would never be over.
        with contextlib.suppress(fl.FlightError, pa.ArrowException):
            self._writer.done_writing()
        self._thread.join()

    def _hear(self) -> None:
        with contextlib.suppress(Exception):
            self.said = self._reader.read()
        self.is_said = True


def pickle_rows(
    rows: Iterable[Any], known: Sequence[Mark] = (), place: Place | None = None
) -> Iterator[Brought]:
    """Rows of any kind in pieces of about one size; None is a row like any other."""
    rows = iter(rows)
    done = 0
    for count, mark in known:
        if zlib.crc32(dump(list(itertools.islice(rows, count)))) != mark:
            raise differ(place or Place("", 0, 0), done)
        done += count
    size = FIRST_ROWS
    while some := list(itertools.islice(rows, size)):
        data = dump(some)
        piece = pa.RecordBatch.from_arrays(
            [pa.array([data], pa.large_binary()), pa.array([len(some)])], schema=PICKLED
        )
        yield piece, len(some), zlib.crc32(data)
        row_bytes = max(len(data) // len(some), 1)
        size = min(max(PIECE_BYTES // row_bytes, 1), MAX_ROWS)


def dump(rows: Sequence[Any]) -> bytes:
    """Pickled so that it can be read without pyspark."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _find_table()
    pickler.dump(rows)
    return stream.getvalue()


def _find_table() -> dict[type, Any]:
    from pyspark.sql import Row

    return {Row: _reduce_row}


def _reduce_row(row: Any) -> tuple[Any, ...]:
    names = tuple(getattr(row, "__fields__", ()))
    return (FedRow.make, (names, tuple(row)))
