"""Which candidates of a grid search share a run, and how many runs go on at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

#: How long to see how many threads ask for models.
LOOK_S = 0.1


def group(keys: Sequence[Any]) -> list[list[int]]:
    """Positions with equal keys together, in the order of the first of each."""
    groups: list[tuple[Any, list[int]]] = []
    for position, key in enumerate(keys):
        for known, members in groups:
            if known == key:
                members.append(position)
                break
        else:
            groups.append((key, [position]))
    return [members for _, members in groups]


def deal(groups: Sequence[Sequence[int]], lanes: int) -> list[list[int]]:
    """The runs: a group is cut only where there are fewer of them than lanes."""
    parts = -(-lanes // max(len(groups), 1))
    jobs = []
    for members in groups:
        count = min(parts, len(members))
        jobs += [list(members[start::count]) for start in range(count)]
    return jobs


def count_lanes(threads: int, slots: int | None, nodes: int, candidates: int) -> int:
    """How many runs fit side by side; one if nobody knows the slots."""
    room = 1 if slots is None else slots // max(nodes, 1)
    return max(1, min(threads, room, candidates))


class SharedFits:
    """What fitMultiple() gives: models as they are done, to as many threads as ask.

    Threads that ask do the work: who finds no model takes a run, if one may start.

    Args:
        groups: Positions of candidates that can share a run.
        fit: Trains the candidates at these positions; for each a model or an exception.
        count_lanes: How many runs may go on, for so many threads.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        fit: Callable[[Sequence[int], int], Sequence[Any]],
        count_lanes: Callable[[int], int],
    ) -> None:
        self._groups = groups
        self._fit = fit
        self._count_lanes = count_lanes
        self._changed = threading.Condition()
        self._total = sum(len(members) for members in groups)
        self._num_asked = 0
        self._jobs: deque[list[int]] | None = None
        self._lanes = 1
        self._running = 0
        self._ready: deque[tuple[int, Any]] = deque()

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self

    def __next__(self) -> tuple[int, Any]:
        with self._changed:
            if self._num_asked >= self._total:
                raise StopIteration("No models remaining.")
            self._num_asked += 1
            is_first = self._num_asked == 1
        if is_first:
            time.sleep(LOOK_S)
            with self._changed:
                try:
                    self._lanes = self._count_lanes(self._num_asked)
                finally:  # others wait for it
                    self._jobs = deque(deal(self._groups, self._lanes))
                    self._changed.notify_all()
        while True:
            with self._changed:
                while not self._ready and not self._may_start():
                    self._changed.wait()
                if self._ready:
                    position, model = self._ready.popleft()
                    break
                job = self._jobs.popleft() if self._jobs else []
                self._running += 1
            self._work(job)
        if isinstance(model, BaseException):
            raise model
        return position, model

    def _may_start(self) -> bool:
        return bool(self._jobs) and self._running < self._lanes

    def _work(self, job: list[int]) -> None:
        models: Sequence[Any] = ()
        try:
            models = self._fit(job, self._lanes)
        except Exception as error:  # each of its candidates has it
            models = [error] * len(job)
        finally:
            # Also at Ctrl-C: nobody may wait for what will not come.
            rest = RuntimeError("the run of this candidate was interrupted")
            models = [*models, *[rest] * (len(job) - len(models))]
            with self._changed:
                self._running -= 1
                self._ready.extend(zip(job, models, strict=True))
                self._changed.notify_all()
