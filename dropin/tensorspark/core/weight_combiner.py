"""What becomes of the server's weights when a worker brings its own."""

from __future__ import annotations

from typing import Any

import numpy as np


class WeightCombiner:
    """The base of combiners. Give run() one of your own, and the parameter server calls it."""

    def compute(
        self, origin_weight: Any, new_weight: Any, worker_id: int = -1, name: str | None = None
    ) -> Any:
        """What the server has from now on, of one variable; the worker goes on with it.

        Args:
            origin_weight: What the server has.
            new_weight: What the worker has.
            worker_id: The worker's number, from 0 on.
            name: Of the variable.
        """
        raise NotImplementedError

    def get_status(self) -> Any:
        raise NotImplementedError


class MeanWeightCombiner(WeightCombiner):
    """Moves the server by the worker's share: ((num - 1) old + new) / num.

    Args:
        num: How many workers there are.
    """

    def __init__(self, num: int) -> None:
        if isinstance(num, bool) or not isinstance(num, int) or num < 1:
            raise ValueError(
                f"MeanWeightCombiner got num={num!r}; expected the number of workers, at least 1"
            )
        self.num = num

    def compute(
        self, origin_weight: Any, new_weight: Any, worker_id: int = -1, name: str | None = None
    ) -> Any:
        old, new = np.asarray(origin_weight), np.asarray(new_weight)
        return ((self.num - 1) * old + new) / self.num


class UpdateMeanWeightCombiner(WeightCombiner):
    """The first weights that come are taken as they are, then the mean of old and new.

    Args:
        server: Kept for the programs that give one; the combiner counts by itself.
    """

    def __init__(self, server: Any = None) -> None:
        self._known: set[str | None] = set()

    def compute(
        self, origin_weight: Any, new_weight: Any, worker_id: int = -1, name: str | None = None
    ) -> Any:
        if name not in self._known:
            self._known.add(name)
            return np.asarray(new_weight)
        return (np.asarray(origin_weight) + np.asarray(new_weight)) / 2


class DeltaWeightCombiner(WeightCombiner):
    """Adds what the worker has learnt since it last met the server.

    Wherever the weights start: a worker's first part is counted from the weights that all
    workers began with, not from zero.
    """

    def __init__(self) -> None:
        #: What the server had when the first worker came, by name.
        self._first: dict[str | None, Any] = {}
        #: What each worker went on with, by worker and name.
        self._last: dict[tuple[int, str | None], Any] = {}

    def compute(
        self, origin_weight: Any, new_weight: Any, worker_id: int = -1, name: str | None = None
    ) -> Any:
        old, new = np.asarray(origin_weight), np.asarray(new_weight)
        first = self._first.setdefault(name, old.copy())
        found = old + (new - self._last.get((worker_id, name), first))
        self._last[worker_id, name] = found
        return found


def find_rule(combiner: WeightCombiner) -> tuple[str, float]:
    """How the server computes it: by a rule of sparktrain's where there is one, and its rate."""
    if isinstance(combiner, MeanWeightCombiner) and _inherits(combiner, MeanWeightCombiner):
        return "average", 1.0 / combiner.num
    if _inherits(combiner, DeltaWeightCombiner):
        # The worker itself knows what it had after the last meeting.
        return "delta", 1.0
    return "own", 1.0


def _inherits(combiner: WeightCombiner, base: type[WeightCombiner]) -> bool:
    """Whether it computes what the class does, though it may be one of the program's own."""
    return getattr(combiner.compute, "__func__", None) is base.compute
