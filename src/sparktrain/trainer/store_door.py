"""The Flight server of a parameter server.

action   open    a worker begins: are there parameters?
action   leave   a worker's fit is over
action   state   how things are
action   settle  which parts a meeting has changed whose answers were lost
put      first   the first values
get      pull    all values that are here
exchange sync    values of parts, each answered with what the worker goes on with

Values travel as the bytes of Arrow buffers, a part in each message; the message's own metadata
is the number of the part.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sparktrain.trainer.both_doors import BothDoors
from sparktrain.trainer.store import Store, StoreError
from sparktrain.wire.flight import TokenCheck, pack, unpack
from sparktrain.wire.parameters import SCHEMA, from_batch, to_batch


class _Server(fl.FlightServerBase):  # type: ignore[misc]
    def __init__(self, location: str, store: Store, token: str, **tls: Any) -> None:
        super().__init__(location, middleware={"token": TokenCheck(token)}, **tls)
        self._store = store

    def do_action(self, _context: Any, action: fl.Action) -> Iterator[bytes]:
        values = unpack(action.body)
        with _telling():
            if action.type == "open":
                worker = int(values["worker"])
                is_ready = self._store.open(values["space"], values["layout"], worker)
                return iter([pack({"is_ready": is_ready})])
            if action.type == "leave":
                self._store.leave(values["space"], int(values["worker"]), int(values["fit"]))
                return iter([pack({})])
            if action.type == "state":
                return iter([pack(self._store.describe(values["space"]))])
            if action.type == "settle":
                space, client = values["space"], values["client"]
                found = self._store.settle(space, client, int(values["meeting"]))
                return iter([pack({"parts": found})])
        raise fl.FlightServerError(f"unknown action {action.type!r}")

    def do_put(
        self,
        _context: Any,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        _writer: fl.FlightMetadataWriter,
    ) -> None:
        values = unpack(descriptor.command)
        told = values["parts"]
        found = {}
        with _telling():
            for chunk in reader:
                number = _number(chunk)
                name, dtype, shape = told[str(number)]
                array = from_batch(chunk.data, dtype)
                found[number] = (name, tuple(shape), array)
            if len(found) != len(told):
                raise StoreError(f"{len(found)} of {len(told)} parts came")
            self._store.put(values["space"], found)

    def do_get(self, _context: Any, ticket: fl.Ticket) -> fl.FlightDataStream:
        space = unpack(ticket.ticket)["space"]

        def batches() -> Iterator[Any]:
            for number in self._store.numbers(space):
                batch = to_batch(self._store.pull(space, number))
                yield batch, pa.py_buffer(str(number).encode())

        with _telling():
            self._store.numbers(space)
            return fl.GeneratorStream(SCHEMA, batches())

    def do_exchange(
        self,
        _context: Any,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        values = unpack(descriptor.command)
        space, rule, rate = values["space"], values["rule"], float(values["rate"])
        who = int(values["worker"]), values["client"], int(values["meeting"])
        writer.begin(SCHEMA)
        with _telling():
            for chunk in itertools.islice(reader, int(values["num_parts"])):
                number = _number(chunk)
                sent = from_batch(chunk.data, self._store.dtype(space, number))
                taken = self._store.sync(space, number, rule, rate, sent, *who)
                writer.write_with_metadata(to_batch(taken), pa.py_buffer(str(number).encode()))


def _number(chunk: Any) -> int:
    return int(bytes(chunk.app_metadata or b"-1"))


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except fl.FlightError:
        raise
    except Exception as error:
        text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        raise fl.FlightServerError(f"{text}.") from error


class OpenStore(BothDoors):
    """A store that workers can reach; use as a context manager.

    Args:
        job: The door's part of the job: path, host, token, certificate and key.
    """

    def __init__(self, job: Mapping[str, Any], store: Store) -> None:
        def make(location: str, token: str, **tls: Any) -> _Server:
            return _Server(location, store, token, **tls)

        super().__init__(job, make)
