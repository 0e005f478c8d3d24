"""Watching must not end a fit, be it that the disk is full."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


class EventGuard:
    """Contains what goes wrong in callbacks that write events, and says so once.

    Args:
        keras: Whose callbacks they are.
        folder: Where they write.
    """

    def __init__(self, keras: Any, folder: Path) -> None:
        self._base = keras.callbacks.Callback
        self._folder = folder
        self._is_told = False

    def contain(self, kind: C) -> C:
        """The class, whose methods that Keras calls raise nothing."""
        for name in dir(kind):
            method = getattr(kind, name)
            # Those that do nothing stay as they are: Keras does not call them for each batch.
            is_own = method is not getattr(self._base, name, None)
            if is_own and name.startswith(("on_", "set_")):
                setattr(kind, name, self._contain(method))
        return kind

    def _contain(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            # Also what follows from an earlier failure, whatever Keras makes of it.
            except Exception as error:
                self._tell(error)
                return None

        return call

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
            print(
                f"sparktrain: events cannot be written to {self._folder}; training goes on, and"
                f" TensorBoard shows less of it: {what}",
                flush=True,
            )
        self._is_told = True
