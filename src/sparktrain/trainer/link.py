"""The trainer's end of the socket to its agent: job in, progress and outcome out."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from sparktrain.errors import WireError
from sparktrain.wire import frames

if TYPE_CHECKING:
    from sparktrain.wire.parameters import Stores


class AgentLink:
    """One connected socket, handed down by the agent.

    Args:
        descriptor: The inherited file descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        # Programs the function starts must not hold the lifeline.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._sending = threading.Lock()
        self._exit = threading.Event()
        self._at_exit: list[Callable[[], None]] = []
        #: The doors of parameter servers, once all have met.
        self._stores: list[dict[str, Any]] = []
        #: Set when the driver asks the function to come to its end.
        self.stop = threading.Event()

    def send(self, values: dict[str, Any], body: bytes = b"") -> None:
        """Sends a frame, and raw bytes behind it."""
        with self._sending, contextlib.suppress(BrokenPipeError):
            self._socket.sendall(frames.encode(values) + body)

    def receive(self) -> dict[str, Any]:
        """The next frame; ends this process if the agent is gone."""
        try:
            return frames.read_frame(self._socket)
        except (EOFError, OSError):
            end_group()

    def receive_cluster(self) -> dict[str, list[str]]:
        """The addresses of all nodes; a command may come before them."""
        while (values := self.receive()).get("kind") != "cluster":
            if values.get("kind") == "stop":
                self.stop.set()
        cluster: dict[str, list[str]] = values["cluster"]
        self._stores = list(values.get("stores") or [])
        return cluster

    def find_stores(self, token: str) -> Stores | None:
        """Where parameters are held, as it came with the addresses; None if nowhere."""
        if not self._stores:
            return None
        from sparktrain.wire.parameters import Stores  # loads Flight, which few runs need

        return Stores.from_dicts(self._stores, token)

    def receive_bytes(self, size: int) -> bytes:
        try:
            return frames.read_exactly(self._socket, size)
        except (EOFError, OSError):
            end_group()

    def watch(self, on_feed: Callable[[dict[str, Any]], None]) -> None:
        """From now on frames are read in a thread, and the agent's end is this one's."""
        threading.Thread(
            target=self._watch, args=(on_feed,), name="sparktrain-agent", daemon=True
        ).start()

    def wait_for_exit(self) -> None:
        """Waits until the agent says that all nodes are done."""
        self._exit.wait()
        for close in self._at_exit:
            close()

    def call_at_exit(self, close: Callable[[], None]) -> None:
        """What the function's end leaves open."""
        self._at_exit.append(close)

    def _watch(self, on_feed: Callable[[dict[str, Any]], None]) -> None:
        try:
            while True:
                values = frames.read_frame(self._socket)
                kind = values.get("kind")
                if kind == "stop":
                    self.stop.set()
                elif kind == "exit":
                    self._exit.set()
                else:
                    on_feed(values)
        except (EOFError, OSError, WireError):
            if not self._exit.is_set():
                end_group()


def end_group() -> NoReturn:
    """Ends this process and all it started: without an agent there is nobody to work for."""
    os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)  # never reached; tells readers and mypy that this does not return
