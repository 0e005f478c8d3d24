"""Where a path of a program is, as the cluster's default file system has it. No I/O here."""

from __future__ import annotations

import getpass
import re

#: A scheme such as gs:// or abfss://, and dbfs:/ with its one slash. Not a drive letter.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def make_absolute(path: str, default_fs: str, working_dir: str) -> str:
    """A path with its scheme: any scheme is left as it is, the rest is of the default one."""
    if _SCHEME.match(path):
        return path
    base = default_fs.rstrip("/") if not default_fs.endswith("://") else default_fs
    if path.startswith("/"):
        return base + path
    if base.startswith(("hdfs://", "viewfs://")):
        return f"{base}/user/{getpass.getuser()}/{path}"
    if base.startswith("file:"):
        return f"{base}/{working_dir.strip('/')}/{path}" if working_dir.strip("/.") else path
    return f"{base}/{path}"
