"""Files of the project, in HDFS or any other store that fsspec knows.

Paths are relative to the project's folder (place.py), absolute in its store, or have a scheme.
"""

from __future__ import annotations

import fnmatch
import getpass
import os
import posixpath
import shutil
import sys
from pathlib import Path
from typing import Any

from hops import place, stores
from hops.stores import find_local_size, find_size, make_name, open_path


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
    found = place.find_project()
    if project is not None:
        found = posixpath.dirname(found.rstrip("/")) + f"/{project}/"
    return get_plain_path(found) if exclude_nn_addr else found


def abs_path(path: str) -> str:
    return place.make_absolute(str(path), place.find_project())


def get_plain_path(path: str) -> str:
    """A path without scheme and host."""
    path = place.to_plain(path)
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


def exists(path: str, project: str | None = None) -> bool:
    filesystem, name = open_path(_locate(path, project))
    return bool(filesystem.exists(name))


def isdir(path: str, project: str | None = None) -> bool:
    filesystem, name = open_path(_locate(path, project))
    return bool(filesystem.isdir(name))


def isfile(path: str, project: str | None = None) -> bool:
    filesystem, name = open_path(_locate(path, project))
    return bool(filesystem.isfile(name))


def ls(path: str, recursive: bool = False, exclude_nn_addr: bool = False) -> list[str]:
    """The full names of what is in a folder."""
    names = [entry["path"] for entry in lsl(path, recursive)]
    return [get_plain_path(name) for name in names] if exclude_nn_addr else names


def lsl(path: str, recursive: bool = False, project: str | None = None) -> list[dict[str, Any]]:
    """What is in a folder, each with its path, name, kind ("file" or "directory") and size."""
    place_ = _locate(path, project)
    filesystem, root = open_path(place_)
    if recursive:
        found = list(filesystem.find(root, withdirs=True, detail=True).values())
    else:
        found = filesystem.ls(root, detail=True)
    entries = []
    for entry in sorted(found, key=lambda one: str(one["name"])):
        name = str(entry["name"]).rstrip("/")
        if name == root.rstrip("/") and entry["type"] == "directory":
            continue
        full = make_name(filesystem, name, place_)
        entries.append(
            {"path": full, "name": full, "kind": entry["type"], "size": entry.get("size") or 0}
        )
    return entries


def glob(path: str, recursive: bool = False, project: str | None = None) -> list[str]:
    """The full names that fit a pattern.

    Args:
        recursive: Whether to look in all folders below as well.
    """
    place_ = _locate(path, project)
    filesystem, pattern = open_path(place_)
    if recursive:
        folder, _, last = pattern.rpartition("/")
        names = [n for n in filesystem.find(folder) if fnmatch.fnmatch(posixpath.basename(n), last)]
    else:
        names = filesystem.glob(pattern)
    return sorted(make_name(filesystem, str(name), place_) for name in names)


def stat(path: str) -> Any:
    """What the store knows of a path; of this machine's own, as os.stat() has it."""
    filesystem, name = open_path(abs_path(path))
    return Path(name).stat() if _is_local(abs_path(path)) else filesystem.info(name)


def access(path: str, mode: int, project: str | None = None) -> bool:
    """Whether the path may be used so; stores that do not tell are asked if it is there."""
    found = _locate(path, project)
    return os.access(found, mode) if _is_local(found) else exists(found)


# Changing.


def mkdir(path: str, project: str | None = None) -> None:
    filesystem, name = open_path(_locate(path, project))
    filesystem.makedirs(name, exist_ok=True)


def delete(path: str, recursive: bool = False) -> None:
    filesystem, name = open_path(abs_path(path))
    if filesystem.exists(name):
        stores.remove(filesystem, name, recursive)


def rmr(path: str, project: str | None = None) -> None:
    """Deletes a folder and all in it."""
    delete(_locate(path, project), recursive=True)


def move(src: str, dest: str) -> None:
    """Into a folder that is there, or to another name; in another store as well."""
    filesystem, name = open_path(abs_path(src))
    others, target = open_path(abs_path(dest))
    stores.move(filesystem, name, others, stores.name_target(others, name, target))


