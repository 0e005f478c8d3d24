"""Calls a function with a module once it is imported, and not before.

What a program sets first, such as TF_USE_LEGACY_KERAS, must still count.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def call_with(name: str, function: Callable[[Any], None]) -> None:
    """Calls function(module) when the module is loaded; at once if it is."""
    if name in sys.modules:
        function(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, function))


class _Finder(importlib.abc.MetaPathFinder):
    """Sees one module being imported, once."""

    def __init__(self, name: str, function: Callable[[Any], None]) -> None:
        self._name = name
        self._function = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        load = loader.exec_module

        def load_and_call(module: ModuleType) -> None:
            load(module)
            self._function(module)

        loader.exec_module = load_and_call
        return spec
