"""Where the project is: the folder that relative paths begin at, and experiments are written to.

Hopsworks gave every project a folder of its own. Here it is HOPS_PROJECT_PATH, else the Spark
configuration spark.hops.projectPath, else the user's folder of Hadoop's default file system,
else the working directory.
"""

from __future__ import annotations

import getpass
import os
import posixpath
import re
from typing import Any

from hops.session import find_active

#: The environment variable; nodes get it from the driver.
VARIABLE = "HOPS_PROJECT_PATH"
CONF = "spark.hops.projectPath"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_FILE = re.compile(r"^file:(//(?=/))?")


def has_scheme(path: str) -> bool:
    return _SCHEME.match(path) is not None


def to_plain(path: str) -> str:
    """file:///folder as /folder, which TensorFlow and open() take as well; others as they are."""
    return _FILE.sub("", path)


def find_project(spark: Any = None, name: str | None = None) -> str:
    """The folder of the project, with a slash at its end.

    Args:
        name: Of another project, in a folder beside it.
    """
    active = spark if spark is not None else find_active()
    wished = os.environ.get(VARIABLE)
    if not wished and active is not None:
        wished = active.conf.get(CONF, None)
    if not wished and active is not None:
        wished = _find_home(active)
    path = to_plain(wished or os.getcwd())  # noqa: PTH109 (as text)
    if not has_scheme(path):
        path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 (as text)
    found = path.rstrip("/") + "/"
    return found if name is None else f"{posixpath.dirname(found.rstrip('/'))}/{name}/"


def _find_home(spark: Any) -> str | None:
    """The user's folder of a default file system that is not this machine's own."""
    from sparktrain.driver.spark_facts import is_connect

    if is_connect(spark):  # does not tell
        return None
    base = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "")
    if not has_scheme(base) or base.startswith("file:"):
        return None
    return f"{base.rstrip('/')}/user/{getpass.getuser()}"


def locate(path: str, project: str | None = None) -> str:
    """The full path of what a program names, in its project or another one."""
    return make_absolute(str(path), find_project(name=project))


def make_absolute(path: str, project: str) -> str:
    """A path as programs of a project write it: relative to its folder, also behind a slash.

    Only with a scheme, or below the folder of this project, of one beside it, or /Projects, it is
    what it says: "/Resources" is a folder of the project, and never one of the host or the store.
    """
    if _FILE.match(path):
        plain = os.path.abspath(to_plain(path))  # noqa: PTH100 (as text)
        is_own = not has_scheme(project) and is_absolute(plain, project)
        return plain if is_own else f"file://{plain}"
    if has_scheme(path):
        return path
    if is_absolute(path, project):
        return find_store(project) + path
    return project + path.lstrip("/")


def is_absolute(path: str, project: str) -> bool:
    """Whether a path without a scheme begins at the root of the project's store."""
    if not path.startswith("/"):
        return False
    path = posixpath.normpath(path)
    own = project[len(find_store(project)) :].rstrip("/")
    beside = posixpath.dirname(own)
    return f"{path}/".startswith((f"{own}/", "/Projects/")) or (
        beside not in ("", "/") and path.startswith(f"{beside}/")
    )


def find_local(path: str) -> str | None:
    """A full path as one of this machine; None if it is in a store."""
    plain = to_plain(path)
    return None if has_scheme(plain) else plain


def find_store(project: str) -> str:
    """The scheme and the host of a path: hdfs://host:port; empty for paths of this machine."""
    found = re.match(r"[A-Za-z][A-Za-z0-9+.-]+://[^/]*", project)
    return found[0] if found is not None else ""


def make_relative(path: str, project: str) -> str:
    """The part of a path behind the project's folder; all of it if it is not there."""
    return path.removeprefix(project)
