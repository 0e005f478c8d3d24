"""Does several things at once in threads; one that fails, or Ctrl-C, ends the others."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

TICK_S = 0.2
#: How often to ask whether more may work at a time.
LOOK_S = 1.0


def work_all(
    work: Callable[[Any], Any], items: Sequence[Any], limit: Callable[[], int]
) -> list[Any]:
    """What work() gives for each item, in their order.

    Args:
        limit: How many may work at a time, one at least; asked again and again, as it may grow.

    Raises:
        Exception: The first that work() or limit() raised. Nothing runs on behind it.
    """
    crew = _Crew(work, items, limit)
    crew.leader.start()
    try:
        while crew.leader.is_alive() and not crew.errors:
            crew.leader.join(TICK_S)
    finally:  # at an error, Ctrl-C, or the end
        crew.end()
    if crew.errors:
        raise crew.errors[0]
    return crew.results


class _Crew:
    """What the threads share.

    The leader starts the others. It is a thread too: limit() may ask Spark, and Ctrl-C, which comes
    to the main thread, would leave an answer half read for the next one who asks there.
    """

    def __init__(
        self, work: Callable[[Any], Any], items: Sequence[Any], limit: Callable[[], int]
    ) -> None:
        self._work = work
        self._limit = limit
        self._left: Iterator[tuple[int, Any]] = iter(list(enumerate(items)))
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self.leader = threading.Thread(target=self._lead, name="sparktrain-trials", daemon=True)
        self.results: list[Any] = [None] * len(items)
        self.errors: list[BaseException] = []

    def _lead(self) -> None:
        """Returns when all items are done, or it is over."""
        look_at = 0.0
        try:
            while not self._is_over.is_set():
                if time.monotonic() >= look_at:
                    self._start(min(self._limit(), len(self.results)))
                    look_at = time.monotonic() + LOOK_S
                alive = [thread for thread in self._threads if thread.is_alive()]
                if not alive:
                    return
                alive[0].join(TICK_S)
        except Exception as error:
            self.errors.append(error)

    def _start(self, limit: int) -> None:
        for number in range(len(self._threads), limit):
            name = f"sparktrain-trial-{number}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        try:
            while (item := self._take()) is not None:
                place, value = item
                self.results[place] = self._work(value)
        except BaseException as error:
            if not self._is_over.is_set():
                self.errors.append(error)
        finally:
            with self._lock:
                self._busy.discard(threading.get_ident())

    def _take(self) -> tuple[int, Any] | None:
        with self._lock:
            item = None if self._is_over.is_set() else next(self._left, None)
            if item is not None:
                self._busy.add(threading.get_ident())
            else:
                self._busy.discard(threading.get_ident())
            return item

    def end(self) -> None:
        """No more items; what is being done gets a KeyboardInterrupt, as Ctrl-C would have it.

        Returns when all threads are gone.
        """
        with self._lock:
            self._is_over.set()
            for ident in self._busy:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt)
                )
        self.leader.join()
        for thread in self._threads:
            thread.join()
