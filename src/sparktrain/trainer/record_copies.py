"""Copies of remote files, for TensorFlow to read: the next one is made while one is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sparktrain.data.ahead import read_ahead
from sparktrain.data.shards import Shard
from sparktrain.data.storage import is_local, naming, open_plain, open_store

_CHUNK = 1 << 22


def is_local_shard(shard: Shard, storage_options: Mapping[str, Any]) -> bool:
    """Whether TensorFlow can open the file by its path."""
    return is_local(open_store(shard.url, storage_options)[0])


def copy_ahead(shards: Sequence[Shard], storage_options: Mapping[str, Any]) -> Iterator[str]:
    """A local path for each shard; local files are not copied.

    Copies are decompressed on the way, lie in a private folder, and go when the next one is
    asked for. The folder goes with the generator.
    """
    # mkdtemp: nobody else may enter.
    folder = Path(tempfile.mkdtemp(prefix="sparktrain-records-"))
    try:
        with closing(read_ahead(_copy_all(shards, storage_options, folder))) as copies:
            for path in copies:
                yield str(path)
                if path.parent == folder:
                    path.unlink(missing_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_all(
    shards: Sequence[Shard], storage_options: Mapping[str, Any], folder: Path
) -> Iterator[Path]:
    for number, shard in enumerate(shards):
        filesystem, _ = open_store(shard.url, storage_options)
        if is_local(filesystem):
            yield Path(shard.path)
            continue
        target = folder / str(number)
        source = open_plain(filesystem, shard.path)
        with naming(shard.path), source as stream, target.open("wb") as copy:
            shutil.copyfileobj(stream, copy, _CHUNK)
        yield target
