"""What happens between a worker and the parameter server: the arithmetic alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.trainer.sync_rules import (
    AVERAGE,
    DELTA,
    ELASTIC,
    REPLACE,
    RULES,
    combine,
    find_rate,
    find_taken,
    to_mean,
    to_send,
)

values = st.lists(st.integers(-1000, 1000), min_size=1, max_size=20)
workers = st.integers(1, 8)


def meet(rule: str, num_workers: int, server: Any, worker: Any, base: Any) -> tuple[Any, Any]:
    """The server's new values, and what the worker goes on with."""
    rate = find_rate(rule, num_workers, None)
    return combine(rule, rate, server, to_send(rule, worker, base))


@given(values, workers, st.integers(-1000, 1000))
def test_average_moves_by_the_workers_share(start: list[int], num: int, move: int) -> None:
    server = np.array(start, np.float64)
    worker = server + move
    server, taken = meet(AVERAGE, num, server, worker, server.copy())
    np.testing.assert_allclose(server, np.array(start) + move / num, atol=1e-9)
    np.testing.assert_array_equal(taken, server)


@given(values, st.lists(st.integers(-1000, 1000), min_size=1, max_size=8))
def test_delta_adds_what_each_worker_has_learnt(start: list[int], moves: list[int]) -> None:
    """Wherever the weights start: ten, and two workers who add 0.1 each, make 10.2."""
    server = np.array(start, np.float64)
    base = server.copy()
    for move in moves:
        server, taken = meet(DELTA, len(moves), server, base + move, base)
        np.testing.assert_array_equal(taken, server)
    np.testing.assert_allclose(server, np.array(start) + sum(moves))


@pytest.mark.parametrize("rule", [AVERAGE, DELTA, ELASTIC])
@given(values, workers, st.integers(-1000, 1000))
def test_an_answer_that_was_lost_is_found_again(
    rule: str, start: list[int], num: int, move: int
) -> None:
    """From what the server has, if nobody else came in between."""
    base = np.array(start, np.float64)
    num = max(num, 2)
    server, taken = meet(rule, num, base, base + move, base)
    found = find_taken(rule, find_rate(rule, num, None), base + move, server)
    np.testing.assert_allclose(found, taken, atol=1e-9)


def test_what_others_brought_meanwhile_is_not_added_up() -> None:
    for alpha in (0.1, 0.5, 0.9, 0.99):
        found = find_taken(ELASTIC, alpha, np.zeros(1), np.ones(1))
        assert 0 < found[0] <= 1


@given(values, st.lists(st.integers(-1000, 1000), min_size=1, max_size=8))
def test_statistics_of_delta_move_to_the_mean(start: list[int], moves: list[int]) -> None:
    server = np.array(start, np.float64)
    base = server.copy()
    for move in moves:
        mean = to_mean(base + move, base, len(moves))
        server, _ = meet(DELTA, len(moves), server, mean, base)
    np.testing.assert_allclose(server, np.array(start) + sum(moves) / len(moves), atol=1e-9)


@given(values, workers, st.integers(-1000, 1000), st.floats(0.01, 0.99))
def test_elastic_pulls_both_and_keeps_their_sum(
    start: list[int], num: int, move: int, alpha: float
) -> None:
    server = np.array(start, np.float64)
    worker = server + move
    before = server + worker
    server, taken = combine(ELASTIC, find_rate(ELASTIC, num, alpha), server, worker)
    np.testing.assert_allclose(server + taken, before, atol=1e-9)
    np.testing.assert_allclose(taken - server, (1 - 2 * alpha) * (worker - np.array(start)))


@pytest.mark.parametrize("rule", [AVERAGE, DELTA, ELASTIC])
@given(start=values, num=workers)
def test_who_has_learnt_nothing_changes_nothing(rule: str, start: list[int], num: int) -> None:
    server = np.array(start, np.float64)
    server, taken = meet(rule, num, server, server.copy(), server.copy())
    np.testing.assert_array_equal(server, start)
    np.testing.assert_array_equal(taken, start)


@pytest.mark.parametrize("rule", [AVERAGE, DELTA, ELASTIC])
def test_values_are_replaced_and_never_written_to(rule: str) -> None:
    """What a server gave out may still be on its way when the next worker comes."""
    server, worker = np.zeros(3, np.float32), np.ones(3, np.float32)
    for values in (server, worker):
        values.setflags(write=False)
    found, taken = meet(rule, 2, server, worker, np.zeros(3, np.float32))
    assert found.dtype == taken.dtype == np.float32
    assert not np.shares_memory(found, server)
    assert not np.shares_memory(taken, worker)


def test_replacing_takes_what_is_sent_whatever_was_there() -> None:
    sent = np.array([0.0, 1.0, -1.0], np.float32)
    for server in ([np.nan, np.inf, 1e30], [0.0, 1.0, 2.0]):
        found, taken = combine(REPLACE, 1.0, np.array(server, np.float32), sent)
        np.testing.assert_array_equal(found, sent)
        np.testing.assert_array_equal(taken, sent)
        assert found.dtype == np.float32 and not np.shares_memory(found, sent)
    assert REPLACE not in RULES


def test_a_message_cannot_be_written_to() -> None:
    """What came over the wire is read only: rules must not need it otherwise."""
    sent = np.frombuffer(np.ones(4, np.float32).tobytes(), np.float32)
    for rule in (AVERAGE, DELTA, ELASTIC):
        combine(rule, 0.5, np.zeros(4, np.float32), sent)


@given(st.integers(2, 8), st.integers(1, 30))
def test_workers_that_want_different_things_agree_on_the_mean(num: int, rounds: int) -> None:
    """Each pulls to a goal of its own; the server comes to lie between them."""
    goals = np.linspace(-1, 1, num)
    for rule in (AVERAGE, ELASTIC):
        server = np.full(1, 10.0)
        own = [server.copy() for _ in goals]
        for _ in range(200 + rounds):
            for n, goal in enumerate(goals):
                moved = own[n] + 0.1 * (goal - own[n])
                server, own[n] = meet(rule, num, server, moved, own[n])
        assert abs(server[0]) < 0.2
