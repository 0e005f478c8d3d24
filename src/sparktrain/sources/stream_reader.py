"""Reads a folder as a stream: files that appear in it, each once, also across restarts.

Spark keeps one thing for a source, its offset, and writes it down before each batch. An offset
here has the files of its batch, and the digests of all files before them that are still there.
A batch that is tried again after a failure thus has the same files.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from sparktrain.data.listing import Listing, list_tree
from sparktrain.data.shards import FileInfo
from sparktrain.errors import RecordError
from sparktrain.sources.options import ReadOptions
from sparktrain.sources.reader import BatchReader, TaskInput

#: Two of so many files have the same digest of 12 bytes with a chance of one in 10**17.
_DIGEST_BYTES = 12


class RecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process beside the driver as long as the query; pickled into every task."""

    def __init__(self, options: ReadOptions, batches: BatchReader) -> None:
        self._options = options
        self._batches = batches
        #: With the trigger availableNow: what was there when the query began.
        self._available: frozenset[str] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {"batch": 0, "files": [], "seen": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        if self._options.max_trigger_files:
            return ReadMaxFiles(self._options.max_trigger_files)
        if self._options.max_trigger_bytes:
            return ReadMaxBytes(self._options.max_trigger_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        self._available = frozenset(_digest(entry[0]) for entry in self._list())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        entries = {_digest(entry[0]): entry for entry in self._list()}
        seen = _unpack(start["seen"]) | {_digest(info) for info, _ in _parse(start)}
        new = [
            entry
            for digest, entry in entries.items()
            if digest not in seen and (self._available is None or digest in self._available)
        ]
        chosen = choose(new, limit)
        if not chosen:
            return start
        return {
            "batch": start["batch"] + 1,
            "files": [[info.url, info.path, info.size, values] for info, values in chosen],
            # A file that is gone will not be found again.
            "seen": _pack(seen & entries.keys()),
        }

    def _list(self) -> Listing:
        return list_tree(self._options.paths, self._options.storage)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start["batch"] == end["batch"]:
            return []
        if start["batch"] + 1 != end["batch"]:
            raise RecordError(
                problem=f"Spark asks for files between batch {start['batch']} and"
                f" {end['batch']} of this source, of which some are not known any more.",
                advice="Begin the query with a new checkpoint location.",
            )
        return self._batches.plan(_parse(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskInput)  # noqa: S101 (for the type)
        return self._batches.read(partition)


def choose(new: Listing, limit: ReadLimit) -> Listing:
    """The files of the next batch; at least one, however large it is."""
    if isinstance(limit, ReadMaxFiles):
        return new[: limit.max_files]
    if isinstance(limit, ReadMaxBytes):
        total, count = 0, 0
        for info, _ in new:
            total += info.size
            if count and total > limit.max_bytes:
                break
            count += 1
        return new[:count]
    return new


def _parse(offset: dict[str, Any]) -> Listing:
    return [(FileInfo(url, path, size), values) for url, path, size, values in offset["files"]]


def _digest(info: FileInfo) -> str:
    raw = hashlib.blake2b(info.path.encode(), digest_size=_DIGEST_BYTES).digest()
    return base64.b64encode(raw).decode()


def _pack(digests: set[str]) -> str:
    return "".join(sorted(digests))


def _unpack(text: str) -> set[str]:
    size = 4 * _DIGEST_BYTES // 3
    return {text[at : at + size] for at in range(0, len(text), size)}
