"""Pickles the user's own code whole: of what is in modules cloudpickle takes the name only.

A name is enough where the module can be imported. A model that is loaded years later, or in another
session, has its packages, but not the files that lay beside the script that trained it.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import threading
import types
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

#: Need not be installed as packages are: Spark brings its own on the import path.
_SHARED = frozenset(("sparktrain", "keras", "tf_keras", "tensorflow", "pyspark", "py4j"))
#: Where this Python keeps its own modules and what is installed.
_PLACES = tuple(sysconfig.get_path(one) for one in ("stdlib", "platstdlib", "purelib", "platlib"))
#: What cloudpickle takes whole is known to the process, not to a call.
_lock = threading.RLock()


@contextlib.contextmanager
def pickling_alone() -> Iterator[None]:
    """Within it, no other thread changes what cloudpickle takes whole."""
    with _lock:
        yield


@contextlib.contextmanager
def pickling_by_value() -> Iterator[None]:
    """Within it, cloudpickle takes all modules whole that are no installed packages."""
    import cloudpickle

    with _lock:
        known = cloudpickle.list_registry_pickle_by_value()
        own = [module for module in find_own_modules() if module.__name__ not in known]
        for module in own:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in own:
                cloudpickle.unregister_pickle_by_value(module)


def find_own_modules() -> list[types.ModuleType]:
    """Of what this process has imported: neither of Python, nor of an installed package."""
    return [
        module
        for name, module in list(sys.modules.items())
        # Not isinstance(): some that are no modules say they are.
        if issubclass(type(module), types.ModuleType) and _is_own(name, module)
    ]


def _is_own(name: str, module: types.ModuleType) -> bool:
    top = name.split(".")[0]
    # Of the script itself cloudpickle takes everything whole.
    if top in _SHARED or top in sys.stdlib_module_names or top == "__main__":
        return False
    # Not by getattr: modules that are loaded when first asked for would be.
    facts = object.__getattribute__(module, "__dict__")
    file = facts.get("__file__")
    # Only what is written in Python can be taken whole.
    if facts.get("__name__") != name or not str(file).endswith((".py", ".pyc")):
        return False
    path = Path(str(file))
    depth = name.count(".") + (path.stem == "__init__")
    return depth >= len(path.parents) or not _is_of_packages(path.parents[depth])


@lru_cache(maxsize=1024)
def _is_of_packages(folder: Path) -> bool:
    """Whether packages are installed here, also by pip install --target."""
    if folder.name in ("site-packages", "dist-packages") or str(folder) in _PLACES:
        return True
    return any(folder.glob("*.dist-info"))
