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
    base = strip_slash(default_fs)
    if path.startswith("/"):
        return base + path
    if base.startswith(("hdfs://", "viewfs://")):
        return f"{base}/user/{getpass.getuser()}/{path}"
    if base.startswith("file:"):
        return f"{base}/{working_dir.strip('/')}/{path}" if working_dir.strip("/.") else path
    return f"{base}/{path}"


def strip_slash(default_fs: str) -> str:
    """Without the slash at its end; viewfs:///, which names no host, keeps its two."""
    base = default_fs.rstrip("/")
    return f"{base}//" if base.endswith(":") else base
