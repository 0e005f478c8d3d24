"""Lets fits of one driver share the slots: those that do not fit wait here, before their job.

Spark would let them wait too, but each in a barrier stage that has been submitted: a run takes a
stage that does not start for a broken one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Gate:
    """Counts slots in use. First come, first served: nobody is overtaken for ever."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_use = 0
        self._queue: list[object] = []
        self._folders: set[str] = set()

    @contextlib.contextmanager
    def passing(self, needed: int, slots: int | None) -> Iterator[None]:
        """Waits until so many slots are free, and holds them.

        Args:
            slots: How many there are; None if nobody knows, then fits go one at a time.
        """
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or not self._is_room(needed, slots):
                    self._changed.wait()
            except BaseException:  # Ctrl-C
                self._queue.remove(ticket)
                self._changed.notify_all()
                raise
            self._queue.pop(0)
            self._in_use += needed
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._in_use -= needed
                self._changed.notify_all()

    def _is_room(self, needed: int, slots: int | None) -> bool:
        # More than there are can only be refused, by run(), which says how many there are.
        return not self._in_use or (slots is not None and self._in_use + needed <= slots)

    @property
    def is_in_use(self) -> bool:
        """Whether any fit holds slots, or waits for them."""
        with self._changed:
            return bool(self._in_use or self._queue)

    @contextlib.contextmanager
    def owning(self, folder: str) -> Iterator[bool]:
        """Whether this fit has the run directory for itself: two must not write to one."""
        with self._changed:
            is_own = folder not in self._folders
            if is_own:
                self._folders.add(folder)
        try:
            yield is_own
        finally:
            if is_own:
                with self._changed:
                    self._folders.discard(folder)


#: Of this driver.
GATE = Gate()
