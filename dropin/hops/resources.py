"""Files that an experiment is to have a copy of: versioned_resources, as older versions had it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from hops import place, stores
from sparktrain.errors import ConfigError

#: For the experiment that begins next in this context.
_wished: ContextVar[tuple[str, ...]] = ContextVar("versioned_resources", default=())


@contextmanager
def wishing(paths: Any) -> Iterator[None]:
    """The experiment that begins in the block keeps copies of these files and folders."""
    if isinstance(paths, str) or not isinstance(paths or [], Sequence):
        raise ConfigError(
            problem=f"An experiment got versioned_resources={paths!r}.",
            advice="Expected a list of paths in the project.",
        )
    token = _wished.set(tuple(map(str, paths or ())))
    try:
        yield
    finally:
        _wished.reset(token)


def find_wished(project: str) -> list[str]:
    """Their full paths; raises ConfigError for one that is not there."""
    found = [place.make_absolute(path, project) for path in _wished.get()]
    for path in found:
        if not stores.exists(path):
            raise ConfigError(
                problem=f"An experiment is to keep a copy of {path}, which does not exist.",
                advice="Name files or folders of the project in versioned_resources.",
            )
    return found


def keep(paths: Sequence[str], folder: str) -> list[str]:
    """Copies them to the experiment's folder; returns where they are."""
    found = []
    for path in paths:
        filesystem, name = stores.open_path(path)
        target = posixpath.join(folder, posixpath.basename(name.rstrip("/")))
        stores.copy_new(filesystem, name, *stores.open_path(target), overwrite=False)
        found.append(target)
    return found
