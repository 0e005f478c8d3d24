"""The end of a task with rows left: nobody reads them, and the worker goes with the connection."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sparktrain.agent.unread import leave_unread

#: The end of pyspark's worker: a task, and then whatever is left is read and dropped.
DAEMON = """
def manager(sock, task):
    task()
    while sock.recv(1024):
        pass
"""


def make_manager() -> Callable[[socket.socket, Callable[[], Any]], None]:
    names: dict[str, Any] = {}
    exec(compile(DAEMON, "lib/pyspark/daemon.py", "exec"), names)
    manager: Callable[[socket.socket, Callable[[], Any]], None] = names["manager"]
    return manager


def connect() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


def fill(peer: socket.socket) -> int:
    """Sends until nobody takes any more, as Spark does; gives up after 64 MB."""
    peer.setblocking(False)
    sent = 0
    quiet_since = time.monotonic()
    while sent < 64 << 20 and time.monotonic() - quiet_since < 0.5:
        try:
            sent += peer.send(bytes(1 << 20))
            quiet_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    return sent


def test_the_rest_is_not_read_and_the_worker_ends_with_the_connection() -> None:
    ours, peer = connect()
    answers: list[bool] = []
    with ours, peer:
        manager = make_manager()
        worker = threading.Thread(
            target=manager, args=(ours, lambda: answers.append(leave_unread()))
        )
        worker.start()
        sent = fill(peer)
        was_alive = worker.is_alive()
        peer.close()  # with most of it unsent
        worker.join(10)
        assert (answers, was_alive, worker.is_alive()) == ([True], True, False)
        assert sent < 64 << 20


def test_without_it_all_is_read() -> None:
    """Which shows that the test above would notice."""
    ours, peer = connect()
    with ours, peer:
        worker = threading.Thread(target=make_manager(), args=(ours, lambda: None))
        worker.start()
        sent = fill(peer)
        peer.close()
        worker.join(10)
        assert sent >= 64 << 20


def test_a_connection_that_is_gone_is_left_alone() -> None:
    ours, peer = connect()
    answers: list[bool] = []
    with ours, peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # at once, without a farewell
        time.sleep(0.1)
        with pytest.raises(ConnectionResetError):
            make_manager()(ours, lambda: answers.append(leave_unread()))
    assert answers == [False]


def test_a_worker_of_another_kind_is_left_alone() -> None:
    assert not leave_unread()
