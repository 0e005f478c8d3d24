"""Finds, on the driver, what the files themselves have to tell about the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

import pyarrow.parquet as pq

from sparktrain.data.csv_file import cut_pieces, guess_fields, read_header
from sparktrain.data.files import Files, choose_columns
from sparktrain.data.parquet_file import find_fields
from sparktrain.data.schema import Column, needs_first_row, with_lengths
from sparktrain.data.shards import FileInfo
from sparktrain.data.storage import naming_early, open_plain, open_seekable, open_store
from sparktrain.errors import SchemaError

_HEADER_BYTES = 64 << 10


def find_columns(table: str, files: Files, infos: Sequence[FileInfo]) -> list[Column]:
    """The columns of listed files, with nothing left to find out.

    Opens the first file, and further ones up to the first row where that has to tell.

    Raises:
        SchemaError: A column is not there, has no tensor, or its length cannot be found.
        ConfigError: A file that had to be opened is broken.
    """
    fields = _find_fields(table, files, infos)
    columns = list(choose_columns(table, files, fields))
    unknown = needs_first_row(columns)
    if unknown:
        row = _find_first_row(table, files, infos, unknown)
        columns = [
            with_lengths(table, column, _measure(column, row[column.name]))
            if column.name in unknown
            else column
            for column in columns
        ]
    return columns


def _find_fields(
    table: str, files: Files, infos: Sequence[FileInfo]
) -> Sequence[Mapping[str, Any]]:
    if files.format == "tfrecord":
        return files.fields or ()
    fields: Sequence[Mapping[str, Any]] = files.fields or ()
    for info in infos:
        filesystem, _ = open_store(info.url, files.options.storage_options)
        with naming_early(info.path):
            if files.format == "parquet":
                with open_seekable(filesystem, info.path) as stored:
                    return find_fields(stored)
            with open_plain(filesystem, info.path) as stream:
                if files.fields is not None:
                    _check_header(table, files, info, stream)
                    return files.fields
                found, has_rows = guess_fields(stream, info.path, files.options)
        fields = fields or found
        # Spark writes files without rows for empty partitions: the next one may have some.
        if has_rows:
            return found
    return fields


def _check_header(table: str, files: Files, info: FileInfo, stream: IO[bytes]) -> None:
    if not files.options.header:
        return
    for piece in cut_pieces(stream, info.path, files.options.quote, _HEADER_BYTES):
        known = read_header(piece, files.options)
        for field in files.fields or ():
            if field["name"] not in known:
                raise SchemaError(
                    table=table,
                    column=str(field["name"]),
                    problem=f"The schema names it, but {info.path} has no such column.",
                    advice=f"Its header has {', '.join(known)}; give header=False if that is"
                    " no header.",
                )
        return


def _find_first_row(
    table: str, files: Files, infos: Sequence[FileInfo], names: list[str]
) -> Mapping[str, Any]:
    for info in infos:
        filesystem, _ = open_store(info.url, files.options.storage_options)
        with naming_early(info.path), open_seekable(filesystem, info.path) as stored:
            for batch in pq.ParquetFile(stored).iter_batches(1, columns=names):
                if batch.num_rows:
                    return dict(batch.to_pylist()[0])
    raise SchemaError(
        table=table,
        column=names[0],
        problem="Its length was to be found from the first row, but there is none.",
        advice=f"Declare it: shapes={{{names[0]!r}: (3,)}}, or (None,) if lengths vary.",
    )


def _measure(column: Column, value: Any) -> list[int]:
    """The lengths of the nested arrays of one row; 0 where there is nothing to measure."""
    lengths = []
    for _ in range(column.depth):
        lengths.append(len(value) if value is not None else 0)
        value = value[0] if value else None
    return lengths
