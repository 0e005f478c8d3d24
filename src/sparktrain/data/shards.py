"""Lists files once, on the driver, and splits them over the workers.

With at least as many files as workers each file is read by one worker. With fewer, files are
cut: Parquet by its row groups, CSV and TFRecord into one part for each worker. Every row is in
exactly one shard.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

from sparktrain.data.files import Files
from sparktrain.data.storage import (
    find_compression,
    is_hidden,
    naming_early,
    open_seekable,
    open_store,
)
from sparktrain.errors import ConfigError

Item = TypeVar("Item")


@dataclass(frozen=True)
class FileInfo:
    """One file of a list.

    Attributes:
        url: What the user wrote; it names the store.
        path: Of the file, on that store.
        size: In bytes; 0 where the store does not tell.
        row_groups: The bytes of each row group of a Parquet file that may have to be cut.
    """

    url: str
    path: str
    size: int
    row_groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Shard:
    """What one worker reads of one file.

    Attributes:
        part: Of num_parts; which records that are is the format's affair.
        row_groups: Of a Parquet file; None for all.
    """

    url: str
    path: str
    size: int
    part: int = 0
    num_parts: int = 1
    row_groups: tuple[int, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        groups = None if self.row_groups is None else list(self.row_groups)
        return {**self.__dict__, "row_groups": groups}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Shard:
        groups = values["row_groups"]
        return cls(**{**values, "row_groups": None if groups is None else tuple(groups)})


def list_files(files: Files, num_workers: int = 1) -> tuple[FileInfo, ...]:
    """The files behind the paths, sorted by path; raises ConfigError where there is none.

    Args:
        files: What the user declared.
        num_workers: With fewer Parquet files than that their row groups are looked up too.
    """
    infos = list_paths(files.paths, files.options.storage_options)
    if files.format == "parquet":
        if len(infos) < num_workers:
            infos = [_with_row_groups(info, files.options.storage_options) for info in infos]
    else:
        for info in infos:
            find_compression(info.path)
    return tuple(infos)


def list_paths(paths: Iterable[str], storage_options: Mapping[str, Any]) -> list[FileInfo]:
    """The same for paths alone, whatever the format."""
    found: dict[tuple[int, str], FileInfo] = {}
    for url in paths:
        filesystem, pattern = open_store(url, storage_options)
        entries = _find(filesystem, url, pattern)
        if not entries:
            raise ConfigError(
                problem=f"files() found no file for {url!r}.",
                advice="Expected a file, a folder with files in it, or a glob that matches some;"
                " names that begin with a dot or an underscore do not count, and folders in"
                " folders need a glob such as 'data/*/*.parquet'.",
            )
        for path, size in entries.items():
            # Two patterns may match one file. fsspec keeps one object for each store.
            found.setdefault((id(filesystem), path), FileInfo(url, path, size))
    return sorted(found.values(), key=lambda info: (info.path, info.url))


def _find(filesystem: Any, url: str, pattern: str) -> dict[str, int]:
    """Path -> size."""
    is_glob = any(sign in pattern for sign in "*?[")
    try:
        # A name may hold the signs of a glob itself.
        if is_glob and not filesystem.exists(pattern):
            matches = filesystem.glob(pattern, detail=True)
            entries = [entry for path, entry in matches.items() if not _is_hidden(path)]
        else:
            entries = [filesystem.info(pattern)]
        found = {}
        for entry in entries:
            if entry["type"] == "directory":
                inside = filesystem.ls(entry["name"], detail=True)
                found.update(_sizes(one for one in inside if not _is_hidden(one["name"])))
            else:
                found.update(_sizes([entry]))
    except FileNotFoundError:
        return {}
    except Exception as error:  # each store has errors of its own
        raise ConfigError(
            problem=f"files() cannot list {url!r}: {type(error).__name__}: {error}.",
            advice="Check the address, and give keys and endpoints with storage_options={...}.",
        ) from error
    return found


def _sizes(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {
        str(entry["name"]): int(entry.get("size") or 0)
        for entry in entries
        if entry["type"] != "directory"
    }


def _is_hidden(path: str) -> bool:
    return is_hidden(PurePosixPath(path.rstrip("/")).name)


def _with_row_groups(info: FileInfo, storage_options: Mapping[str, Any]) -> FileInfo:
    import pyarrow.parquet as pq  # here: lists of other formats need none of it

    filesystem, _ = open_store(info.url, storage_options)
    with naming_early(info.path), open_seekable(filesystem, info.path) as stored:
        found = pq.ParquetFile(stored).metadata
        sizes = [found.row_group(group).total_byte_size for group in range(found.num_row_groups)]
    return FileInfo(info.url, info.path, info.size, tuple(sizes))


def split(infos: Sequence[FileInfo], num_workers: int) -> list[tuple[Shard, ...]]:
    """The shards of each worker, even by bytes; a worker may get none."""
    if len(infos) >= num_workers:
        whole = [(info.size, Shard(info.url, info.path, info.size)) for info in infos]
        return [tuple(part) for part in _deal(whole, num_workers)]
    cut: list[list[Shard]] = [[] for _ in range(num_workers)]
    for info in infos:
        if info.row_groups is None:
            # Every worker takes its part of every file: even, whatever the sizes are.
            for part in range(num_workers):
                size = info.size // num_workers
                cut[part].append(Shard(info.url, info.path, size, part, num_workers))
    groups = [
        (size, (position, group))
        for position, info in enumerate(infos)
        for group, size in enumerate(info.row_groups or ())
    ]
    for worker, dealt in enumerate(_deal(groups, num_workers)):
        for position, info in enumerate(infos):
            own = tuple(group for owner, group in dealt if owner == position)
            if own and info.row_groups is not None:
                size = sum(info.row_groups[group] for group in own)
                cut[worker].append(Shard(info.url, info.path, size, row_groups=own))
    return [tuple(shards) for shards in cut]


def _deal(sized: Sequence[tuple[int, Item]], num_workers: int) -> list[list[Item]]:
    """Largest first, each to whoever has least; then back in the order of the list."""
    loads = [(0, 0, worker) for worker in range(num_workers)]
    owned: list[list[int]] = [[] for _ in range(num_workers)]
    for position in sorted(range(len(sized)), key=lambda at: -sized[at][0]):
        load, count, worker = heapq.heappop(loads)
        owned[worker].append(position)
        # Where sizes are unknown, or all zero, the counts are made even.
        heapq.heappush(loads, (load + sized[position][0], count + 1, worker))
    return [[sized[position][1] for position in sorted(positions)] for positions in owned]
