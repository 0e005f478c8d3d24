"""Permissions and owners of files: of this machine, of WebHDFS, and by Hadoop itself."""

from __future__ import annotations

import os
import shutil
from typing import Any

from hops import place, session, stores

#: Stores of Hadoop for which fsspec's drivers cannot set permissions.
_OF_HADOOP = ("hdfs://", "viewfs://")
_OF_WEBHDFS = ("webhdfs://", "swebhdfs://")


def chmod(path: str, mode: int) -> None:
    """Changes the permissions of a full path."""
    if (local := place.find_local(path)) is not None:
        os.chmod(local, mode)  # noqa: PTH101 (as text)
    elif path.startswith(_OF_WEBHDFS):
        filesystem, name = stores.open_path(path)
        filesystem.chmod(name, f"{mode:o}")
    else:
        filesystem, target, hadoop = _open_by_hadoop(path, "chmod")
        filesystem.setPermission(target, hadoop.permission.FsPermission(f"{mode:o}"))


def chown(path: str, user: str, group: str) -> None:
    """Changes the owner and the group of a full path."""
    if (local := place.find_local(path)) is not None:
        shutil.chown(local, user, group)
    elif path.startswith(_OF_WEBHDFS):
        filesystem, name = stores.open_path(path)
        filesystem.chown(name, user, group)
    else:
        filesystem, target, _ = _open_by_hadoop(path, "chown")
        filesystem.setOwner(target, user, group)


def _open_by_hadoop(path: str, what: str) -> tuple[Any, Any, Any]:
    """Hadoop's own file system of a path, the path, and the package both are of."""
    if not path.startswith(_OF_HADOOP):
        raise NotImplementedError(
            f"hdfs.{what}() was called for {path!r}, and only files of this machine and of Hadoop"
            f" have what it changes. Expected a path, or a URL that begins with one of"
            f" {', '.join((*_OF_HADOOP, *_OF_WEBHDFS))}."
        )
    context = getattr(session.find_active(), "_sc", None)
    if context is None:
        raise NotImplementedError(
            f"hdfs.{what}() was called for {path!r} in a process without a Spark session of its"
            " own: Hadoop does it, in the Java of Spark's driver. Call it on the driver, without"
            " Spark Connect, or name the file by webhdfs://."
        )
    hadoop = context._jvm.org.apache.hadoop.fs
    target = hadoop.Path(path)
    return target.getFileSystem(context._jsc.hadoopConfiguration()), target, hadoop
