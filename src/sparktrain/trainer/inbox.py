"""Rows of feeds that wait for the function, and the ledger of what has come.

A partition of a feed comes to one trainer. The ledger knows which of its rows are here already,
so that a task that Spark tries again goes on behind them; and it knows the newest attempt, so
that rows of an older one, which may still be running somewhere, are refused.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sparktrain.data.schema import Column

#: Rows that may wait, in bytes; a feed waits beyond that.
CAPACITY_BYTES = 64 << 20
#: Feeds that are over and whose late tasks are still refused.
MAX_FORGOTTEN = 1000


class SupersededError(Exception):
    """A newer attempt of the same task brings the rows now, or the feed is over."""


class InboxFailedError(Exception):
    """The function has failed: what it says of rows means nothing."""


@dataclass(frozen=True)
class Item:
    """Some rows of one feed: a block of columns, or rows as Python pickled them."""

    feed: str
    num_rows: int
    size: int
    block: pa.RecordBatch | None = None
    pickled: bytes | None = None


#: What the ledger keeps of the rows that came together: how many, and their fingerprint.
Mark = tuple[int, int]


@dataclass
class _Entry:
    """A partition of a feed, as far as it has come."""

    attempt: int
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class Ticket:
    """One attempt's right to bring rows."""

    feed: str
    partition: int
    attempt: int
    table: str


