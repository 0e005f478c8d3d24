"""The Flight server of a trainer: takes rows in, hands requests to the function.

action   bind    where a partition of a feed goes
action   load    how busy this trainer is
put      feed    rows of a partition: first the answer how many are here, then the rows
exchange ask     rows that want an answer, and the answers, in order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sparktrain.data.schema import Column
from sparktrain.trainer.both_doors import BothDoors
from sparktrain.trainer.inbox import Inbox, InboxFailedError, Item, SupersededError, Ticket
from sparktrain.trainer.requests import Desk
from sparktrain.wire.flight import TokenCheck, pack, unpack


class _Server(fl.FlightServerBase):  # type: ignore[misc]
    def __init__(self, location: str, inbox: Inbox, desk: Desk, token: str, **tls: Any) -> None:
        super().__init__(location, middleware={"token": TokenCheck(token)}, **tls)
        self._inbox = inbox
        self._desk = desk

    def do_action(self, _context: Any, action: fl.Action) -> Iterator[bytes]:
        values = unpack(action.body)
        if action.type == "bind":
            node = self._inbox.bind(values["feed"], int(values["partition"]), values["node"])
            return iter([pack({"node": node})])
        if action.type == "load":
            return iter([pack({"load": list(self._inbox.load)})])
        raise fl.FlightServerError(f"unknown action {action.type!r}")

    def do_put(
        self,
        _context: Any,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        values = unpack(descriptor.command)
        ticket = Ticket(
            values["feed"], int(values["partition"]), int(values["attempt"]), values["table"]
        )
        columns = [Column.from_dict(column) for column in values["columns"]]
        try:
            marks = self._inbox.open(ticket, columns)
            writer.write(pack({"known": marks or [], "is_wanted": marks is not None}))
            if marks is None:
                return
            try:
                is_wanted = self._take_in(ticket, reader, bool(columns))
            finally:
                self._inbox.leave()
            writer.write(pack({"is_wanted": is_wanted}))
            if not is_wanted:
                # The task hears it and stops; a call that ends before would lose the word.
                for _ in reader:
                    pass
        except SupersededError:
            message = f"attempt {ticket.attempt} of this task is not the newest one"
            raise fl.FlightServerError(message) from None
        except InboxFailedError:
            raise fl.FlightServerError("the function has failed") from None

    def _take_in(
        self, ticket: Ticket, reader: fl.MetadataRecordBatchReader, has_columns: bool
    ) -> bool:
        for chunk in reader:
            batch = chunk.data
            if has_columns:
                items = [Item(ticket.feed, batch.num_rows, batch.nbytes, block=batch)]
            else:
                items = [
                    Item(ticket.feed, count, len(rows), pickled=rows)
                    for rows, count in zip(*map(pa.Array.to_pylist, batch.columns), strict=True)
                ]
            mark = int(bytes(chunk.app_metadata or b"0"))
            for item in items:
                if not self._inbox.put(ticket, item, mark):
                    return False
        return True

    def do_exchange(
        self,
        _context: Any,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        values = unpack(descriptor.command)
        columns = [Column.from_dict(column) for column in values["columns"]]
        try:
            limit = values.get("idle_timeout_s")
            self._desk.serve(columns, _read_rows(reader), writer, limit)
        except fl.FlightError:
            raise
        except Exception as error:
            raise fl.FlightServerError(f"{type(error).__name__}: {error}") from error


def _read_rows(reader: fl.MetadataRecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Up to the message without rows: see agent/asking.py for why the call goes on behind it."""
    for chunk in reader:
        if chunk.data is None:
            return
        yield chunk.data


class OpenDoor(BothDoors):
    """Both ways in: the Unix socket and TCP; use as a context manager.

    Args:
        job: The door's part of the job: path, host, token, certificate and key.
    """

    def __init__(self, job: Mapping[str, Any], inbox: Inbox, desk: Desk) -> None:
        def make(location: str, token: str, **tls: Any) -> _Server:
            return _Server(location, inbox, desk, token, **tls)

        super().__init__(job, make)

    def __enter__(self) -> OpenDoor:
        return self
