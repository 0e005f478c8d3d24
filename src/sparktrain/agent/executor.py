"""The process whose end is the end of a trainer that outlives its task: the Spark executor."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

TICK_S = 0.5


def find_executor() -> int:
    """The process id of the executor that this Python worker belongs to."""
    pid = os.getppid()
    while pid > 1:
        name, parent = _look_up(pid)
        if name == "java":
            return pid
        pid = parent
    return os.getppid()  # without /proc: the daemon of the workers, which ends with the executor


def _look_up(pid: int) -> tuple[str, int]:
    """The name of a process, and its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", 0
    # The name is in parentheses, and may have any of them itself.
    head, _, rest = text.rpartition(")")
    return head.partition("(")[2], int(rest.split()[1])


def find_start(pid: int) -> str:
    """When a process began, in the kernel's own ticks: a number that is used again differs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


class ProcessWatch:
    """Calls on_gone once when a process has ended. Use as a context manager.

    Args:
        pid, start: Of the process; start as find_start() gave it, when it was known to be there.
    """

    def __init__(self, pid: int, start: str, on_gone: Callable[[], None]) -> None:
        self._pid = pid
        self._start = start
        self._on_gone = on_gone
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sparktrain-watch", daemon=True)

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        self._thread.join(5.0)

    def _watch(self) -> None:
        try:
            descriptor = os.pidfd_open(self._pid)
        except (AttributeError, OSError):
            descriptor = None  # not Linux, forbidden, or gone already
        poller = select.poll()
        if descriptor is not None:
            poller.register(descriptor, select.POLLIN)
        try:
            while not self._ending.is_set():
                if descriptor is not None:
                    is_gone = bool(poller.poll(TICK_S * 1000))
                else:
                    self._ending.wait(TICK_S)
                    is_gone = not is_alive(self._pid)
                if is_gone or find_start(self._pid) != self._start:
                    self._on_gone()
                    return
        finally:
            if descriptor is not None:
                os.close(descriptor)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
