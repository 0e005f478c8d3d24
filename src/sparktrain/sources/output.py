"""Writes rows into TFRecord files, of one task: by folder, compressed, of a limited length."""

from __future__ import annotations

import gzip
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, cast

import pyarrow as pa

from sparktrain.data.example_encode import (
    Pieces,
    encode_examples,
    encode_sequences,
    offsets_of,
)
from sparktrain.data.example_types import to_kind
from sparktrain.data.partition_folders import make_folder
from sparktrain.data.record_frames import frame_records
from sparktrain.data.vectors import count_values, is_vector
from sparktrain.errors import RecordError
from sparktrain.sources.options import BYTE_ARRAY, SEQUENCE, WriteOptions

#: So many files of a task are open at the same time, one for each folder. Rows that come in the
#: order of the folders need one.
MAX_OPEN = 64
#: About so much is encoded at once.
_STEP_BYTES = 8 << 20


class TaskOutput:
    """The files of one task.

    Args:
        options: What the files are like.
        open_file: Makes a file for a folder, which is empty or ends with a slash.
    """

    def __init__(self, options: WriteOptions, open_file: Callable[[str], Any]) -> None:
        self._options = options
        self._open_file = open_file
        #: By folder, the one that was used last at the end: the file, how to close it, its rows.
        self._open: OrderedDict[str, tuple[IO[bytes], ExitStack, int]] = OrderedDict()

    def __enter__(self) -> TaskOutput:
        return self

    def __exit__(self, *error: object) -> None:
        with ExitStack() as all_of_them:
            for _, stack, _ in self._open.values():
                all_of_them.push(stack)

    def write(self, batch: pa.RecordBatch) -> None:
        for folder, rows in split_folders(batch, self._options.partition_by):
            size = rows.nbytes + sum(
                4 * count_values(column) for column in rows.columns if is_vector(column.type)
            )
            step = max(_STEP_BYTES * rows.num_rows // max(size, 1), 1)
            at = 0
            while at < rows.num_rows:
                room = self._find_room(folder)
                part = rows.slice(at, min(step, room) if room else step)
                self._write_part(folder, part)
                at += part.num_rows

    def _find_room(self, folder: str) -> int:
        """How many more records its file may get; 0: any number. Ends a file that is full."""
        limit = self._options.max_records
        if limit and folder in self._open and self._open[folder][2] >= limit:
            self._open.pop(folder)[1].close()
        return limit - self._open[folder][2] if limit and folder in self._open else limit

    def _write_part(self, folder: str, rows: pa.RecordBatch) -> None:
        if folder not in self._open:
            if len(self._open) == MAX_OPEN:
                self._open.popitem(last=False)[1][1].close()
            stack = ExitStack()
            self._open[folder] = (stack.enter_context(self._open_file(folder)), stack, 0)
        file, stack, count = self._open[folder]
        file.write(frame_records(self._encode(rows)))
        self._open[folder] = (file, stack, count + rows.num_rows)
        self._open.move_to_end(folder)

    def _encode(self, rows: pa.RecordBatch) -> Pieces:
        if self._options.record_type == BYTE_ARRAY:
            records = rows.column(0).cast(pa.large_binary())
            if records.null_count:
                raise RecordError(
                    problem=f"Column {rows.schema.names[0]!r} is null in a row, and a record of"
                    " bytes cannot be.",
                    advice="Leave such rows out, or put b'' in their place.",
                )
            offsets = offsets_of(records)
            return Pieces((records,), offsets[1:] - offsets[:-1])
        names = rows.schema.names
        columns = [to_kind(name, column) for name, column in zip(names, rows.columns, strict=True)]
        encode = encode_sequences if self._options.record_type == SEQUENCE else encode_examples
        return encode(names, columns, rows.num_rows)


def split_folders(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by the folder they belong to, without its columns."""
    if not partition_by:
        yield "", batch
        return
    keys = [batch.column(name) for name in partition_by]
    inside = batch.select([name for name in batch.schema.names if name not in partition_by])
    table = pa.table({str(number): key for number, key in enumerate(keys)})
    groups = table.append_column("row", pa.array(range(batch.num_rows)))
    found = groups.group_by([str(number) for number in range(len(keys))])
    for group in found.aggregate([("row", "list")]).to_pylist():
        values = [group[str(number)] for number in range(len(keys))]
        folders = map(make_folder, partition_by, values)
        rows = pa.array(sorted(group["row_list"]), pa.int64())
        yield "".join(f"{folder}/" for folder in folders), inside.take(rows)


@contextmanager
def open_packed(filesystem: Any, path: str, compression: str) -> Iterator[IO[bytes]]:
    """A new file that compresses what is written into it."""
    with filesystem.open(path, "wb") as file:
        if compression == "gzip":
            # Without name and time: the same rows give the same bytes.
            with gzip.GzipFile("", "wb", 6, fileobj=file, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        elif compression == "zlib":
            deflated = _Deflated(file)
            yield cast(IO[bytes], deflated)
            deflated.finish()
        else:
            yield file


class _Deflated:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pack = zlib.compressobj()

    def write(self, data: Any) -> None:
        self._file.write(self._pack.compress(data))

    def finish(self) -> None:
        self._file.write(self._pack.flush())
