"""Queues and values in a process of their own, for programs that use them directly."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from multiprocessing.managers import BaseManager
from typing import Any

#: The manager that this process started last; the queues and values of a manager's own process.
mgr: Any = None
qdict: dict[str, queue.Queue[Any]] = {}
kdict: dict[str, Any] = {}


def _get_queue(qname: str) -> queue.Queue[Any] | None:
    return qdict.get(qname)


def _has_queue(qname: str) -> bool:
    return qname in qdict


def _get(key: str) -> Any:
    return kdict.get(key)


def _set(key: str, value: Any) -> None:
    kdict[key] = value


class TFManager(BaseManager):
    """The manager; start() and connect() make one."""

    def get_queue(self, qname: str) -> Any:
        """A queue; None if there is none of that name, and no proxy of nothing."""
        owner: Any = self
        return owner.find_queue(qname) if owner.has_queue(qname)._getvalue() else None


def _begin(names: Sequence[str]) -> None:
    kdict.clear()
    qdict.clear()
    qdict.update({name: queue.Queue() for name in names})


# Functions of this module, which any way of starting processes can find.
TFManager.register("find_queue", callable=_get_queue)
TFManager.register("has_queue", callable=_has_queue)
TFManager.register("get", callable=_get)
TFManager.register("set", callable=_set)


def start(authkey: bytes, queues: Sequence[str], mode: str = "local") -> TFManager:
    """Starts a manager.

    Args:
        authkey: The secret that callers need.
        queues: Their names.
        mode: 'local' for this host only, 'remote' for others too.
    """
    global mgr
    address = ("", 0) if mode == "remote" else None
    mgr = TFManager(address=address, authkey=authkey)
    mgr.start(initializer=_begin, initargs=(list(queues),))
    return mgr  # type: ignore[no-any-return]


def connect(address: Any, authkey: bytes) -> TFManager:
    """A manager that was started elsewhere."""
    manager = TFManager(address=address, authkey=authkey)
    manager.connect()
    return manager
