"""Arguments of a program: a list, a dict or a namespace as one kind of thing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any


class Namespace:
    """Values as attributes; a list is itself, and in argv.

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
        yield from self.argv or self.__dict__

    def __contains__(self, name: object) -> bool:
        return name in (self.argv or self.__dict__)

    def __eq__(self, other: object) -> bool:
        if self.argv:
            return self.argv == (other.argv if isinstance(other, Namespace) else other)
        return isinstance(other, Namespace) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.argv:
            return repr(self.argv)
        pairs = (f"{name}={value!r}" for name, value in sorted(self.__dict__.items()))
        return f"Namespace({', '.join(pairs)})"
