"""Arguments that functions had in older versions, by their names of then."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from hops import resources

F = TypeVar("F", bound=Callable[..., Any])


def rename(function: str, given: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Arguments by name, as the function calls them now.

    Args:
        names: The new name of each old one.
    """
    found = dict(given)
    for old, new in names.items():
        if old not in found:
            continue
        if new in found:
            raise TypeError(
                f"{function}() got {old}={found[old]!r} and {new}={found[new]!r}, which are one"
                f" argument. Give {new} only."
            )
        found[new] = found.pop(old)
    return found


def takes(**names: str) -> Callable[[F], F]:
    """Lets a function take arguments by old names too: old="new"."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **rename(function.__name__, kwargs, names))

        return call  # type: ignore[return-value]

    return decorate


def takes_old(**names: str) -> Callable[[F], F]:
    """Lets a function of experiments take all that older versions had."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = rename(function.__name__, kwargs, {"map_fun": "train_fn", **names})
            given.pop("cleanup_generations", None)  # all generations stay
            with resources.wishing(given.pop("versioned_resources", None)):
                return function(*args, **given)

        return call  # type: ignore[return-value]

    return decorate
