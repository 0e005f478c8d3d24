"""Which hyperparameters a search tries. No I/O."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hops.hparams import Params, make_key
from sparktrain.errors import ConfigError

#: How often a sample is drawn anew because it was there already.
MAX_DRAWS = 1000


def check_lists(call: str, values: Any) -> dict[str, list[Any]]:
    """A dict of names to lists that are not empty."""
    lists = (
        {name: to_list(row) for name, row in values.items()} if isinstance(values, Mapping) else {}
    )
    if not lists or not all(isinstance(name, str) and row for name, row in lists.items()):
        raise ConfigError(
            problem=f"{call}() got {values!r}.",
            advice="Expected a dict of lists by the names of the function's arguments, such as"
            " {'learning_rate': [0.1, 0.01]}.",
        )
    return {name: row for name, row in lists.items() if row is not None}


def to_list(row: Any) -> list[Any] | None:
    """A list, tuple, range or array of one dimension as a list; None for what is none of them."""
    if getattr(row, "ndim", None) == 1 and hasattr(row, "tolist"):
        return list(row.tolist())
    if isinstance(row, Sequence) and not isinstance(row, (str, bytes)):
        return [item.item() if isinstance(item, np.generic) else item for item in row]
    return None


def list_rows(args_dict: Any) -> list[Params]:
    """The first values of all lists, then the second ones, and so on."""
    lists = check_lists("launch", args_dict)
    lengths = {name: len(row) for name, row in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(
            problem=f"Length of each function argument list must be equal; launch() got {lengths}.",
            advice="Give each argument as many values as there are calls of the function.",
        )
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def list_grid(grid_dict: Any) -> list[Params]:
    """All combinations, each once."""
    lists = check_lists("grid_search", grid_dict)
    rows = [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]
    return list({make_key(row): row for row in rows}.values())


def check_bounds(
    call: str, bounds: Any, with_categories: bool = False
) -> dict[str, tuple[Any, Any]]:
    """Each a lower and an upper bound; with categories, two strings as well."""
    found = {}
    for name, pair in check_lists(call, bounds).items():
        low: Any
        high: Any
        low, high = pair if len(pair) == 2 else (None, None)
        is_category = with_categories and isinstance(low, str) and isinstance(high, str)
        if is_category and low != high:
            found[name] = (low, high)
            continue
        if not (_is_number(low) and _is_number(high) and low < high):
            others = ", or two strings" if with_categories else ""
            raise ConfigError(
                problem=f"{call}() got {name}={pair!r}.",
                advice=f"Expected two numbers [low, high] with low < high{others}.",
            )
        found[name] = (low, high)
    return found


def draw_samples(boundary_dict: Any, samples: Any, rng: random.Random) -> list[Params]:
    """So many different ones; of whole numbers there may be fewer."""
    bounds = check_bounds("random_search", boundary_dict)
    check_count("random_search", "samples", samples, 1)
    found: dict[str, Params] = {}
    draws = 0
    while len(found) < samples and draws < MAX_DRAWS + samples:
        draws += 1
        row = {name: _draw(low, high, rng) for name, (low, high) in bounds.items()}
        found.setdefault(make_key(row), row)
    return list(found.values())


def check_count(call: str, what: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(
            problem=f"{call}() got {what}={value!r}.",
            advice=f"Expected a whole number of at least {least}.",
        )


def check_direction(call: str, direction: Any) -> str:
    """MAX or MIN, in small letters too, as older versions had it."""
    found = str(direction).upper()
    if found not in ("MAX", "MIN"):
        raise ConfigError(
            problem=f"{call}() got direction={direction!r}.",
            advice="Expected Direction.MAX or Direction.MIN.",
        )
    return found


def check_key(call: str, key: Any) -> None:
    if not isinstance(key, str) or not key:
        raise ConfigError(
            problem=f"{call}() got optimization_key={key!r}.",
            advice="Expected the name of one of the values that the function returns.",
        )


def find_best(scores: Sequence[float | None], direction: str) -> int | None:
    """The place of the best score, the first of equals; None if there is none."""
    places = [place for place, score in enumerate(scores) if score is not None]
    if not places:
        return None
    sign = 1 if direction == "MAX" else -1
    return max(places, key=lambda place: sign * (scores[place] or 0.0))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _draw(low: Any, high: Any, rng: random.Random) -> Any:
    if isinstance(low, int) and isinstance(high, int):
        return rng.randint(low, high)
    return rng.uniform(low, high)
