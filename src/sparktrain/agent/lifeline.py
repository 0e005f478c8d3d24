"""Notices when Spark ends a task that neither reads nor writes.

Spark ends a cancelled task by closing its connection to the Python worker, and leaves it to
Python to find out with the next read or write. An agent waits for its trainer instead, so it
must watch that connection. It is the worker's first one: whatever the user's code has opened
in a worker that is used again came later.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import threading
from collections.abc import Callable

#: Linux tells when the peer has closed its side; elsewhere when both sides are closed.
GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
_MAX_DESCRIPTORS = 1024


class Lifeline:
    """Calls on_gone once if the first connection of this process is closed by its peer.

    Use as a context manager.
    """

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone
        self._ending = threading.Event()
        self._watched: list[int] = []
        self._thread = threading.Thread(target=self._watch, name="sparktrain-spark", daemon=True)

    def __enter__(self) -> Lifeline:
        # A copy: the number of the original could be given to another file meanwhile.
        self._watched = [os.dup(number) for number in find_connections()[:1]]
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        self._thread.join(5.0)
        for number in self._watched:
            os.close(number)

    def is_gone(self) -> bool:
        """Whether the connection is closed now."""
        poller = select.poll()
        for number in self._watched:
            poller.register(number, GONE)
        return bool(self._watched) and bool(poller.poll(0))

    def _watch(self) -> None:
        poller = select.poll()
        for number in self._watched:
            poller.register(number, GONE)
        while self._watched and not self._ending.is_set():
            if poller.poll(200):
                self._on_gone()
                return


def find_connections() -> list[int]:
    """The descriptors of this process that are connected sockets."""
    found = []
    for number in range(3, _MAX_DESCRIPTORS):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            # A default timeout in this process would turn the connection itself non-blocking.
            is_blocking = os.get_blocking(number)
            with socket.socket(fileno=os.dup(number)) as copy:
                os.set_blocking(number, is_blocking)
                copy.getpeername()
            found.append(number)
    return found
