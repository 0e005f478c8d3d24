"""A worker's end of the parameter servers: brings values, takes values, over Arrow Flight."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from sparktrain.wire.flight import Door, connect, pack, unpack
from sparktrain.wire.layout import PART_BYTES, Part, Variable, fingerprint, gather, scatter, split

#: A part is its bytes; of which type they are, both ends know.
SCHEMA = pa.schema([pa.field("values", pa.uint8(), nullable=False)])
#: Synchronising, a worker talks to each server over so many connections at once: while one waits
#: for its next message, another computes.
STREAMS = 3
#: How a call fails that the other end, or the way there, has ended.
_BROKEN = (fl.FlightError, OSError, pa.ArrowException)
#: How long a server may take for all parts of a call.
CALL_TIMEOUT_S = 300.0


def to_batch(values: Any) -> pa.RecordBatch:
    """The bytes of a flat array, which are not copied."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    array = pa.Array.from_buffers(pa.uint8(), buffer.size, [None, buffer])
    return pa.RecordBatch.from_arrays([array], schema=SCHEMA)


def from_batch(batch: pa.RecordBatch, dtype: Any) -> Any:
    """A flat array on the bytes of a message; it cannot be written to."""
    column = batch.column(0)
    buffer = column.buffers()[1]
    size = np.dtype(dtype).itemsize
    if len(column) % size:
        raise ValueError(f"{len(column)} bytes are no values of {dtype}")
    return np.frombuffer(buffer, dtype, len(column) // size, column.offset)


@dataclass(frozen=True)
class Stores:
    """Where the parameter servers of a run are."""

    doors: tuple[Door, ...] = ()
    #: Kept out of every repr so that it cannot reach a log.
    token: str = field(default="", repr=False)

    @classmethod
    def from_dicts(cls, doors: Sequence[Mapping[str, Any]], token: str) -> Stores:
        return cls(tuple(Door.from_dict(door) for door in doors), token)


def leave_all(stores: Stores, worker: int) -> None:
    """Tells all servers that a worker is gone; they may be gone as well."""
    for door in stores.doors:
        with contextlib.suppress(fl.FlightError, OSError):
            client, options = connect(door, stores.token, 5.0)
            with client:
                body = pack({"space": "", "worker": worker, "fit": 0})
                list(client.do_action(fl.Action("leave", body), options))


class ParameterClient:
    """One worker's connection to all servers, for one model; use as a context manager.

    Args:
        space: The model's name on the servers.
        worker: This worker's rank.
        part_bytes: See layout.split().
    """

    def __init__(
        self,
        stores: Stores,
        space: str,
        variables: Sequence[Variable],
        worker: int,
        part_bytes: int | None = PART_BYTES,
    ) -> None:
        self._space = space
        self._variables = list(variables)
        self._worker = worker
        self._doors = stores.doors
        parts = split(variables, len(stores.doors), part_bytes)
        self._parts = {part.number: part for part in parts}
        # Whole variables are for a rule of the program's own, which is asked in their order.
        self._streams = STREAMS if part_bytes is not None else 1
        #: Meetings are counted; nobody else's have this name.
        self._name = uuid.uuid4().hex
        self._num_meetings = 0
        #: For each server its connections; the first one also for what is not synchronising.
        self._connections = [
            [connect(door, stores.token, CALL_TIMEOUT_S) for _ in range(self._streams)]
            for door in stores.doors
        ]
        # Two for each stream, so that answers are read while values are still written.
        self._pool = ThreadPoolExecutor(
            2 * self._streams * max(len(stores.doors), 1), "sparktrain-parameters"
        )

    def __enter__(self) -> ParameterClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for connections in self._connections:
            for client, _ in connections:
                client.close()

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(self._parts.values())

    @property
    def nbytes(self) -> int:
        """Of all values, one way."""
        return sum(part.nbytes for part in self._parts.values())

    def open(self) -> bool:
        """This worker begins; whether all servers have parameters to go on with."""
        told = {"layout": fingerprint(self._variables)}
        return all(answer["is_ready"] for answer in self._ask("open", **told))

    def leave(self, fit: int = 1) -> None:
        """This worker's fit, its first or a later one, is over."""
        self._ask("leave", fit=fit)

    def states(self) -> list[dict[str, Any]]:
        """How things are on each server."""
        return self._ask("state")

    def settle(self) -> set[int]:
        """The parts that the last synchronisation has changed on the servers; it changes no others.

        For one that failed: more of them may have been changed than were answered.
        """
        found = self._ask("settle", client=self._name, meeting=self._num_meetings)
        return {number for one in found for number in one["parts"]}

    def _ask(self, what: str, **values: Any) -> list[dict[str, Any]]:
        body = pack({"space": self._space, "worker": self._worker, **values})
        found = []
        for (client, options), *_ in self._connections:
            (answer,) = client.do_action(fl.Action(what, body), options)
            found.append(unpack(answer.body))
        return found

    def put(self, arrays: Sequence[Any]) -> None:
        """The first values; servers that have some keep those."""
        for future in [self._pool.submit(self._put, n, arrays) for n in range(len(self._doors))]:
            future.result()

    def _put(self, server: int, arrays: Sequence[Any]) -> None:
        client, options = self._connections[server][0]
        parts = self._on(server)
        told = {str(part.number): self._describe(part) for part in parts}
        command = pack({"space": self._space, "parts": told})
        descriptor = fl.FlightDescriptor.for_command(command)
        writer, _ = client.do_put(descriptor, SCHEMA, options)
        with writer:
            for part in parts:
                writer.write_with_metadata(to_batch(gather(part, arrays)), _tag(part))

    def _describe(self, part: Part) -> tuple[str, str, tuple[int, ...]]:
        """Name, type and shape: of the variable, if the part is all of it."""
        first = self._variables[part.pieces[0].variable]
        is_whole = len(part.pieces) == 1 and part.size == first.size
        return first.name, part.dtype, first.shape if is_whole else (part.size,)

    def pull(self, arrays: Sequence[Any]) -> None:
        """Writes the servers' values into the arrays."""
        for future in [self._pool.submit(self._pull, n, arrays) for n in range(len(self._doors))]:
            future.result()

    def _pull(self, server: int, arrays: Sequence[Any]) -> None:
        client, options = self._connections[server][0]
        for chunk in client.do_get(fl.Ticket(pack({"space": self._space})), options):
            part = self._parts[int(bytes(chunk.app_metadata))]
            scatter(part, from_batch(chunk.data, part.dtype), arrays)

    def sync(
        self,
        rule: str,
        rate: float,
        get: Callable[[Part], Any],
        take: Callable[[Part, Any], None],
    ) -> None:
        """One synchronisation. Parts are sent, combined and taken while others are on their way.

        Args:
            get: What to send of a part; called in threads of this class.
            take: Called with each part and what the worker goes on with. If an error is raised,
                it was called for those parts that the servers have answered.
        """
        self._num_meetings += 1
        futures = []
        for server in range(len(self._doors)):
            for stream in range(self._streams):
                futures.append(self._pool.submit(self._sync, server, stream, rule, rate, get, take))
        for future in futures:  # all of them, before the first error is raised
            future.exception()
        for future in futures:
            future.result()

    def _sync(
        self,
        server: int,
        stream: int,
        rule: str,
        rate: float,
        get: Callable[[Part], Any],
        take: Callable[[Part, Any], None],
    ) -> None:
        parts = self._on(server)[stream :: self._streams]
        if stream and not parts:
            return
        client, options = self._connections[server][stream]
        command = {
            "space": self._space,
            "rule": rule,
            "rate": rate,
            "worker": self._worker,
            # So that nobody says it is done: Arrow's reader does at its end, and gRPC ends the
            # process if both do at once.
            "num_parts": len(parts),
            "client": self._name,
            "meeting": self._num_meetings,
        }
        descriptor = fl.FlightDescriptor.for_command(pack(command))
        writer, reader = client.do_exchange(descriptor, options)
        is_over = threading.Event()

        def write() -> None:
            try:
                writer.begin(SCHEMA)
                for part in parts:
                    if is_over.is_set():
                        return
                    writer.write_with_metadata(to_batch(get(part)), _tag(part))
            except _BROKEN:
                raise  # who reads hears the server's own word
            except BaseException:
                reader.cancel()  # else who reads waits for answers to what was not sent
                raise

        writing: Future[None] = self._pool.submit(write)
        num_taken = 0
        try:
            for chunk in reader:
                part = self._parts[int(bytes(chunk.app_metadata))]
                take(part, from_batch(chunk.data, part.dtype))
                num_taken += 1
        except BaseException as error:
            reader.cancel()  # else who writes may wait for somebody who reads
            is_over.set()
            failed = writing.exception()
            if failed is not None and not isinstance(failed, _BROKEN):
                raise failed from error  # which is why the call was cancelled
            raise
        finally:
            writing.exception()
            with contextlib.suppress(*_BROKEN):
                writer.close()
        writing.result()
        if num_taken != len(parts):
            raise fl.FlightInternalError(f"{num_taken} of {len(parts)} parts were answered")

    def _on(self, server: int) -> list[Part]:
        return [part for part in self._parts.values() if part.server == server]


def _tag(part: Part) -> pa.Buffer:
    return pa.py_buffer(str(part.number).encode())
