"""Queues and values in a process of their own, for programs that use them directly."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from multiprocessing.managers import BaseManager
from typing import Any

_queues: dict[str, queue.Queue[Any]] = {}
_values: dict[str, Any] = {}


def _get_queue(name: str) -> queue.Queue[Any]:
    if name not in _queues:
        known = ", ".join(_queues) or "none"
        raise KeyError(f"there is no queue {name!r}; there is: {known}")
    return _queues[name]


def _get(key: str) -> Any:
    return _values.get(key)


def _set(key: str, value: Any) -> None:
    _values[key] = value


class TFManager(BaseManager):
    """The manager; start() and connect() make one."""


def _begin(names: Sequence[str]) -> None:
    _values.clear()
    _queues.clear()
    _queues.update({name: queue.Queue() for name in names})


# Functions of this module, which any way of starting processes can find.
TFManager.register("get_queue", callable=_get_queue)
TFManager.register("get", callable=_get)
TFManager.register("set", callable=_set)


def start(authkey: bytes, queues: Sequence[str], mode: str = "local") -> TFManager:
    """Starts a manager.

    Args:
        authkey: The secret that callers need.
        queues: Their names.
        mode: 'local' for this host only, 'remote' for others too.
    """
    address = ("", 0) if mode == "remote" else None
    manager = TFManager(address=address, authkey=authkey)
    manager.start(initializer=_begin, initargs=(list(queues),))
    return manager


def connect(address: Any, authkey: bytes) -> TFManager:
    """A manager that was started elsewhere."""
    manager = TFManager(address=address, authkey=authkey)
    manager.connect()
    return manager
