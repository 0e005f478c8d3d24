"""Batches of a stream: over the borders of feeds, given back after a look, and in step."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.data.arrow import stored_schema
from sparktrain.data.schema import Column
from sparktrain.trainer.inbox import Inbox, Item, Ticket
from sparktrain.trainer.stream import Pace, StreamTable, count_steps
from sparktrain.wire.pace import STEP_BITS, find_catch_up

X = (Column("x", "long"), Column("v", "float", depth=1, shape=(2,)))


def make_table(pace: Pace | None = None, parts: int = 1) -> tuple[StreamTable, Inbox]:
    inbox = Inbox(lambda feed, rows: None)
    return StreamTable(inbox, "train", X, pace, parts), inbox


def put(inbox: Inbox, *numbers: int) -> None:
    ticket = Ticket(f"f{numbers[0]}", 0, 1, "train")
    inbox.open(ticket, X)
    rows = [{"x": number, "v": [number, number]} for number in numbers]
    block = pa.RecordBatch.from_pylist(rows, stored_schema(X))
    inbox.put(ticket, Item(ticket.feed, len(rows), block.nbytes, block=block))


def numbers_of(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("x").to_pylist()
    return found


def test_batches_go_over_the_borders_of_feeds() -> None:
    table, inbox = make_table()
    put(inbox, 1, 2, 3)
    put(inbox, 4, 5, 6, 7, 8)
    inbox.finish()
    assert [numbers_of(b) for b in table.batches(3, False)] == [[1, 2, 3], [4, 5, 6], [7, 8]]


def test_the_remainder_may_be_dropped() -> None:
    table, inbox = make_table()
    put(inbox, 1, 2, 3, 4)
    inbox.finish()
    assert [numbers_of(b) for b in table.batches(3, True)] == [[1, 2, 3]]


def test_what_keras_looked_at_comes_again() -> None:
    table, inbox = make_table()
    put(inbox, 1, 2, 3, 4, 5)

    def _symbolic_build() -> Any:  # as Keras calls it
        looking = table.batches(2, False)
        return looking, [numbers_of(next(looking)), numbers_of(next(looking))]

    looking, seen = _symbolic_build()
    assert seen == [[1, 2], [3, 4]]
    inbox.finish()
    assert [numbers_of(b) for b in table.batches(2, False)] == [[1, 2], [3, 4], [5]]
    assert list(looking) == []  # the old iteration takes nothing any more


def test_a_later_iteration_goes_on() -> None:
    table, inbox = make_table()
    put(inbox, 1, 2, 3, 4, 5)
    inbox.finish()
    assert numbers_of(next(table.batches(2, False))) == [1, 2]
    assert [numbers_of(b) for b in table.batches(2, False)] == [[3, 4], [5]]


def test_a_worker_without_rows_catches_up_with_steps_that_have_none() -> None:
    pace = Pace(lambda frame: None)
    table, inbox = make_table(pace, parts=2)
    put(inbox, 1)
    found: list[list[int]] = []

    def read() -> None:
        found.extend(numbers_of(batch) for batch in table.batches(4, False))

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.05)
    pace.catch((1 << STEP_BITS) + 3)
    inbox.wake()
    deadline = time.monotonic() + 5
    while len(found) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == [[1], [], []]  # first the row that did not fill a batch
    assert not pace.is_behind
    inbox.finish()
    thread.join(5)
    assert found == [[1], [], []]


@pytest.mark.parametrize(
    ("rows", "parts", "steps"), [(0, 2, 1), (1, 2, 1), (2, 2, 2), (5, 2, 2), (4, 4, 4), (3, 8, 3)]
)
def test_count_steps(rows: int, parts: int, steps: int) -> None:
    assert count_steps(rows, parts) == steps


def test_only_those_that_wait_catch_up() -> None:
    first = 1 << STEP_BITS
    assert find_catch_up({"a": (first + 5, False), "b": (first + 3, True)}) == {"b": first + 5}
    assert find_catch_up({"a": (first + 5, False), "b": (first + 3, False)}) == {}
    assert find_catch_up({"a": (first + 5, True), "b": (first + 5, True)}) == {}
    # Another iteration says nothing about this one.
    assert find_catch_up({"a": (2 * first + 5, False), "b": (first + 3, True)}) == {}
