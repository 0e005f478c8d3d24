"""The folders of a run's spills on a host, and which of them a restart may use again."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparktrain.data.spill import Entry, SpillError, explain

MANIFEST = "complete.json"
_TRIES = 100


def find_roots(local_dirs: str, own: str, run_id: str) -> list[Path]:
    """The folders of a run's spills on this host: the user's choice, else Spark's local folders."""
    homes = [own] if own else [entry for entry in local_dirs.split(",") if entry]
    return [Path(home) / f"sparktrain-spill-{run_id}" for home in homes or ["/tmp"]]


def make_folder(root: Path, partition: int, attempt: int) -> Path:
    """A new and private folder for the spill of one partition."""
    folder = root / f"part-{partition}-{attempt}"
    for left in reversed(range(_TRIES)):
        try:
            root.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
            break
        except OSError as error:
            # Another task that leaves may have removed the empty root just now.
            is_race = isinstance(error, (FileNotFoundError, FileExistsError))
            if not is_race or folder.exists() or not left:
                raise SpillError(explain(folder, error)) from error
    return folder


def remove_folders(root: Path, before: int, *own: Path | None) -> None:
    """Removes these folders and all of attempts before the given one."""
    for folder in root.glob("part-*"):
        if folder in own or int(folder.name.rpartition("-")[2]) < before:
            shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()  # unless other tasks of this executor are still at work there


def write_manifest(folder: Path, entries: Mapping[str, Sequence[Entry]]) -> None:
    """Marks a spill as complete, so that a restart can use it."""
    values = {table: [asdict(entry) for entry in found] for table, found in entries.items()}
    try:
        (folder / (MANIFEST + ".new")).write_text(json.dumps(values))
        (folder / (MANIFEST + ".new")).rename(folder / MANIFEST)
    except OSError as error:
        raise SpillError(explain(folder, error)) from error


def find_complete(root: Path, tables: Sequence[str]) -> dict[tuple[int, int], Path]:
    """The complete spills of earlier attempts below root, by attempt and partition."""
    found = {}
    for folder in sorted(root.glob("part-*")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            entries = read_manifest(folder)
            is_whole = set(entries) == set(tables) and all(
                not blocks or (folder / f"{name}.arrow").stat().st_size >= _end(blocks)
                for name, blocks in entries.items()
            )
            if is_whole:
                _, partition, attempt = folder.name.split("-")
                found[int(attempt), int(partition)] = folder
    return found


def read_manifest(folder: Path) -> dict[str, list[Entry]]:
    values: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return {name: [Entry(**one) for one in blocks] for name, blocks in values.items()}


def match(options: Sequence[Collection[int]]) -> list[int] | None:
    """Gives every node one of the partitions it has, so that all are used once; None if none can.

    All nodes compute the same from the same options.
    """
    holder: dict[int, int] = {}

    def seat(node: int, tried: set[int]) -> bool:
        wanted = {partition for partition in options[node] if partition < len(options)}
        own_first = sorted(wanted, key=lambda partition: (partition != node, partition))
        for partition in own_first:
            if partition not in tried:
                tried.add(partition)
                if partition not in holder or seat(holder[partition], tried):
                    holder[partition] = node
                    return True
        return False

    if not all(seat(node, set()) for node in range(len(options))):
        return None
    by_node = {node: partition for partition, node in holder.items()}
    return [by_node[node] for node in range(len(options))]


def _end(entries: Sequence[Entry]) -> int:
    return entries[-1].offset + entries[-1].size
