"""Lets a task end that has not read all of its rows.

When a task is over, Spark's Python worker reads and drops whatever is left before it goes. And
as long as somebody reads, Spark computes more rows and does not look at the task's answer. So
nobody must read: then Spark finds its buffers full, takes the answer, and closes the connection.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from sparktrain.agent.lifeline import GONE

#: How often to look whether Spark has closed the connection.
TICK_MS = 250
#: In /proc/net/tcp.
_ESTABLISHED = "01"


def leave_unread() -> bool:
    """Has the worker wait for Spark to close the connection, instead of reading what is left.

    Only for a task that fails or has rows left: a worker that has read all of them is used
    again. False if the worker is of a kind that is not known here, which then reads the rest.
    """
    connection = _find_connection()
    # A pipelined worker reads ahead of its task, and so may have read all of them.
    is_pipelined = os.environ.get("SPARK_PIPELINED_UDF") == "1"
    if connection is None or is_pipelined or sys.platform != "linux":
        return False
    try:
        # As little as can be waits here: the sooner Spark finds no room, the sooner it is over.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        ends = connection.getsockname(), connection.getpeername()
    except OSError:  # Spark has closed it already
        return False
    kept = os.dup(connection.fileno())
    ours, theirs = socket.socketpair()
    # The worker's streams have copies of their own; this one is only for the rest.
    os.dup2(theirs.fileno(), connection.fileno())
    theirs.close()
    threading.Thread(
        target=_end_with, args=(kept, ends, ours), name="sparktrain-unread", daemon=True
    ).start()
    return True


def _end_with(connection: int, ends: tuple[Any, Any], pair: socket.socket) -> None:
    """Ends the pair when the peer of the connection has closed it."""
    poller = select.poll()
    poller.register(connection, GONE)
    while not poller.poll(TICK_MS) and not _is_closing(*ends):
        pass
    pair.close()
    os.close(connection)


def _is_closing(own: Any, peer: Any) -> bool:
    """Whether the peer has closed a connection on this host, but we have not been told.

    What it sent before is not read, and its farewell waits behind that. The kernel knows.
    """
    if not isinstance(own, tuple):  # a socket without ports tells at once
        return False
    wanted = f"{peer[1]:04X}", f"{own[1]:04X}"
    tables = [Path("/proc/self/net", name) for name in ("tcp", "tcp6")]
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()]
    for line in lines:
        _, local, remote, state, *_ = line.split()
        if (local.rpartition(":")[2], remote.rpartition(":")[2]) == wanted:
            return state != _ESTABLISHED
    return bool(lines)  # it is there no more, if it could be seen at all


def _find_connection() -> socket.socket | None:
    """The socket that the worker reads to its end: a variable of pyspark.daemon's loop."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "manager" and "pyspark" in frame.f_code.co_filename:
            found = frame.f_locals.get("sock")
            return found if isinstance(found, socket.socket) else None
    return None
