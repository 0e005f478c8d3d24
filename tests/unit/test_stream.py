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
from sparktrain.trainer.pace import Pace
from sparktrain.trainer.saves import Saves
from sparktrain.trainer.stream import StreamTable, count_steps
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
    pace = Pace(lambda frame: None, "train")
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


def read_in_thread(batches: Any) -> tuple[list[list[int]], threading.Thread]:
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.extend(map(numbers_of, batches)))
    thread.start()
    return found, thread


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_batches_that_fit_did_not_get_to_come_again() -> None:
    table, inbox = make_table()
    table.set_phase("train")
    put(inbox, 1, 2, 3, 4, 5, 6)
    inbox.finish()
    first = table.batches(2, False)
    assert [numbers_of(next(first)), numbers_of(next(first))] == [[1, 2], [3, 4]]
    table.steps_done(1)  # the second waited in a buffer when the epoch ended
    assert [numbers_of(b) for b in table.batches(2, False)] == [[3, 4], [5, 6]]


def test_rows_are_mixed_also_where_a_worker_must_catch_up() -> None:
    pace = Pace(lambda frame: None, "train")
    table, inbox = make_table(pace, parts=1)
    put(inbox, *range(20))
    found, thread = read_in_thread(table.batches(4, False, window=100, seed=3))
    time.sleep(0.05)
    assert found == []  # the window is not full
    pace.catch((1 << STEP_BITS) + 2)
    inbox.wake()
    wait_until(lambda: len(found) == 5)
    pace.catch((1 << STEP_BITS) + 7)
    inbox.wake()
    wait_until(lambda: found[5:] == [[], []])
    inbox.finish()
    thread.join(5)
    numbers = [number for batch in found for number in batch]
    assert sorted(numbers) == list(range(20)) and numbers != list(range(20))


def test_a_flush_waits_for_the_steps_of_all_rows() -> None:
    told: list[dict[str, Any]] = []
    table, inbox = make_table()
    saves = Saves(told.append, inbox)
    saves.add("train", table)
    saved: list[int] = []
    saves.begin_fit(lambda: saved.append(1))
    put(inbox, 1, 2, 3)
    found, thread = read_in_thread(table.batches(2, False))
    wait_until(lambda: found == [[1, 2]])
    saves.flush("f", "train")
    wait_until(lambda: found == [[1, 2], [3]])  # it does not fill a batch
    saves.steps_done(1)
    saves.save("f")
    time.sleep(0.1)
    assert told == [] and saved == []  # a step still runs
    saves.steps_done(1)
    wait_until(lambda: len(told) == 2)
    assert {frame["kind"] for frame in told} == {"flushed", "saved"} and saved == [1]
    saves.end_fit()
    inbox.finish()
    thread.join(5)


def test_rows_that_came_before_the_fit_wait_for_its_steps() -> None:
    """Keras looks at a batch before fit begins: that is no step."""
    told: list[dict[str, Any]] = []
    table, inbox = make_table()
    saves = Saves(told.append, inbox)
    saves.add("train", table)
    saves.flush("e", "train")  # nobody will save: nothing is waited for
    wait_until(lambda: len(told) == 1)
    saves.expect_fit()
    put(inbox, 1)
    looked: list[list[int]] = []

    def _symbolic_build() -> None:  # as Keras calls it
        looked.append(numbers_of(next(table.batches(2, False))))

    thread = threading.Thread(target=_symbolic_build)
    thread.start()
    wait_until(lambda: table._rows_in == 1)
    saves.flush("f", "train")
    thread.join(5)
    assert looked == [[1]]  # although it does not fill a batch
    time.sleep(0.1)
    assert len(told) == 1
    saves.begin_fit(lambda: None)
    found, reading = read_in_thread(table.batches(2, False))
    wait_until(lambda: found == [[1]])
    assert len(told) == 1
    saves.steps_done(1)
    wait_until(lambda: told[1:] == [{"kind": "flushed", "feed": "f"}])
    inbox.finish()
    reading.join(5)


def test_a_checkpoint_that_cannot_be_written_is_the_error() -> None:
    told: list[dict[str, Any]] = []
    table, inbox = make_table()
    saves = Saves(told.append, inbox)
    saves.add("train", table)

    def fail() -> None:
        raise OSError("no space left")

    saves.begin_fit(fail)
    saves.save("f")
    wait_until(lambda: inbox.is_closed)
    assert told == []
    with pytest.raises(OSError, match="no space left"):
        saves.check()


def test_an_iteration_that_ends_within_a_batch_gives_the_rest_again() -> None:
    table, inbox = make_table(parts=2)
    table.set_phase("train")
    put(inbox, 1, 2, 3, 4, 5, 6, 7)
    inbox.finish()
    first = table.batches(4, False)
    assert numbers_of(next(first)) == [1, 2, 3, 4]  # two steps
    table.steps_done(1)
    assert [numbers_of(b) for b in table.batches(4, False)] == [[3, 4, 5, 6], [7]]


def test_an_old_iteration_leaves_rows_to_the_new_one() -> None:
    table, inbox = make_table()
    old, old_thread = read_in_thread(table.batches(2, False))
    time.sleep(0.05)
    new, new_thread = read_in_thread(table.batches(2, False))
    old_thread.join(5)
    assert not old_thread.is_alive() and old == []  # it does not wait for rows any more
    put(inbox, 1, 2, 3)
    wait_until(lambda: new == [[1, 2]])
    inbox.finish()
    new_thread.join(5)
    assert new == [[1, 2], [3]]


def test_a_fit_that_ends_does_not_keep_a_save_waiting() -> None:
    table, inbox = make_table()
    table.set_phase("train")
    put(inbox, 1, 2)
    assert numbers_of(next(table.batches(2, False))) == [1, 2]
    done = threading.Event()

    def save() -> None:
        with table.paused():
            done.set()

    thread = threading.Thread(target=save)
    thread.start()
    assert not done.wait(0.2)  # its step runs
    table.set_phase("")
    assert done.wait(5)
    thread.join(5)


def test_no_step_is_given_out_while_a_checkpoint_is_written() -> None:
    table, inbox = make_table()
    table.set_phase("train")
    put(inbox, 1, 2, 3, 4)
    found, thread = read_in_thread(table.batches(2, False))
    wait_until(lambda: found == [[1, 2], [3, 4]])
    table.steps_done(2)
    with table.paused():
        put(inbox, 5, 6)
        time.sleep(0.1)
        assert len(found) == 2
    wait_until(lambda: found[2:] == [[5, 6]])
    inbox.finish()
    thread.join(5)


def test_a_table_of_tests_needs_no_steps() -> None:
    told: list[dict[str, Any]] = []
    table, inbox = make_table()
    saves = Saves(told.append, inbox)
    saves.add("train", table)
    saves.begin_fit(lambda: None)
    saves.test(True)
    put(inbox, 1, 2)
    assert numbers_of(next(table.batches(2, False))) == [1, 2]
    saves.test(False)
    saves.flush("f", "train")
    wait_until(lambda: told == [{"kind": "flushed", "feed": "f"}])
