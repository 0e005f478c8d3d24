"""Arguments of a program: a list, a dict or a namespace as one kind of thing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any


class Namespace:
    """Values as attributes; of a list they are all in argv.

    Args:
        d: A list as of sys.argv, a dict, or another namespace.
    """

    argv: list[str] | None = None

    def __init__(self, d: Any) -> None:
        if isinstance(d, list):
            self.argv = d
        elif isinstance(d, dict):
            self.__dict__.update(d)
        elif isinstance(d, (argparse.Namespace, Namespace)):
            self.__dict__.update(d.__dict__)
        else:
            raise TypeError(
                f"expected a list, a dict or a namespace, got {d!r} of type {type(d).__name__}"
            )

    def __iter__(self) -> Iterator[str]:
        yield from self.__dict__

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Namespace) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        pairs = (f"{name}={value!r}" for name, value in sorted(self.__dict__.items()))
        return f"Namespace({', '.join(pairs)})"
