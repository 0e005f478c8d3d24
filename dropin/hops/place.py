"""Where the project is: the folder that relative paths begin at, and experiments are written to.

Hopsworks gave every project a folder of its own. Here it is HOPS_PROJECT_PATH, else the Spark
configuration spark.hops.projectPath, else the user's folder of Hadoop's default file system,
else the working directory.
"""

from __future__ import annotations

import getpass
import os
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


def find_project(spark: Any = None) -> str:
    """The folder of the project, with a slash at its end."""
    active = spark if spark is not None else find_active()
    wished = os.environ.get(VARIABLE)
    if not wished and active is not None:
        wished = active.conf.get(CONF, None)
    if not wished and active is not None:
        wished = _find_home(active)
    path = to_plain(wished or os.getcwd())  # noqa: PTH109 (as text)
    if not has_scheme(path):
        path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 (as text)
    return path.rstrip("/") + "/"


def _find_home(spark: Any) -> str | None:
    """The user's folder of a default file system that is not this machine's own."""
    from sparktrain.driver.spark_facts import is_connect

    if is_connect(spark):  # does not tell
        return None
    base = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "")
    if not has_scheme(base) or base.startswith("file:"):
        return None
    return f"{base.rstrip('/')}/user/{getpass.getuser()}"


def make_absolute(path: str, project: str) -> str:
    """A path as the project has it: relative to its folder, or from the root of its store."""
    path = to_plain(path)
    if has_scheme(path):
        return path
    if not path.startswith("/"):
        return project + path
    return find_store(project) + path


def find_store(project: str) -> str:
    """The scheme and the host of a path: hdfs://host:port; empty for paths of this machine."""
    found = re.match(r"[A-Za-z][A-Za-z0-9+.-]+://[^/]*", project)
    return found[0] if found is not None else ""


def make_relative(path: str, project: str) -> str:
    """The part of a path behind the project's folder; all of it if it is not there."""
    return path.removeprefix(project)
