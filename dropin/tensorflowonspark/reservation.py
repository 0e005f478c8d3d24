"""Where nodes are counted, and where somebody outside may ask a program to stop.

Messages are JSON behind four bytes of length: nothing that arrives here is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from typing import Any

from tensorflowonspark import util

TFOS_SERVER_PORT = "TFOS_SERVER_PORT"
TFOS_SERVER_HOST = "TFOS_SERVER_HOST"
#: Far more than any message of ours.
MAX_BYTES = 1 << 20
TIMEOUT_S = 10.0


class Reservations:
    """Counts nodes."""

    def __init__(self, required: int) -> None:
        self.required = required
        self._lock = threading.Lock()
        self._reservations: list[Any] = []

    def add(self, meta: Any) -> None:
        with self._lock:
            self._reservations.append(meta)

    def done(self) -> bool:
        return len(self._reservations) >= self.required

    def get(self) -> list[Any]:
        with self._lock:
            return list(self._reservations)

    def remaining(self) -> int:
        return self.required - len(self._reservations)


class MessageSocket:
    """One message at a time on a socket."""

    def receive(self, sock: socket.socket) -> Any:
        (size,) = struct.unpack(">I", self._read(sock, 4))
        if size > MAX_BYTES:
            raise ValueError(f"a message of {size} bytes; at most {MAX_BYTES} are read")
        return json.loads(self._read(sock, size))

    def send(self, sock: socket.socket, msg: Any) -> None:
        data = json.dumps(msg).encode()
        sock.sendall(struct.pack(">I", len(data)) + data)

    def _read(self, sock: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = sock.recv(size - len(data))
            if not chunk:
                raise EOFError("the other end is gone")
            data += chunk
        return data


class Server(MessageSocket):
    """Listens for nodes and for a wish to stop.

    Args:
        count: How many nodes there are.
    """

    def __init__(self, count: int) -> None:
        self.reservations = Reservations(count)
        self.done = False
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> tuple[str, int]:
        """Begins to listen; returns where."""
        self._socket = self.start_listening_socket()
        port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._listen, name="sparktrain-stop", daemon=True)
        self._thread.start()
        return self.get_server_ip(), port

    def await_reservations(
        self, sc: Any = None, status: Any = None, timeout: float = 600
    ) -> list[Any]:
        deadline = time.monotonic() + timeout
        while not self.reservations.done():
            if time.monotonic() > deadline:
                raise Exception("timed out waiting for reservations to complete")
            time.sleep(0.1)
        return self.reservations.get()

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
                listener.listen(16)
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
        if self._thread is not None:
            self._thread.join(5.0)

    def _listen(self) -> None:
        listener = self._socket
        while listener is not None:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller, contextlib.suppress(OSError, ValueError, EOFError):
                caller.settimeout(TIMEOUT_S)
                while True:
                    self._answer(caller, self.receive(caller))

    def _answer(self, caller: socket.socket, msg: Any) -> None:
        kind = msg.get("type") if isinstance(msg, dict) else None
        if kind == "REG":
            self.reservations.add(msg.get("data"))
            self.send(caller, "OK")
        elif kind == "QUERY":
            self.send(caller, self.reservations.done())
        elif kind == "QINFO":
            self.send(caller, self.reservations.get())
        elif kind == "STOP":
            self.done = True
            self.send(caller, "OK")
        else:
            self.send(caller, "ERR")


class Client(MessageSocket):
    """Talks to a Server.

    Args:
        server_addr: (host, port), as cluster_meta["server_addr"] has it.
    """

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

    def _request(self, kind: str, data: Any = None) -> Any:
        self.send(self.sock, {"type": kind, "data": data})
        return self.receive(self.sock)
