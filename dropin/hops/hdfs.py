"""Files of the project, in HDFS or any other store that fsspec knows.

Paths are relative to the project's folder, also behind a slash, or have a scheme (place.py).
"""

from __future__ import annotations

import fnmatch
import getpass
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from hops import entries, localize, owners, place, stores
from hops.old_names import takes
from hops.place import locate
from hops.stores import make_name, open_path

#: What all of them call a path, and what some of them once called it here.
_takes_path = takes(path="hdfs_path")


def project_user() -> str:
    """The user that files are written as."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def project_name() -> str:
    """The last part of the project's folder."""
    return posixpath.basename(project_path().rstrip("/"))


def project_id() -> str:
    """The number that Hopsworks has for the project."""
    from sparktrain.errors import ConfigError

    found = os.environ.get("HOPSWORKS_PROJECT_ID")
    if found is None:
        raise ConfigError(
            problem="hdfs.project_id() was called where HOPSWORKS_PROJECT_ID is not set: projects"
            " have numbers in Hopsworks only.",
            advice="Set it, or use hdfs.project_name().",
        )
    return found


def project_path(project: str | None = None, exclude_nn_addr: bool = False) -> str:
    """The project's folder, with a slash at its end.

    Args:
        project: Another project, in a folder beside it.
        exclude_nn_addr: Whether to leave the scheme and the host out.
    """
    found = place.find_project(name=project)
    return get_plain_path(found) if exclude_nn_addr else found


@_takes_path
def abs_path(hdfs_path: str) -> str:
    """The full path of what a program names."""
    return locate(hdfs_path)


@takes(path="abs_path")
def get_plain_path(abs_path: str) -> str:
    """A path without scheme and host."""
    path = place.to_plain(str(abs_path))
    return path[len(place.find_store(path)) :] if place.has_scheme(path) else path


def get_fs() -> Any:
    """The store of the project: a filesystem of fsspec."""
    return open_path(project_path())[0]


get = get_fs


def close() -> None:
    """Kept; fsspec looks after its connections."""


def is_tls_enabled() -> bool:
    """Whether this is a Hops file system that wants certificates: never here."""
    return False


# Looking.


@_takes_path
def exists(hdfs_path: str, project: str | None = None) -> bool:
    return stores.exists(locate(hdfs_path, project))


@_takes_path
def isdir(hdfs_path: str, project: str | None = None) -> bool:
    filesystem, name = open_path(locate(hdfs_path, project))
    return bool(filesystem.isdir(name))


@_takes_path
def isfile(hdfs_path: str, project: str | None = None) -> bool:
    filesystem, name = open_path(locate(hdfs_path, project))
    return bool(filesystem.isfile(name))


@_takes_path
def ls(hdfs_path: str, recursive: bool = False, exclude_nn_addr: bool = False) -> list[str]:
    """The full names of what is in a folder."""
    names = [entry["path"] for entry in lsl(hdfs_path, recursive)]
    return [get_plain_path(name) for name in names] if exclude_nn_addr else names


@_takes_path
def lsl(
    hdfs_path: str, recursive: bool = False, project: str | None = None
) -> list[dict[str, Any]]:
    """What is in a folder, each with its path, name, kind ("file" or "directory") and size.

    Where the store knows them, with last_mod, owner, group and permissions as well.
    """
    full = locate(hdfs_path, project)
    filesystem, root = open_path(full)
    if recursive:
        found = list(filesystem.find(root, withdirs=True, detail=True).values())
    else:
        found = filesystem.ls(root, detail=True)
    rows = []
    for entry in sorted(found, key=lambda one: str(one["name"])):
        name = str(entry["name"]).rstrip("/")
        if name == root.rstrip("/") and entry["type"] == "directory":
            continue
        rows.append(entries.describe(entry, make_name(filesystem, name, full)))
    return rows


@_takes_path
def glob(hdfs_path: str, recursive: bool = False, project: str | None = None) -> list[str]:
    """The full names that fit a pattern, in a folder that must be there.

    Args:
        recursive: Whether to look in all folders below as well.
    """
    full = locate(hdfs_path, project)
    filesystem, pattern = open_path(full)
    folder = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    if folder and not filesystem.isdir(folder):
        raise FileNotFoundError(f"glob() got {hdfs_path!r}, and there is no folder {folder}")
    if recursive:
        folder, _, last = pattern.rpartition("/")
        names = [n for n in filesystem.find(folder) if fnmatch.fnmatch(posixpath.basename(n), last)]
    else:
        names = filesystem.glob(pattern)
    return sorted(make_name(filesystem, str(name), full) for name in names)


