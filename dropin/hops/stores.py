"""Stores of files, by their paths: opened by fsspec, copied between.

Names are taken as they are. fsspec's own copying and deleting read "layers=[64, 32]", the name of
a trial, as a pattern.
"""

from __future__ import annotations

import glob
import os
import posixpath
import shutil
from pathlib import Path
from typing import Any

from hops import place


def open_path(path: str) -> tuple[Any, str]:
    """The filesystem of a path, and the path on it."""
    from sparktrain.data.storage import open_store

    return open_store(path, {})


def exists(path: str) -> bool:
    filesystem, name = open_path(path)
    return bool(filesystem.exists(name))


def make_folder(path: str) -> None:
    filesystem, name = open_path(path)
    filesystem.makedirs(name, exist_ok=True)


def write(path: str, data: str | bytes) -> None:
    """Text or bytes as a whole file, in a folder that need not be there."""
    filesystem, name = open_path(path)
    filesystem.makedirs(posixpath.dirname(name), exist_ok=True)
    with filesystem.open(name, "wb") as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


def read(path: str) -> bytes:
    """The bytes of a whole file."""
    filesystem, name = open_path(path)
    with filesystem.open(name, "rb") as stream:
        return bytes(stream.read())


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


def copy(filesystem: Any, name: str, others: Any, to: str) -> None:
    """Copies a file or a folder to just that name, in the same store or another."""
    name, to = name.rstrip("/"), to.rstrip("/")
    others.makedirs(posixpath.dirname(to), exist_ok=True)
    if not filesystem.isdir(name):
        _copy_file(filesystem, name, others, to)
        return
    # All names first: the folder may be copied into itself.
    found = sorted(filesystem.find(name, withdirs=True, detail=True).items())
    others.makedirs(to, exist_ok=True)
    for inner, entry in found:
        target = to + inner.rstrip("/")[len(name) :]
        # What is neither may be a link to a folder.
        if entry["type"] == "directory" or (entry["type"] != "file" and filesystem.isdir(inner)):
            others.makedirs(target, exist_ok=True)
        else:
            _copy_file(filesystem, inner, others, target)


def _copy_file(filesystem: Any, name: str, others: Any, to: str) -> None:
    from sparktrain.data.storage import is_local

    if filesystem is others:
        filesystem.cp_file(name, to)
    elif is_local(others):
        filesystem.get_file(name, to)
    elif is_local(filesystem):
        others.put_file(name, to)
    else:
        with filesystem.open(name, "rb") as reading, others.open(to, "wb") as writing:
            shutil.copyfileobj(reading, writing)


def move(filesystem: Any, name: str, others: Any, to: str) -> None:
    """Moves a file or a folder to just that name, in any store, where nothing is."""
    from fsspec import AbstractFileSystem

    name, to = name.rstrip("/"), to.rstrip("/")
    if filesystem is others and name == to:
        return
    if not filesystem.exists(name):
        raise FileNotFoundError(f"{name} does not exist")
    if others.exists(to):
        raise FileExistsError(f"{to} is there already; delete it first, or give another name")
    # Stores that cannot rename have the mv of the base, which takes patterns.
    if filesystem is others and type(filesystem).mv is not AbstractFileSystem.mv:
        filesystem.mv(name, to, recursive=filesystem.isdir(name))
        return
    copy(filesystem, name, others, to)
    remove(filesystem, name, recursive=True)


def remove(filesystem: Any, name: str, recursive: bool = False) -> None:
    """Deletes a file, or a folder and all in it."""
    from sparktrain.data.storage import is_local

    name = name.rstrip("/")
    if is_local(filesystem) or glob.escape(name) == name:
        filesystem.rm(name, recursive=recursive)
    elif filesystem.isfile(name):
        filesystem.rm_file(name)
    else:
        found = filesystem.find(name, withdirs=True, detail=True) if recursive else {}
        for inner in (one for one in found if found[one]["type"] != "directory"):
            filesystem.rm_file(inner)
        # The innermost first; in some stores a folder is gone with its last file.
        for inner in (*sorted(found, reverse=True), name):
            if filesystem.isdir(inner):
                filesystem.rmdir(inner)


def name_target(filesystem: Any, source: str, target: str) -> str:
    """Where something is to be: in a folder that is there, or under another name."""
    if filesystem.isdir(target):
        target = posixpath.join(target, posixpath.basename(source.rstrip("/")))
    return target.rstrip("/")


def copy_new(filesystem: Any, name: str, others: Any, target: str, overwrite: bool) -> None:
    """Copies into a folder that is there, or to another name; where nothing is, unless asked."""
    if not filesystem.exists(name):
        raise FileNotFoundError(f"{name} does not exist")
    to = name_target(others, name, target)
    if filesystem is others and f"{_resolve(filesystem, name)}/".startswith(
        f"{_resolve(others, to)}/"
    ):
        raise OSError(f"{name} is, or is in, {to}; it cannot be copied over that")
    if others.exists(to):
        if not overwrite:
            raise OSError(f"{to} is there already; give overwrite=True to replace it")
        remove(others, to, recursive=True)
    copy(filesystem, name, others, to)


def _resolve(filesystem: Any, name: str) -> str:
    """A name without links, where there are some."""
    from sparktrain.data.storage import is_local

    return os.path.realpath(name) if is_local(filesystem) else name.rstrip("/")


def find_sizes(filesystem: Any, name: str) -> dict[str, int]:
    """The bytes of all files of a folder, by their names in it; of a file under no name."""
    name = name.rstrip("/")
    if not filesystem.isdir(name):
        return {"": int(filesystem.info(name)["size"])}
    found = filesystem.find(name, detail=True)
    return {inner[len(name) :]: int(entry["size"]) for inner, entry in found.items()}
