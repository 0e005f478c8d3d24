"""Where nodes are counted, and where somebody outside may ask a program to stop.

Messages are JSON behind four bytes of length: nothing that arrives here is unpickled.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

from tensorflowonspark import util

TFOS_SERVER_PORT = "TFOS_SERVER_PORT"
TFOS_SERVER_HOST = "TFOS_SERVER_HOST"
#: How much is read at once, and how often a client tries to reach its server.
BUFSIZE = 1024
MAX_RETRIES = 3
#: Far more than any message of ours.
MAX_BYTES = 1 << 20
#: How long a client waits for an answer.
TIMEOUT_S = 10.0
#: How bytes stand in JSON.
_BYTES = "__bytes__"


class Reservations:
    """Counts nodes."""

    def __init__(self, required: int) -> None:
        self.required = required
        self.lock = threading.Lock()
        self.reservations: list[Any] = []

    def add(self, meta: Any) -> None:
        with self.lock:
            self.reservations.append(meta)

    def done(self) -> bool:
        return len(self.reservations) >= self.required

    def get(self) -> list[Any]:
        with self.lock:
            return list(self.reservations)

    def remaining(self) -> int:
        return self.required - len(self.reservations)


class MessageSocket:
    """One message at a time on a socket."""

    def receive(self, sock: socket.socket) -> Any:
        (size,) = struct.unpack(">I", self._read(sock, 4))
        if size > MAX_BYTES:
            raise ValueError(f"a message of {size} bytes; at most {MAX_BYTES} are read")
        return json.loads(self._read(sock, size), object_hook=_from_json)

    def send(self, sock: socket.socket, msg: Any) -> None:
        data = json.dumps(msg, default=_to_json).encode()
        sock.sendall(struct.pack(">I", len(data)) + data)

    def _read(self, sock: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = sock.recv(min(size - len(data), BUFSIZE))
            if not chunk:
                raise EOFError("the other end is gone")
            data += chunk
        return data


def _to_json(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(
        f"a message holds {value!r} of type {type(value).__name__}; expected what JSON can hold, or"
        " bytes"
    )


def _from_json(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[_BYTES]) if set(value) == {_BYTES} else value


class Server(MessageSocket):
    """Listens for nodes and for a wish to stop.

    Args:
        count: How many nodes there are.
    """

    reservations: Any = None
    done = False

    def __init__(self, count: int) -> None:
        self.reservations = Reservations(count)
        self._socket: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._callers: set[socket.socket] = set()
        self._lock = threading.Lock()

    def start(self) -> tuple[str, int]:
        """Begins to listen; returns where."""
        self._socket = self.start_listening_socket()
        port = int(self._socket.getsockname()[1])
        self._begin(self._listen)
        return self.get_server_ip(), port

    def await_reservations(
        self,
        sc: Any,
        status: Mapping[str, Any] = {},
        timeout: float = 600,
    ) -> list[Any]:
        """Waits for all nodes.

        Args:
            sc: Kept; no job of it is cancelled.
            status: Whoever starts the nodes puts "error" here if that fails.
        """
        deadline = time.monotonic() + timeout
        while not self.reservations.done():
            if "error" in status:
                raise Exception(f"the nodes did not start: {status['error']}")
            if time.monotonic() > deadline:
                raise Exception(
                    "timed out waiting for reservations to complete:"
                    f" {self.reservations.remaining()} of {self.reservations.required} nodes are"
                    f" missing after {timeout:g} s"
                )
            time.sleep(0.1)
        return list(self.reservations.get())

    def get_server_ip(self) -> str:
        return os.environ.get(TFOS_SERVER_HOST) or util.get_ip_address()

    def get_server_ports(self) -> list[int]:
        """The ports that may be used: TFOS_SERVER_PORT is one, or the first and last of many."""
        wished = os.environ.get(TFOS_SERVER_PORT)
        if not wished:
            return [0]
        first, _, last = wished.partition("-")
        return list(range(int(first), int(last or first) + 1))

    def start_listening_socket(self) -> socket.socket:
        for port in self.get_server_ports():
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("", port))
                listener.listen(128)
                return listener
            except OSError:
                listener.close()
        ports = os.environ.get(TFOS_SERVER_PORT)
        raise Exception(f"no port of {TFOS_SERVER_PORT}={ports} is free")

    def stop(self) -> None:
        self.done = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        with self._lock:
            callers = list(self._callers)
        for caller in callers:
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5.0)

    def _begin(self, work: Any, *args: Any) -> None:
        # A thread for each: a client may stay for as long as its node does, and say nothing.
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, args=args, name="sparktrain-stop", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        listener = self._socket
        while listener is not None:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._callers.add(caller)
            self._begin(self._serve, caller)

    def _serve(self, caller: socket.socket) -> None:
        with caller, contextlib.suppress(OSError, ValueError, EOFError, RecursionError):
            while True:
                self._handle_message(caller, self.receive(caller))
        with self._lock:
            self._callers.discard(caller)

    def _handle_message(self, sock: socket.socket, msg: Any) -> None:
        kind = msg.get("type") if isinstance(msg, dict) else None
        if kind == "REG":
            self.reservations.add(msg.get("data"))
            self.send(sock, "OK")
        elif kind == "QUERY":
            self.send(sock, self.reservations.done())
        elif kind == "QINFO":
            self.send(sock, self.reservations.get())
        elif kind == "STOP":
            self.done = True
            self.send(sock, "OK")
        else:
            self.send(sock, "ERR")


class Client(MessageSocket):
    """Talks to a Server.

    Args:
        server_addr: (host, port), as cluster_meta["server_addr"] has it.
    """

    sock: Any = None
    server_addr: Any = None

    def __init__(self, server_addr: tuple[str, int]) -> None:
        self.server_addr = (server_addr[0], int(server_addr[1]))
        self.sock = socket.create_connection(self.server_addr, TIMEOUT_S)

    def register(self, reservation: Any) -> Any:
        return self._request("REG", reservation)

    def get_reservations(self) -> Any:
        return self._request("QINFO")

    def await_reservations(self, timeout: float = 600) -> Any:
        deadline = time.monotonic() + timeout
        while not self._request("QUERY"):
            if time.monotonic() > deadline:
                raise Exception("timed out waiting for reservations to complete")
            time.sleep(0.2)
        return self.get_reservations()

    def request_stop(self) -> Any:
        """Asks the program to stop."""
        return self._request("STOP")

    def close(self) -> None:
        self.sock.close()

    def _request(self, msg_type: str, msg_data: Any = None) -> Any:
        """Asks, on a new connection if the old one broke."""
        for attempt in range(1, MAX_RETRIES + 1):
            try:
                if attempt > 1:
                    self.sock.close()
                    self.sock = socket.create_connection(self.server_addr, TIMEOUT_S)
                self.send(self.sock, {"type": msg_type, "data": msg_data})
                return self.receive(self.sock)
            except (OSError, EOFError) as error:
                if attempt == MAX_RETRIES:
                    host, port = self.server_addr
                    raise ConnectionError(
                        f"the server at {host}:{port} did not answer {msg_type} in {attempt}"
                        f" attempts: {error}. It is there as long as its cluster is."
                    ) from error
        raise RuntimeError("no attempt was made")