@_takes_path
def stat(hdfs_path: str, project: str | None = None) -> Any:
    """What the store knows of a path, with the names of os.stat()."""
    full = locate(hdfs_path, project)
    if (local := place.find_local(full)) is not None:
        return Path(local).stat()
    filesystem, name = open_path(full)
    return entries.make_stat(filesystem.info(name))


@_takes_path
def access(hdfs_path: str, mode: int, project: str | None = None) -> bool:
    """Whether the path may be used so; stores that do not tell are asked if it is there."""
    full = locate(hdfs_path, project)
    local = place.find_local(full)
    return os.access(local, mode) if local is not None else stores.exists(full)


# Changing.


@_takes_path
def mkdir(hdfs_path: str, project: str | None = None) -> None:
    stores.make_folder(locate(hdfs_path, project))


@_takes_path
def delete(hdfs_path: str, recursive: bool = False) -> None:
    _delete(locate(hdfs_path), recursive)


@_takes_path
def rmr(hdfs_path: str, project: str | None = None) -> None:
    """Deletes a folder and all in it."""
    _delete(locate(hdfs_path, project), recursive=True)


def _delete(full: str, recursive: bool) -> None:
    filesystem, name = open_path(full)
    if filesystem.exists(name):
        stores.remove(filesystem, name, recursive)


def move(src: str, dest: str) -> None:
    """Into a folder that is there, or to another name; in another store as well."""
    filesystem, name = open_path(locate(src))
    others, target = open_path(locate(dest))
    stores.move(filesystem, name, others, stores.name_target(others, name, target))


def rename(src: str, dest: str) -> None:
    """To another name, where nothing is; in another store as well."""
    stores.move(*open_path(locate(src)), *open_path(locate(dest)))


@_takes_path
def chmod(hdfs_path: str, mode: int, project: str | None = None) -> None:
    """Changes permissions, such as 0o755."""
    owners.chmod(locate(hdfs_path, project), mode)


@_takes_path
def chown(hdfs_path: str, user: str, group: str, project: str | None = None) -> None:
    owners.chown(locate(hdfs_path, project), user, group)


# Copying, reading, writing.


def cp(src_hdfs_path: str, dest_hdfs_path: str, overwrite: bool = False) -> None:
    """A file or a folder: into a folder that is there, or to another name."""
    source, target = open_path(locate(src_hdfs_path)), open_path(locate(dest_hdfs_path))
    stores.copy_new(*source, *target, overwrite)


def copy_to_hdfs(
    local_path: str,
    relative_hdfs_path: str,
    overwrite: bool = False,
    project: str | None = None,
) -> None:
    """A file or a folder of this machine: into a folder that is there, or to another name."""
    source = str(Path(local_path).expanduser().absolute())
    if not os.path.exists(source):  # noqa: PTH110 (as text)
        raise OSError(f"{source} does not exist on this machine")
    stores.copy_new(*open_path(source), *open_path(locate(relative_hdfs_path, project)), overwrite)


def copy_to_local(
    hdfs_path: str, local_path: str = "", overwrite: bool = False, project: str | None = None
) -> str:
    """A file or a folder, into a folder of this machine; returns where it is.

    What is there already with the same size is left alone, unless it is to be overwritten.
    """
    folder = Path(local_path).expanduser().absolute()
    return str(localize.copy_to_local(locate(hdfs_path, project), folder, overwrite))


def open_file(
    hdfs_path: str, project: str | None = None, flags: str = "rw", buff_size: int = 0
) -> Any:
    """An open file of bytes: "r" reads, "w" writes anew, "a" appends.

    Of "rw", which no store can do, the file decides: one that is there is read.
    """
    filesystem, name = open_path(locate(hdfs_path, project))
    if flags == "rw":
        flags = "r" if filesystem.exists(name) else "w"
    if "r" not in flags:
        filesystem.makedirs(posixpath.dirname(name), exist_ok=True)
    return filesystem.open(name, flags if "b" in flags or "t" in flags else f"{flags}b")


def dump(data: str | bytes, hdfs_path: str) -> None:
    """Writes text or bytes as a whole file."""
    stores.write(locate(hdfs_path), data)


def load(hdfs_path: str) -> bytes:
    """The bytes of a whole file."""
    return stores.read(locate(hdfs_path))


def add_module(hdfs_path: str, project: str | None = None) -> str:
    """Makes a .py, .ipynb, .zip or .egg importable; returns its path on this machine."""
    return str(localize.add_module(locate(hdfs_path, project)))
