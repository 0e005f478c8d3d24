"""A trainer's host that vanishes: no packet is refused, and still a call comes to its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import asdict

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from sparktrain.data.arrow import stored_schema
from sparktrain.data.schema import Column
from sparktrain.wire import flight
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.flight import Door, connect, pack

X = (Column("x", "long"),)
SERVER = """
import json, sys
from sparktrain.trainer.door import OpenDoor
from sparktrain.trainer.inbox import Inbox
from sparktrain.trainer.requests import Desk
inbox, desk = Inbox(lambda feed, rows: None), Desk()
with OpenDoor(json.loads(sys.stdin.readline()), inbox, desk) as door:
    print(door.port, flush=True)
    sys.stdin.readline()
    desk.close("over")
"""


def test_a_call_to_a_host_that_vanished_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    often = [(name, min(value, 1000)) for name, value in flight._KEEPALIVE]
    monkeypatch.setattr(flight, "_KEEPALIVE", often)
    credentials = Credentials.make()
    door = Door("chief:0", "127.0.0.1", 0, "", credentials.certificate)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdin is not None and server.stdout is not None
        job = {**asdict(door), "token": "secret", "key": credentials.key}
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        door = Door(**{**asdict(door), "port": int(server.stdout.readline())})
        # The limit is for the test: it must be another error that ends the call.
        client, options = connect(door, "secret", timeout_s=60)
        with client:
            command = pack({"columns": [column.to_dict() for column in X]})
            descriptor = fl.FlightDescriptor.for_command(command)
            writer, reader = client.do_exchange(descriptor, options)
            writer.begin(stored_schema(X))
            writer.write_batch(pa.RecordBatch.from_pylist([{"x": 1}], stored_schema(X)))
            server.send_signal(signal.SIGSTOP)
            with pytest.raises(fl.FlightUnavailableError):
                reader.read_chunk()
            with pytest.raises(fl.FlightError):
                writer.close()
    finally:
        server.kill()
        server.communicate()
