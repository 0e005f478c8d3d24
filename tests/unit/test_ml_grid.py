"""How candidates share runs, threads share work, and fits share slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparktrain.ml.gate import Gate
from sparktrain.ml.grid import SharedFits, count_lanes, deal, group


def test_equal_keys_are_a_group() -> None:
    assert group(["a", "b", "a", {"x": 1}, {"x": 1}]) == [[0, 2], [1], [3, 4]]


@pytest.mark.parametrize(
    ("groups", "lanes", "jobs"),
    [
        ([[0, 1, 2, 3]], 1, [[0, 1, 2, 3]]),
        ([[0, 1, 2, 3]], 2, [[0, 2], [1, 3]]),
        ([[0], [1, 2]], 2, [[0], [1, 2]]),
        ([[0], [1, 2, 3]], 4, [[0], [1, 3], [2]]),
        ([[0, 1]], 5, [[0], [1]]),
    ],
)
def test_groups_are_cut_only_for_lanes(groups: Any, lanes: int, jobs: Any) -> None:
    assert deal(groups, lanes) == jobs


@pytest.mark.parametrize(
    ("threads", "slots", "nodes", "candidates", "lanes"),
    [(4, 2, 1, 9, 2), (4, 8, 2, 9, 4), (4, 2, 2, 9, 1), (1, 8, 1, 9, 1), (4, None, 1, 9, 1),
     (4, 8, 1, 2, 2), (2, 1, 4, 9, 1)],
)  # fmt: skip
def test_lanes_fit_into_the_slots(
    threads: int, slots: int | None, nodes: int, candidates: int, lanes: int
) -> None:
    assert count_lanes(threads, slots, nodes, candidates) == lanes


class Runs:
    """Stands for runs: notes which candidates went together, and how many at a time."""

    def __init__(self, slots: int, bad: int | None = None) -> None:
        self.slots, self.bad = slots, bad
        self.jobs: list[list[int]] = []
        self.most = self._now = 0
        self._lock = threading.Lock()

    def fit(self, positions: Sequence[int], lanes: int) -> list[Any]:
        with self._lock:
            self.jobs.append(list(positions))
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.05)
        with self._lock:
            self._now -= 1
        return [ValueError(str(one)) if one == self.bad else f"model {one}" for one in positions]

    def lanes(self, threads: int) -> int:
        return count_lanes(threads, self.slots, 1, 99)


def ask(fits: SharedFits, threads: int) -> dict[int, Any]:
    """As CrossValidator asks: a task for each candidate, in a pool of threads."""
    found: dict[int, Any] = {}

    def task(_: int) -> None:
        try:
            position, model = next(fits)
            found[position] = model
        except ValueError as error:
            found[int(str(error))] = error

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(task, range(fits._total)))
    return found


def test_one_thread_gets_all_of_one_run() -> None:
    runs = Runs(slots=8)
    found = ask(SharedFits([[0, 1, 2]], runs.fit, runs.lanes), threads=1)
    assert runs.jobs == [[0, 1, 2]] and found == {n: f"model {n}" for n in range(3)}


def test_threads_share_what_the_slots_allow() -> None:
    runs = Runs(slots=2)
    found = ask(SharedFits([[0, 1, 2, 3], [4, 5]], runs.fit, runs.lanes), threads=4)
    assert runs.most == 2 and sorted(found) == list(range(6))
    assert sorted(runs.jobs) == [[0, 1, 2, 3], [4, 5]]


def test_a_failing_candidate_is_the_only_one() -> None:
    runs = Runs(slots=1, bad=1)
    found = ask(SharedFits([[0, 1, 2]], runs.fit, runs.lanes), threads=2)
    assert isinstance(found[1], ValueError) and found[0] == "model 0" and found[2] == "model 2"


def test_a_run_that_cannot_start_fails_its_candidates() -> None:
    def fit(positions: Sequence[int], lanes: int) -> list[Any]:
        raise OSError("no run")

    fits = SharedFits([[0, 1]], fit, lambda threads: 1)
    for _ in range(2):
        with pytest.raises(OSError, match="no run"):
            next(fits)
    with pytest.raises(StopIteration):
        next(fits)


def test_the_gate_lets_in_what_fits() -> None:
    gate = Gate()
    most, now = 0, 0
    lock = threading.Lock()

    def fit(needed: int) -> None:
        nonlocal most, now
        with gate.passing(needed, 3):
            with lock:
                now += needed
                most = max(most, now)
            time.sleep(0.02)
            with lock:
                now -= needed

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fit, [1, 2, 3, 1, 2, 1, 1, 3]))
    assert most == 3


def test_the_gate_leaves_refusing_to_others() -> None:
    gate = Gate()
    with gate.passing(9, 2):  # alone: run() says how many slots there are
        pass


def test_unknown_slots_go_one_at_a_time() -> None:
    gate = Gate()
    order = []

    def second() -> None:
        with gate.passing(1, None):
            order.append("second")

    with gate.passing(1, None):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_two_fits_never_own_one_folder() -> None:
    gate = Gate()
    with gate.owning("a") as first, gate.owning("a") as second, gate.owning("b") as third:
        assert (first, second, third) == (True, False, True)
    with gate.owning("a") as again:
        assert again
