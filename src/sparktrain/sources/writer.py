"""Writes TFRecord files for Spark, so that a job's files appear together or not at all.

Tasks write into a hidden folder of the job and say what they wrote. When all are done, the
driver moves these files to their places; what failed or was tried twice stays hidden, and goes.
"""

from __future__ import annotations

import gzip
import uuid
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparktrain.data.example_encode import encode_examples
from sparktrain.data.example_types import to_kind
from sparktrain.data.partition_folders import make_folder
from sparktrain.data.record_frames import frame_records
from sparktrain.data.storage import open_store
from sparktrain.sources.options import BYTE_ARRAY, WriteOptions

SUCCESS = "_SUCCESS"
#: How the folders begin that jobs write into.
_HIDDEN = "_sparktrain-"


@dataclass
class Written(WriterCommitMessage):
    """The files of one task: where they are now, and where they belong, below the path."""

    files: list[tuple[str, str]]


class RecordSourceWriter(DataSourceArrowWriter):
    """Spark pickles this into every task."""

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        #: Of this job alone: several may write into one folder at the same time.
        self._job = uuid.uuid4().hex[:12]

    @property
    def _hidden(self) -> str:
        return f"{_HIDDEN}{self._job}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        attempt = uuid.uuid4().hex[:8]
        number = context.partitionId() if context is not None else 0
        name = f"part-{number:05d}-{self._job}-{attempt}.tfrecord{self._options.extension}"
        filesystem, root = open_store(self._options.path, {})
        outputs: dict[str, IO[bytes]] = {}
        files = []
        with ExitStack() as stack:
            for batch in iterator:
                for folder, part in self._split(batch):
                    if folder not in outputs:
                        place = f"{folder}{name}"
                        hidden = f"{self._hidden}/{place.replace('/', '!')}"
                        filesystem.makedirs(f"{root}/{self._hidden}", exist_ok=True)
                        opened = _open(filesystem, f"{root}/{hidden}", self._options.compression)
                        outputs[folder] = stack.enter_context(opened)
                        files.append((hidden, place))
                    outputs[folder].write(self._encode(part))
        return Written(files)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows by the folder they belong to."""
        if not self._options.partition_by:
            yield "", batch
            return
        keys = [batch.column(name) for name in self._options.partition_by]
        inside = batch.select(
            [n for n in batch.schema.names if n not in self._options.partition_by]
        )
        table = pa.table({str(n): key for n, key in enumerate(keys)})
        groups = table.append_column("row", pa.array(range(batch.num_rows)))
        found = groups.group_by([str(n) for n in range(len(keys))]).aggregate([("row", "list")])
        for group in found.to_pylist():
            values = [group[str(number)] for number in range(len(keys))]
            folders = map(make_folder, self._options.partition_by, values)
            rows = pa.array(sorted(group["row_list"]), pa.int64())
            yield "".join(f"{folder}/" for folder in folders), inside.take(rows)

    def _encode(self, batch: pa.RecordBatch) -> memoryview:
        if self._options.record_type == BYTE_ARRAY:
            records = pc.fill_null(batch.column(0), b"").cast(pa.large_binary())
            return frame_records(records)
        names = batch.schema.names
        columns = [to_kind(name, batch.column(name)) for name in names]
        return frame_records(encode_examples(names, columns, batch.num_rows))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        filesystem, root = open_store(self._options.path, {})
        files = [
            file for message in messages if isinstance(message, Written) for file in message.files
        ]
        filesystem.makedirs(root, exist_ok=True)
        # What is replaced goes last: until then there are old files, new ones, or both.
        folders = {place.rpartition("/")[0] for _, place in files}
        old = self._find_old(filesystem, root, folders) if self._overwrite else []
        for folder in folders:
            filesystem.makedirs(f"{root}/{folder}".rstrip("/"), exist_ok=True)
        for hidden, place in files:
            filesystem.mv(f"{root}/{hidden}", f"{root}/{place}")
        for path in old:
            filesystem.rm(path)
        filesystem.touch(f"{root}/{SUCCESS}")
        self._remove_hidden(filesystem, root)

    def _find_old(self, filesystem: Any, root: str, folders: set[str]) -> list[str]:
        """Files to remove; those that other jobs are still writing are hidden."""
        if not self._options.only_touched:
            found = filesystem.find(root)
        else:
            found = [
                entry["name"]
                for folder in folders
                if filesystem.exists(f"{root}/{folder}".rstrip("/"))
                for entry in filesystem.ls(f"{root}/{folder}".rstrip("/"), detail=True)
                if entry["type"] != "directory"
            ]
        return [path for path in found if f"/{_HIDDEN}" not in path]

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        filesystem, root = open_store(self._options.path, {})
        self._remove_hidden(filesystem, root)

    def _remove_hidden(self, filesystem: Any, root: str) -> None:
        if filesystem.exists(f"{root}/{self._hidden}"):
            filesystem.rm(f"{root}/{self._hidden}", recursive=True)


@contextmanager
def _open(filesystem: Any, path: str, compression: str) -> Iterator[IO[bytes]]:
    with filesystem.open(path, "wb") as file:
        if compression == "gzip":
            # Without the time: the same rows give the same bytes.
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, compresslevel=6) as packed:
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
