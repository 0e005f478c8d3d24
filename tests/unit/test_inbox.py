"""Rows that wait, and the ledger that keeps a retried task from bringing them twice."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from sparktrain.data.schema import Column
from sparktrain.trainer.inbox import Inbox, InboxFailedError, Item, SupersededError, Ticket

X = [Column("x", "long")]


def make_inbox(capacity: int = 1000) -> tuple[Inbox, list[tuple[str, int]]]:
    told: list[tuple[str, int]] = []
    return Inbox(lambda feed, rows: told.append((feed, rows)), capacity), told


def make_item(rows: int = 1, size: int = 1, feed: str = "f") -> Item:
    return Item(feed, rows, size, pickled=b"")


def test_rows_count_as_taken_when_more_is_asked_for() -> None:
    inbox, told = make_inbox()
    ticket = Ticket("f", 0, 1, "train")
    assert inbox.open(ticket, X) == []
    assert inbox.put(ticket, make_item(3)) and inbox.put(ticket, make_item(4))
    first = inbox.take("train")
    assert first is not None and first.num_rows == 3
    assert told == []
    inbox.take("train")
    assert told == [("f", 3)]
    inbox.finish()
    assert inbox.take("train") is None
    assert told == [("f", 3), ("f", 7)]


def test_a_retry_goes_on_behind_what_came() -> None:
    inbox, _ = make_inbox()
    old, new = Ticket("f", 0, 5, "train"), Ticket("f", 0, 9, "train")
    inbox.open(old, X)
    inbox.put(old, make_item(3), 77)
    assert inbox.open(new, X) == [(3, 77)]
    with pytest.raises(SupersededError):
        inbox.put(old, make_item(1))
    with pytest.raises(SupersededError):
        inbox.open(old, X)
    assert inbox.put(new, make_item(2), 88)
    assert inbox.open(Ticket("f", 0, 10, "train"), X) == [(3, 77), (2, 88)]
    assert inbox.open(Ticket("f", 1, 11, "train"), X) == []
    assert inbox.open(Ticket("g", 0, 12, "train"), X) == []


def test_late_tasks_of_a_feed_that_is_over_are_refused() -> None:
    inbox, _ = make_inbox(capacity=10)
    ticket = Ticket("f", 0, 1, "train")
    inbox.open(ticket, X)
    inbox.put(ticket, make_item(size=10))
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            inbox.put(ticket, make_item(size=10))
        except SupersededError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    inbox.forget("f")
    thread.join(5)
    assert caught
    with pytest.raises(SupersededError):
        inbox.open(Ticket("f", 1, 2, "train"), X)


def test_a_function_that_failed_has_not_had_enough() -> None:
    inbox, _ = make_inbox()
    ticket = Ticket("f", 0, 1, "train")
    inbox.open(ticket, X)
    inbox.fail()
    for act in (lambda: inbox.put(ticket, make_item()), lambda: inbox.open(ticket, X)):
        with pytest.raises(InboxFailedError):
            act()
    assert inbox.take("train") is None


def test_one_table_ends_before_the_others() -> None:
    inbox, _ = make_inbox()
    ticket = Ticket("f", 0, 1, "train")
    inbox.open(ticket, X)
    inbox.put(ticket, make_item(2))
    inbox.finish("train")
    assert not inbox.has_ended("train")
    assert inbox.take("train") is not None and inbox.take("train") is None
    assert inbox.has_ended("train") and not inbox.has_ended("other")
    assert inbox.take("other", timeout_s=0.01) is None


def test_an_old_attempt_that_waits_for_room_is_woken() -> None:
    inbox, _ = make_inbox(capacity=10)
    old = Ticket("f", 0, 1, "train")
    inbox.open(old, X)
    inbox.put(old, make_item(size=10))
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            inbox.put(old, make_item(size=10))
        except SupersededError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    inbox.open(Ticket("f", 0, 2, "train"), X)
    thread.join(5)
    assert caught


def test_feeds_wait_for_room() -> None:
    inbox, _ = make_inbox(capacity=10)
    ticket = Ticket("f", 0, 1, "train")
    inbox.open(ticket, X)
    inbox.put(ticket, make_item(size=50))  # one is always taken in
    done = threading.Event()
    thread = threading.Thread(target=lambda: (inbox.put(ticket, make_item(size=5)), done.set()))
    thread.start()
    assert not done.wait(0.1)
    assert inbox.load == (0, 1, 50, 0)
    inbox.take("train")
    assert inbox.load[3] == 1
    assert done.wait(5)
    thread.join(5)


@pytest.mark.parametrize("who", ["feeder", "reader", "columns"])
def test_nobody_waits_behind_the_end(who: str) -> None:
    inbox, _ = make_inbox(capacity=1)
    ticket = Ticket("f", 0, 1, "train")
    inbox.open(ticket, X)
    found: list[Any] = []
    if who == "feeder":
        inbox.put(ticket, make_item())
        work = lambda: found.append(inbox.put(ticket, make_item()))  # noqa: E731
    elif who == "reader":
        work = lambda: found.append(inbox.take("train"))  # noqa: E731
    else:
        work = lambda: found.append(inbox.wait_for_columns("other"))  # noqa: E731
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    inbox.close()
    thread.join(5)
    assert found == ([False] if who == "feeder" else [None])
    assert inbox.open(Ticket("f", 1, 2, "train"), X) is None
    assert inbox.load[0] == 1  # others are asked first


def test_a_partition_goes_where_it_first_went() -> None:
    inbox, _ = make_inbox()
    assert inbox.bind("f", 0, "chief:0") == "chief:0"
    assert inbox.bind("f", 0, "worker:0") == "chief:0"
    inbox.forget("f")
    assert inbox.bind("f", 0, "worker:0") == "worker:0"


def test_two_tables_do_not_meet() -> None:
    inbox, _ = make_inbox()
    one, other = Ticket("f", 0, 1, "train"), Ticket("f", 1, 2, "validation")
    inbox.open(one, X)
    inbox.open(other, X)
    inbox.put(other, make_item(7))
    assert inbox.take("train", timeout_s=0.01) is None
    taken = inbox.take("validation")
    assert taken is not None and taken.num_rows == 7
    assert inbox.take("train", until=lambda: True) is None
