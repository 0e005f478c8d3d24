"""What stores know of a file or a folder, under one set of names. No I/O here.

Each store's driver has names of its own: HDFS and this machine, WebHDFS, and object stores.
"""

from __future__ import annotations

import datetime
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Entry = Mapping[str, Any]
_MODIFIED = ("mtime", "modificationTime", "LastModified", "last_modified", "updated", "created")
#: WebHDFS counts in thousandths of a second.
_IN_MS = ("modificationTime",)


@dataclass(frozen=True)
class Stat:
    """As os.stat() has it; owner and group are names where the store has names, None if neither.

    Attributes:
        st_mode: The kind of file, and its permissions where they are known.
        st_mtime: Seconds since 1970; 0.0 where the store does not tell.
    """

    st_mode: int
    st_size: int
    st_mtime: float
    st_uid: Any = None
    st_gid: Any = None


def make_stat(entry: Entry) -> Stat:
    kind = stat.S_IFDIR if entry["type"] == "directory" else stat.S_IFREG
    return Stat(
        st_mode=kind | (find_permissions(entry) or 0),
        st_size=int(entry.get("size") or 0),
        st_mtime=find_modified(entry) or 0.0,
        st_uid=_find(entry, "owner", "uid"),
        st_gid=_find(entry, "group", "gid"),
    )


def describe(entry: Entry, path: str) -> dict[str, Any]:
    """A row of lsl(); what the store does not know is left out."""
    modified = find_modified(entry)
    known = {
        "last_mod": None if modified is None else int(modified),
        "owner": _find(entry, "owner", "uid"),
        "group": _find(entry, "group", "gid"),
        "permissions": find_permissions(entry),
    }
    return {
        "path": path,
        "name": path,
        "kind": entry["type"],
        "size": entry.get("size") or 0,
        **{name: value for name, value in known.items() if value is not None},
    }


def find_modified(entry: Entry) -> float | None:
    """When it was changed, in seconds since 1970."""
    for name in _MODIFIED:
        value = entry.get(name)
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if isinstance(value, datetime.datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return value / 1000 if name in _IN_MS else float(value)
    return None


def find_permissions(entry: Entry) -> int | None:
    """The bits of chmod."""
    if isinstance(mode := entry.get("mode"), int):
        return stat.S_IMODE(mode)
    written = entry.get("permission")  # WebHDFS: "755"
    return int(written, 8) if isinstance(written, str) else None


def _find(entry: Entry, *names: str) -> Any:
    return next((entry[name] for name in names if entry.get(name) is not None), None)
