"""Names that one process of a host has at a time, and that end with it, however it ends.

A name is one of Linux' abstract namespace of sockets: all users see it, and it leaves no file.
Containers with a network of their own have that namespace for themselves; with a folder that they
share, a name is the lock of an empty file there as well.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sparktrain.errors import DeviceError

Held = AbstractContextManager[Any]


class Names:
    """The names of a host.

    Args:
        folder: Where the files are; empty for none.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder

    def hold(self, name: str) -> ExitStack | None:
        """Takes a name, until what is returned is closed; None if another one has it.

        Raises:
            DeviceError: This host knows no such names.
        """
        return self._take(name, makes=True)

    def is_held(self, name: str) -> bool:
        """Whether somebody has a name."""
        if (held := self._take(name, makes=False)) is None:
            return True
        held.close()
        return False

    def _take(self, name: str, makes: bool) -> ExitStack | None:
        with ExitStack() as stack:
            if (bound := self._bind(name)) is None:
                return None
            stack.enter_context(bound)
            if (locked := self._lock(name, makes)) is None:
                return None
            stack.enter_context(locked)
            return stack.pop_all()

    def _bind(self, name: str) -> Held | None:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0{name}")
        except OSError as error:
            held.close()
            if error.errno == errno.EADDRINUSE:
                return None
            if self._folder:  # which is enough where there are no such sockets
                return nullcontext()
            raise DeviceError(
                problem=f"GPUs cannot be claimed on this host, as its system refuses the name of a"
                f" socket: {error}.",
                needed=1,
                found=0,
                advice="Give gpu_claims_dir a folder of the host, or gpus_per_worker=0 to train"
                " without GPUs.",
            ) from error
        return held

    def _lock(self, name: str, makes: bool) -> Held | None:
        if not self._folder:
            return nullcontext()
        # A folder that is not mounted must not be made: each container would have its own.
        path = Path(self._folder, quote(name, safe=""))
        try:
            if (descriptor := _open(path, makes)) is None:
                return nullcontext()
            held = os.fdopen(descriptor)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.close()
                return None
        except OSError as error:
            raise DeviceError(
                problem=f"GPUs cannot be claimed in gpu_claims_dir={self._folder}: {error}.",
                needed=1,
                found=0,
                advice="Mount one folder of the host there in all of its containers, and let all"
                " users write in it (chmod 1777).",
            ) from error
        return held


def _open(path: Path, makes: bool) -> int | None:
    """A file of whichever user; None if there is none and it shall not be made.

    Files stay: one that is removed while another process opens it would be locked twice.
    """
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY)
        if not path.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is no folder here")
        if not makes:
            return None
        with suppress(FileExistsError):  # somebody was faster
            return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444)