def rename(src: str, dest: str) -> None:
    stores.move(*open_path(abs_path(src)), *open_path(abs_path(dest)))


def chmod(hdfs_path: str, mode: int, project: str | None = None) -> None:
    path = _locate(hdfs_path, project)
    if _is_local(path):
        os.chmod(path, mode)  # noqa: PTH101 (as text)
        return
    _call_store(path, "chmod", mode)


def chown(hdfs_path: str, user: str, group: str, project: str | None = None) -> None:
    path = _locate(hdfs_path, project)
    if _is_local(path):
        shutil.chown(path, user, group)
        return
    _call_store(path, "chown", user, group)


# Copying, reading, writing.


def cp(src_hdfs_path: str, dest_hdfs_path: str, overwrite: bool = False) -> None:
    """A file or a folder: into a folder that is there, or to another name."""
    source, target = open_path(abs_path(src_hdfs_path)), open_path(abs_path(dest_hdfs_path))
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
    stores.copy_new(*open_path(source), *open_path(_locate(relative_hdfs_path, project)), overwrite)


def copy_to_local(
    hdfs_path: str, local_path: str = "", overwrite: bool = False, project: str | None = None
) -> str:
    """A file or a folder, into a folder of this machine; returns where it is.

    What is there already with the same size is left alone.
    """
    found = _locate(hdfs_path, project)
    filesystem, name = open_path(found)
    if not filesystem.exists(name):
        raise OSError(f"{found} does not exist")
    folder = Path(local_path).expanduser().absolute()
    if not folder.is_dir():
        raise OSError(f"{folder} is no folder of this machine")
    target = folder / posixpath.basename(name.rstrip("/"))
    if target.exists():
        if not overwrite and find_size(filesystem, name) == find_local_size(target):
            return str(target)
        if not overwrite:
            raise OSError(f"{target} is there, with another size; give overwrite=True to replace")
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    stores.copy(filesystem, name, *open_path(str(target)))
    return str(target)


def open_file(
    hdfs_path: str, project: str | None = None, flags: str = "rw", buff_size: int = 0
) -> Any:
    """An open file of bytes: "r" reads, "w" writes anew, "a" appends.

    Of "rw", which no store can do, the file decides: one that is there is read.
    """
    filesystem, name = open_path(_locate(hdfs_path, project))
    if flags == "rw":
        flags = "r" if filesystem.exists(name) else "w"
    if "r" not in flags:
        filesystem.makedirs(posixpath.dirname(name), exist_ok=True)
    return filesystem.open(name, flags if "b" in flags or "t" in flags else f"{flags}b")


def dump(data: str | bytes, hdfs_path: str) -> None:
    """Writes text or bytes as a whole file."""
    filesystem, name = open_path(abs_path(hdfs_path))
    filesystem.makedirs(posixpath.dirname(name), exist_ok=True)
    with filesystem.open(name, "wb") as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


def load(hdfs_path: str) -> bytes:
    """The bytes of a whole file."""
    filesystem, name = open_path(abs_path(hdfs_path))
    with filesystem.open(name, "rb") as stream:
        return bytes(stream.read())


def add_module(hdfs_path: str, project: str | None = None) -> str:
    """Makes a .py, .zip or .egg of the project importable; returns its path on this machine."""
    path = Path(copy_to_local(hdfs_path, os.getcwd(), overwrite=True, project=project))  # noqa: PTH109
    if path.suffix not in (".py", ".zip", ".egg"):
        raise ValueError(f"add_module() got {hdfs_path!r}; expected a .py, .zip or .egg")
    entry = str(path.parent if path.suffix == ".py" else path)
    if entry not in sys.path:
        sys.path.append(entry)
    return str(path)


def _locate(path: str, project: str | None) -> str:
    base = project_path(project)
    return place.make_absolute(str(path), base)


def _is_local(path: str) -> bool:
    return not place.has_scheme(path)


def _call_store(path: str, what: str, *args: Any) -> None:
    """Of HDFS, through Arrow's or another driver, if that has it."""
    filesystem, name = open_path(path)
    function = getattr(filesystem, what, None)
    if function is None:
        raise NotImplementedError(
            f"hdfs.{what}({path!r}): {type(filesystem).__name__} has no such thing"
        )
    function(name, *args)
