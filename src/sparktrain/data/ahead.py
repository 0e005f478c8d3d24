"""Makes the next item in a thread while the last one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
#: How long the end waits for a thread that is inside a read of a slow store.
JOIN_S = 10.0


def read_ahead(items: Iterable[Item]) -> Generator[Item, None, None]:
    """The same items, one of them ahead.

    Exactly one: the thread starts on the next item when the last one was taken, so that never
    more than two are held. An error comes out where its item would have. Closing the generator
    early closes `items` and ends the thread.
    """
    made: queue.SimpleQueue[tuple[bool, Item | BaseException | None]] = queue.SimpleQueue()
    wanted = threading.Semaphore(1)
    is_over = threading.Event()

    def make() -> None:
        iterator: Iterator[Item] = iter(items)
        try:
            while wanted.acquire() and not is_over.is_set():
                try:
                    made.put((True, next(iterator)))
                except StopIteration:
                    made.put((False, None))
                    return
                except BaseException as error:
                    # Handed over whole: the consumer raises it.
                    made.put((False, error))
                    return
        finally:
            # Files are closed by the thread that reads them.
            if isinstance(iterator, Generator):
                iterator.close()

    thread = threading.Thread(target=make, name="sparktrain-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            is_item, item = made.get()
            if not is_item:
                if isinstance(item, BaseException):
                    raise item
                return
            wanted.release()
            yield item  # type: ignore[misc]  # an item, as is_item says
            del item  # not held while the next one is made
    finally:
        is_over.set()
        wanted.release()
        thread.join(JOIN_S)
