"""Differential evolution, rand/1/bin: each generation is made of differences within the last.

All of a population is kept in the unit cube, whatever its hyperparameters are. No I/O here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from hops.hparams import Params
from hops.spaces import check_bounds, check_count, check_direction, find_best
from sparktrain.errors import ConfigError

CALL = "differential_evolution"
Vector = list[float]


class Evolution:
    """Asked for the next generation, told how it did; and so on.

    Args:
        boundary_dict: For each hyperparameter [low, high]: whole numbers, floats or two strings.
        population: How many there are in a generation.
        mutation: How much of a difference is added.
        crossover: How likely a hyperparameter comes from the mutant.
        direction: MAX or MIN.
    """

    def __init__(
        self,
        boundary_dict: Any,
        population: Any,
        mutation: Any,
        crossover: Any,
        direction: Any,
        rng: random.Random,
    ) -> None:
        self._bounds = check_bounds(CALL, boundary_dict, with_categories=True)
        check_count(CALL, "population", population, 4)
        _check_share("mutation", mutation, 2.0)
        _check_share("crossover", crossover, 1.0)
        self._direction = check_direction(CALL, direction)
        self._mutation, self._crossover, self._rng = float(mutation), float(crossover), rng
        #: Who lives, and how each did; None for those that failed.
        self._vectors = [[rng.random() for _ in self._bounds] for _ in range(population)]
        self._scores: list[float | None] = []
        self._asked: list[Vector] = []

    def ask(self) -> list[Params]:
        """The next generation: at first a random one."""
        if not self._scores:
            self._asked = self._vectors
        else:
            self._asked = [self._mix(place) for place in range(len(self._vectors))]
        return [decode(self._bounds, vector) for vector in self._asked]

    def tell(self, scores: Sequence[float | None]) -> None:
        """How the generation did: each takes its parent's place if it is as good or better."""
        if not self._scores:
            self._scores = list(scores)
            return
        for place, score in enumerate(scores):
            if is_as_good(score, self._scores[place], self._direction):
                self._vectors[place] = self._asked[place]
                self._scores[place] = score

    @property
    def best_score(self) -> float | None:
        place = find_best(self._scores, self._direction)
        return None if place is None else self._scores[place]

    def _mix(self, place: int) -> Vector:
        others = [number for number in range(len(self._vectors)) if number != place]
        base, plus, minus = (self._vectors[one] for one in self._rng.sample(others, 3))
        parent = self._vectors[place]
        sure = self._rng.randrange(len(parent))  # one at least is the mutant's
        child = []
        for axis, old in enumerate(parent):
            value = base[axis] + self._mutation * (plus[axis] - minus[axis])
            if not 0.0 <= value <= 1.0:  # anywhere, as all at the border would be alike
                value = self._rng.random()
            takes = axis == sure or self._rng.random() < self._crossover
            child.append(value if takes else old)
        return child


def is_as_good(score: float | None, parent: float | None, direction: str) -> bool:
    """Whether a score may take the place of another; a failure never takes that of a score."""
    if score is None:
        return parent is None
    if parent is None:
        return True
    return score >= parent if direction == "MAX" else score <= parent


def decode(bounds: Mapping[str, tuple[Any, Any]], vector: Sequence[float]) -> Params:
    """A point of the unit cube as hyperparameters."""
    found: Params = {}
    for (name, (low, high)), part in zip(bounds.items(), vector, strict=True):
        if isinstance(low, str):
            found[name] = low if part < 0.5 else high
        elif isinstance(low, int) and isinstance(high, int):
            found[name] = min(high, low + int(part * (high - low + 1)))
        else:
            found[name] = low + part * (high - low)
    return found


def _check_share(what: str, value: Any, most: float) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and 0.0 <= value <= most):
        raise ConfigError(
            problem=f"{CALL}() got {what}={value!r}.",
            advice=f"Expected a number from 0 to {most:g}.",
        )