class Inbox:
    """All that is fed to this trainer.

    Args:
        on_taken: Called with a feed and how many of its rows the function has taken so far.
        capacity: Bytes that may wait, of each table.
    """

    def __init__(
        self, on_taken: Callable[[str, int], None], capacity: int = CAPACITY_BYTES
    ) -> None:
        self._on_taken = on_taken
        self._capacity = capacity
        self._changed = threading.Condition()
        self._items: dict[str, deque[Item]] = {}
        self._waiting: dict[str, int] = {}
        self._entries: dict[tuple[str, int], _Entry] = {}
        #: Where partitions go whose home this trainer is: (feed, partition) -> node.
        self._bound: dict[tuple[str, int], str] = {}
        self._columns: dict[str, tuple[Column, ...]] = {}
        self._taken: dict[str, int] = {}
        #: What the function holds of each table, counted when it asks for more.
        self._held: dict[str, Item] = {}
        self._num_feeding = 0
        #: Feeds that are over, the latest last.
        self._forgotten: deque[str] = deque(maxlen=MAX_FORGOTTEN)
        #: Tables of which no more rows will come; whether that holds for all; whether none are
        #: wanted; whether the function has failed.
        self._ended: set[str] = set()
        self._is_over = False
        self._is_closed = False
        self._has_failed = False

    # What feeding tasks do.

    def bind(self, feed: str, partition: int, node: str) -> str:
        """Where a partition goes: the node the first attempt named, for all attempts."""
        with self._changed:
            return self._bound.setdefault((feed, partition), node)

    def open(self, ticket: Ticket, columns: Sequence[Column]) -> list[Mark] | None:
        """Begins an attempt: what is here already; None if no more rows are wanted."""
        key = (ticket.feed, ticket.partition)
        with self._changed:
            self._check()
            if self._is_closed:
                return None
            if ticket.feed in self._forgotten:
                raise SupersededError
            entry = self._entries.setdefault(key, _Entry(ticket.attempt))
            if entry.attempt > ticket.attempt:
                raise SupersededError
            entry.attempt = ticket.attempt
            self._columns.setdefault(ticket.table, tuple(columns))
            self._num_feeding += 1
            self._changed.notify_all()
            return list(entry.marks)

    def put(self, ticket: Ticket, item: Item, fingerprint: int = 0) -> bool:
        """Adds rows, once there is room; False if they are not wanted any more."""
        with self._changed:
            items = self._items.setdefault(ticket.table, deque())
            while True:
                self._check()
                if self._is_closed:
                    return False
                entry = self._entries.get((ticket.feed, ticket.partition))
                if entry is None or entry.attempt != ticket.attempt:
                    raise SupersededError
                waiting = self._waiting.get(ticket.table, 0)
                if not items or waiting + item.size <= self._capacity:
                    break
                self._changed.wait()
            entry.marks.append((item.num_rows, fingerprint))
            items.append(item)
            self._waiting[ticket.table] = waiting + item.size
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """An attempt is over."""
        with self._changed:
            self._num_feeding -= 1

    @property
    def load(self) -> tuple[int, int, int, int]:
        """How busy this trainer is: one that wants no rows, tasks that feed, bytes that wait,
        and rows in hand.
        """
        with self._changed:
            in_hand = sum(item.num_rows for item in self._held.values())
            waiting = sum(self._waiting.values())
            return int(self._is_closed), self._num_feeding, waiting, in_hand

    def _check(self) -> None:
        if self._has_failed:
            raise InboxFailedError

    # What the function does.

    def wait_for_columns(self, table: str) -> tuple[Column, ...] | None:
        """The columns of a table, once a feed has begun; None if none ever will."""
        with self._changed:
            while table not in self._columns and not (self._is_closed or self._has_end(table)):
                self._changed.wait()
            return self._columns.get(table)

    def take(
        self,
        table: str,
        until: Callable[[], bool] = lambda: False,
        timeout_s: float | None = None,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Item | None:
        """The next rows; None at the end of the table, or after a while.

        Args:
            until: None also when there are no rows and this holds.
            is_gone: None also when this holds, whether there are rows or not.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._settle(table)
            items = self._items.setdefault(table, deque())
            while not items:
                if self._is_closed or self._has_end(table) or until() or is_gone():
                    return None
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)
            if self._is_closed or is_gone():
                return None
            item = self._held[table] = items.popleft()
            self._waiting[table] -= item.size
            self._changed.notify_all()
            return item

    def has_ended(self, table: str) -> bool:
        """Whether no row will come that is not taken yet."""
        with self._changed:
            return self._is_closed or (self._has_end(table) and not self._items.get(table))

    def _has_end(self, table: str) -> bool:
        return self._is_over or table in self._ended

    def wake(self) -> None:
        """Has those who wait in take() look at until() again."""
        with self._changed:
            self._changed.notify_all()

    def _settle(self, table: str) -> None:
        """Rows that were handed out are taken when the function asks for more."""
        item = self._held.pop(table, None)
        if item is not None:
            self._taken[item.feed] = taken = self._taken.get(item.feed, 0) + item.num_rows
            self._on_taken(item.feed, taken)

    # What the driver says.

    def announce(self, table: str, columns: Sequence[Column]) -> None:
        """Rows of a table will come, here or to other workers."""
        with self._changed:
            self._columns.setdefault(table, tuple(columns))
            self._changed.notify_all()

    def forget(self, feed: str) -> None:
        """A feed is over: its ledger is not needed any more, and late tasks are refused."""
        with self._changed:
            self._entries = _without(self._entries, feed)
            self._bound = _without(self._bound, feed)
            self._taken.pop(feed, None)
            self._forgotten.append(feed)
            self._changed.notify_all()

    def finish(self, table: str = "") -> None:
        """No more rows will come: of a table, or of any."""
        with self._changed:
            if table:
                self._ended.add(table)
            else:
                self._is_over = True
            self._changed.notify_all()

    def close(self) -> None:
        """No more rows are wanted: feeds that wait end at once."""
        with self._changed:
            self._is_closed = True
            for items in self._items.values():
                items.clear()
            self._waiting.clear()
            self._held.clear()
            self._changed.notify_all()

    def fail(self) -> None:
        """The function has raised: tasks that feed must not take it for an early stop."""
        with self._changed:
            self._has_failed = True
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed


def _without(known: Mapping[tuple[str, int], Any], feed: str) -> dict[tuple[str, int], Any]:
    return {key: value for key, value in known.items() if key[0] != feed}
