"""What the searches of the drop-in for hops try."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hops import (
    evolution,
    spaces,
)
from hops.experiment import Direction
from sparktrain.errors import ConfigError


def test_grid_and_rows() -> None:
    assert spaces.list_grid({"a": [1, 2], "b": [5, 3]}) == [
        {"a": 1, "b": 5},
        {"a": 1, "b": 3},
        {"a": 2, "b": 5},
        {"a": 2, "b": 3},
    ]
    assert spaces.list_rows({"a": [1, 2], "b": [5, 3]}) == [{"a": 1, "b": 5}, {"a": 2, "b": 3}]
    with pytest.raises(ValueError, match=r"Length of each function argument list must be equal"):
        spaces.list_rows({"a": [1, 2], "b": [5]})


@pytest.mark.parametrize(
    "row", [(0, 1, 2), range(3), np.arange(3), [np.int64(0), np.int64(1), np.int64(2)]]
)
def test_rows_of_many_kinds(row: Any) -> None:
    found = spaces.list_grid({"a": row})
    assert found == [{"a": 0}, {"a": 1}, {"a": 2}]
    assert all(type(one["a"]) is int for one in found)
    assert spaces.draw_samples({"n": row[1:]}, 1, random.Random(1))[0]["n"] in (1, 2)


@pytest.mark.parametrize("row", ["abc", b"abc", {1, 2}, np.ones((2, 2)), np.float64(1), []])
def test_what_is_no_row(row: Any) -> None:
    with pytest.raises(ConfigError, match=r"(?s)grid_search\(\) got.*Expected a dict of lists"):
        spaces.list_grid({"a": row})


def test_random_samples() -> None:
    rows = spaces.draw_samples({"n": [1, 3], "rate": [0, 1.0]}, 40, random.Random(1))
    assert len(rows) == 40
    assert {row["n"] for row in rows} == {1, 2, 3}
    assert all(isinstance(row["n"], int) and 0 <= row["rate"] <= 1 for row in rows)
    # Of three whole numbers there are no four.
    rows = spaces.draw_samples({"n": [1, 3]}, 10, random.Random(1))
    assert sorted(row["n"] for row in rows) == [1, 2, 3]


@pytest.mark.parametrize(
    "bounds",
    [{}, {"a": 1}, {"a": []}, {"a": [1]}, {"a": [2, 1]}, {"a": [1, 2, 3]}, {"a": ["x", "y"]}],
)
def test_bounds_that_are_none(bounds: Any) -> None:
    with pytest.raises(ConfigError, match=r"random_search\(\) got"):
        spaces.draw_samples(bounds, 3, random.Random(1))


@pytest.mark.parametrize("direction", [Direction.MAX, Direction.MIN, "max", "min"])
def test_best_of_negative_scores(direction: str) -> None:
    found = spaces.check_direction("grid_search", direction)
    best = spaces.find_best([-3.0, None, -1.0, -7.0], found)
    assert best == (2 if found == "MAX" else 3)
    assert spaces.find_best([None, None], found) is None


@pytest.mark.parametrize("direction", [Direction.MAX, Direction.MIN])
def test_evolution_finds_what_random_search_does_not(direction: str) -> None:
    """All scores are below zero; a third of all trials fail."""
    sign = -1 if direction == Direction.MAX else 1
    bounds = {"x": [-5.0, 5.0], "y": [-5.0, 5.0], "n": [1, 9], "kind": ["bad", "good"]}
    rng = random.Random(7)

    def score(row: dict[str, Any]) -> float:
        far = (row["x"] - 1.25) ** 2 + (row["y"] + 2.5) ** 2 + (row["n"] - 4) ** 2
        return sign * (far + (0 if row["kind"] == "good" else 5)) + (-1 if sign < 0 else -100)

    evolved = evolution.Evolution(bounds, 20, 0.5, 0.7, direction, rng)
    for _ in range(40):
        rows = evolved.ask()
        assert all(-5 <= row["x"] <= 5 and 1 <= row["n"] <= 9 for row in rows)
        evolved.tell([None if rng.random() < 0.3 else score(row) for row in rows])
    best = evolved.best_score
    assert best is not None and abs(best - (-1 if sign < 0 else -100)) < 0.05


def test_evolution_keeps_who_is_better() -> None:
    evolved = evolution.Evolution({"x": [0.0, 1.0]}, 4, 0.5, 0.7, "MAX", random.Random(1))
    first = evolved.ask()
    evolved.tell([1.0, None, 3.0, 4.0])
    evolved.ask()
    evolved.tell([2.0, 0.0, None, 3.0])
    assert evolved._scores == [2.0, 0.0, 3.0, 4.0]
    assert evolved._vectors[3] == [first[3]["x"]]


@pytest.mark.parametrize(
    "changes", [{"population": 3}, {"mutation": -1}, {"crossover": 2}, {"direction": "up"}]
)
def test_evolution_refuses(changes: dict[str, Any]) -> None:
    values = {"population": 6, "mutation": 0.5, "crossover": 0.7, "direction": "MAX", **changes}
    with pytest.raises(ConfigError, match=rf"{next(iter(changes))}="):
        evolution.Evolution({"x": [0, 1]}, **values, rng=random.Random(1))


def test_categories_of_evolution() -> None:
    bounds: Any = {"kind": ("a", "b"), "n": (1, 2), "rate": (0.0, 4.0)}
    assert evolution.decode(bounds, [0.2, 0.4, 0.5]) == {"kind": "a", "n": 1, "rate": 2.0}
    assert evolution.decode(bounds, [1.0, 1.0, 1.0]) == {"kind": "b", "n": 2, "rate": 4.0}
