"""Does several things at once in threads; one that fails, or Ctrl-C, ends the others."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

TICK_S = 0.2


def work_all(work: Callable[[Any], Any], items: Sequence[Any], limit: int) -> list[Any]:
    """What work() gives for each item, in their order; at most so many at a time.

    Raises:
        Exception: The first that work() raised. Nothing runs on behind it.
    """
    crew = _Crew(work, items)
    threads = [
        threading.Thread(target=crew.run, name=f"sparktrain-trial-{number}", daemon=True)
        for number in range(min(limit, len(items)))
    ]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads) and not crew.errors:
            for thread in threads:
                thread.join(TICK_S)
    finally:  # at an error, Ctrl-C, or the end
        crew.end(threads)
        for thread in threads:
            thread.join()
    if crew.errors:
        raise crew.errors[0]
    return crew.results


class _Crew:
    """What the threads share."""

    def __init__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self._work = work
        self._left: Iterator[tuple[int, Any]] = iter(list(enumerate(items)))
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._is_over = False
        self.results: list[Any] = [None] * len(items)
        self.errors: list[BaseException] = []

    def run(self) -> None:
        try:
            while (item := self._take()) is not None:
                place, value = item
                self.results[place] = self._work(value)
        except BaseException as error:
            if not self._is_over:
                self.errors.append(error)
        finally:
            with self._lock:
                self._busy.discard(threading.get_ident())

    def _take(self) -> tuple[int, Any] | None:
        with self._lock:
            item = None if self._is_over else next(self._left, None)
            if item is not None:
                self._busy.add(threading.get_ident())
            else:
                self._busy.discard(threading.get_ident())
            return item

    def end(self, threads: Sequence[threading.Thread]) -> None:
        """No more items; what is being done gets a KeyboardInterrupt, as Ctrl-C would have it."""
        with self._lock:
            self._is_over = True
            for thread in threads:
                if thread.ident is not None and thread.ident in self._busy:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
                    )
