"""Stores of files, by their paths: opened by fsspec, filled from this machine."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import Any

from hops import place


def open_path(path: str) -> tuple[Any, str]:
    """The filesystem of a path, and the path on it."""
    from sparktrain.data.storage import open_store

    return open_store(path, {})


def put(source: str, path: str) -> None:
    """Copies a file or a folder of this machine to just that name."""
    filesystem, target = open_path(path)
    filesystem.makedirs(posixpath.dirname(target.rstrip("/")), exist_ok=True)
    if not os.path.isdir(source):  # noqa: PTH112 (as text)
        filesystem.put_file(source, target)
        return
    filesystem.makedirs(target, exist_ok=True)
    for folder, _, names in os.walk(source):
        below = Path(folder).relative_to(source).as_posix()
        inner = target if below == "." else posixpath.join(target, below)
        filesystem.makedirs(inner, exist_ok=True)
        for name in names:
            filesystem.put_file(os.path.join(folder, name), posixpath.join(inner, name))  # noqa: PTH118


def make_name(filesystem: Any, name: str, asked: str) -> str:
    """A full name as it was asked for: with a scheme, or as a path of this machine."""
    return name if not place.has_scheme(asked) else str(filesystem.unstrip_protocol(name))


def find_target(filesystem: Any, source: str, target: str, overwrite: bool) -> str:
    if filesystem.isdir(target):
        target = posixpath.join(target, posixpath.basename(source.rstrip("/")))
    if filesystem.exists(target):
        if not overwrite:
            raise OSError(f"{target} is there already; give overwrite=True to replace it")
        filesystem.rm(target, recursive=filesystem.isdir(target))
    filesystem.makedirs(posixpath.dirname(target.rstrip("/")), exist_ok=True)
    return target


def find_size(filesystem: Any, name: str) -> int:
    if filesystem.isdir(name):
        return int(filesystem.du(name))
    return int(filesystem.info(name)["size"])


def find_local_size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
