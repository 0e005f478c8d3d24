"""The spill: blocks of a table in a local file, written once and read many times.

A spill is a log. One process appends, others read any block that is complete, while more is
being written. Each block is an Arrow stream of its own that begins near the start of a page, so
that it can be written past the page cache: filling the cache costs more than all the rest of
the way in, and a block that the trainer was handed is not read again before the next epoch.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

PAGE_BYTES = 4096
#: A disk that is slower than this, in bytes a second, is written through the cache: that takes
#: the peaks. And by how many bytes a disk is judged.
SLOW_DISK, JUDGED_BYTES = 200e6, 64 << 20
#: TensorFlow takes values that begin at such an address as they are, and copies others.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Entry:
    """Where a block is in its file."""

    offset: int
    size: int
    rows: int


class SpillError(Exception):
    """The spill cannot be written or is not what was written; the text says where and why."""


class SpillWriter:
    """Appends blocks to a new file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._schema_bytes = schema.serialize().size
        self._end = 0
        #: Bytes in front of a block that bring its values to a good address; the first one tells.
        self._lead: int | None = None
        self._own = mmap.mmap(-1, PAGE_BYTES)
        self._direct_bytes, self._direct_s = 0, 0.0
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise SpillError(explain(path, error)) from error
        self._direct: int | None = None
        # Not every system and file system writes past its cache.
        with contextlib.suppress(OSError, AttributeError):
            self._direct = os.open(path, os.O_WRONLY | os.O_DIRECT)

    def find_size(self, block: pa.RecordBatch) -> int:
        """How many bytes of memory append() needs for a block."""
        size = self._schema_bytes + pa.ipc.get_record_batch_size(block)
        return _round_up(size + _ALIGNMENT)

    def append(self, block: pa.RecordBatch) -> Entry:
        """Writes a block; once this returns, any process can read it."""
        size = self.find_size(block)
        if len(self._own) < size:
            self._own = mmap.mmap(-1, size)
        memory = memoryview(self._own)
        entry = self.place(block, memory)
        self._write(entry, memory, past_cache=False)
        return entry

    def place(self, block: pa.RecordBatch, memory: memoryview) -> Entry:
        """Puts a block together in memory, at the entry's place within a page; writes nothing."""
        lead = self._lead or 0
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory[lead:]))
        pa.ipc.new_stream(sink, self._schema).write_batch(block)
        size = sink.tell()
        if self._lead is None and block.num_rows:
            self._lead = _find_lead(memory[:size])
        entry = Entry(self._end + lead, size, block.num_rows)
        self._end += _round_up(lead + size)
        return entry

    def write(self, entry: Entry, memory: memoryview) -> None:
        """Writes a block that has its place, past the page cache. From one thread at a time."""
        self._write(entry, memory, past_cache=True)

    def close(self) -> None:
        try:
            os.close(self._file)
        except OSError as error:
            raise SpillError(explain(self._path, error)) from error
        finally:
            self._stop_direct()

    def _write(self, entry: Entry, memory: memoryview, past_cache: bool) -> None:
        began, done = time.monotonic(), 0
        lead = entry.offset % PAGE_BYTES
        start, size = entry.offset - lead, lead + entry.size
        while done < size:
            # Whole pages only: the rest of one that was cut short goes through the cache.
            direct = self._direct if past_cache and done % PAGE_BYTES == 0 else None
            last = size if direct is None else _round_up(size)
            target = self._file if direct is None else direct
            try:
                done += os.pwrite(target, memory[done:last], start + done)
            except OSError as error:
                if direct is None or error.errno != errno.EINVAL:
                    raise SpillError(explain(self._path, error)) from error
                self._stop_direct()  # a file system that only seemed to be able to
        if past_cache and self._direct is not None:
            self._judge(size, time.monotonic() - began)

    def _judge(self, size: int, seconds: float) -> None:
        self._direct_bytes += size
        self._direct_s += seconds
        is_slow = self._direct_bytes < SLOW_DISK * self._direct_s
        if is_slow and self._direct_bytes >= JUDGED_BYTES:
            self._stop_direct()

    def _stop_direct(self) -> None:
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None


def read_block(buffer: pa.Buffer) -> pa.RecordBatch:
    """The block in these bytes; looks at them, copies nothing."""
    return pa.ipc.open_stream(buffer).read_next_batch()


class SpillReader:
    """Reads blocks of a file, which may still be growing. For many threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)

    def read(self, entry: Entry) -> pa.RecordBatch:
        # Read, not mapped: it costs the same, and a file that was cut is an error, not a signal.
        # A little further back than it must: so that the values begin at the same good address.
        lead = entry.offset % PAGE_BYTES
        buffer = pa.allocate_buffer(lead + entry.size)
        view = memoryview(buffer)
        done = lead
        while done < lead + entry.size:
            count = os.preadv(self._descriptor, [view[done:]], entry.offset - lead + done)
            if count == 0:
                raise SpillError(
                    f"the spill {self._path} ends at byte {entry.offset - lead + done}, but a block"
                    f" up to byte {entry.offset + entry.size} was written: somebody has changed it"
                )
            done += count
        return read_block(buffer.slice(lead))

    def close(self) -> None:
        os.close(self._descriptor)


def _find_lead(written: memoryview) -> int:
    """How far the first values of a block are from the next good address."""
    block = read_block(pa.py_buffer(written))
    addresses: list[int] = [
        buffer.address for array in block.columns for buffer in array.buffers() if buffer
    ]
    return -min(addresses) % _ALIGNMENT


def _round_up(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def explain(path: Path, error: OSError) -> str:
    free = ""
    for folder in (path, *path.parents):
        if folder.exists():
            free = f" ({shutil.disk_usage(folder).free / 1e9:.1f} GB are free there)"
            break
    return (
        f"the spill {path} cannot be written: {error}{free}. Give Spark's local folders more room,"
        " or set spark.sparktrain.spillDir to a folder that has it"
    )
