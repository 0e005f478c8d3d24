"""Finds the files below paths, in folders of folders, with the values of the folders' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sparktrain.data.partition_folders import parse_folders
from sparktrain.data.shards import FileInfo
from sparktrain.data.storage import is_hidden, open_store
from sparktrain.errors import ConfigError

#: Files in the order of their paths, each with the values of its folders, as text.
Listing = Sequence[tuple[FileInfo, dict[str, str | None]]]


def list_tree(paths: Sequence[str], storage_options: Mapping[str, Any]) -> Listing:
    """All files of the paths and of the folders below them; raises ConfigError for a missing one.

    Names that begin with a dot or an underscore do not count.
    """
    found: dict[tuple[str, str], tuple[FileInfo, dict[str, str | None]]] = {}
    for url in paths:
        filesystem, pattern = open_store(url, storage_options)
        filesystem.invalidate_cache()  # stores remember their folders; files come and go
        for root in _find_roots(filesystem, url, pattern):
            parts = len(PurePosixPath(root).parts)
            for path, entry in sorted(_walk(filesystem, root).items()):
                if any(is_hidden(name) for name in PurePosixPath(path).parts[parts:]):
                    continue
                info = FileInfo(url, path, int(entry.get("size") or 0))
                found.setdefault((url, path), (info, parse_folders(path, _base(root))))
    return sorted(found.values(), key=lambda one: one[0].path)


def _find_roots(filesystem: Any, url: str, pattern: str) -> list[str]:
    if filesystem.exists(pattern):
        return [pattern]
    if any(sign in pattern for sign in "*?["):
        matches = [path for path in filesystem.glob(pattern) if not is_hidden(_name(path))]
        if matches:
            return sorted(matches)
    raise ConfigError(
        problem=f"There is no file or folder {url!r}.",
        advice="Expected a path or a glob that matches something, which the driver can see.",
    )


def _walk(filesystem: Any, root: str) -> dict[str, Any]:
    if filesystem.isdir(root):
        return dict(filesystem.find(root, detail=True))
    return {root: filesystem.info(root)}


def _base(root: str) -> str:
    """Where folders of partitions may begin: a root may be one of them itself."""
    path = PurePosixPath(root)
    while "=" in path.name:
        path = path.parent
    return str(path)


def _name(path: str) -> str:
    return PurePosixPath(path.rstrip("/")).name
