"""CSV: from a file's first rows to fields, and from its text to blocks.

The text is cut into pieces at the ends of rows, found by counting quotes; Arrow parses a piece
on all cores. A piece with a bad row is halved until the row stands alone, so that good rows
cost nothing for the bad ones. Every worker that reads part i of n cuts the same pieces and
parses the i-th of n equal runs of rows of each: even, and right with quoted line ends and
compressed files, at the price of reading the whole file.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from sparktrain.data.arrow import make_block, stored_schema
from sparktrain.data.faults import BadFileError, BadRowError, Place
from sparktrain.data.files import ReadOptions
from sparktrain.data.parquet_file import ARROW_TYPES, spark_type
from sparktrain.data.schema import Column
from sparktrain.data.shards import Shard

#: Text in a piece: about 16 MB of values as numbers, enough for all cores.
PIECE_BYTES = 4 << 20
#: A row longer than that is taken for a quote that is never closed.
MAX_ROW_BYTES = 64 << 20
_GUESS_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass
class Tally:
    """What reading leaves behind besides blocks."""

    #: Rows left out by bad_rows="skip".
    num_skipped: int = 0


@dataclass(frozen=True)
class Piece:
    """Whole rows of text: where each one starts, where the last one ends, and on which line."""

    data: pa.Buffer
    starts: np.ndarray[Any, Any]
    end: int
    first_line: int
    has_wrapped: bool

    def __len__(self) -> int:
        return len(self.starts)

    def cut(self, first: int, last: int) -> pa.Buffer:
        end = self.end if last >= len(self) else int(self.starts[last])
        start = int(self.starts[first])
        return self.data.slice(start, end - start)

    def find_line(self, row: int) -> int:
        before = self.data.slice(0, int(self.starts[row])).to_pybytes()
        return self.first_line + int(before.count(b"\n"))


def cut_pieces(
    stream: IO[bytes], name: str, quote: str | None, piece_bytes: int
) -> Iterator[Piece]:
    """All rows of a file, the header among them, in pieces of about so many bytes."""
    left, line = b"", 1
    while True:
        more = stream.read(piece_bytes)
        data = left + more
        ends, has_wrapped = _find_ends(data, quote, is_last=not more)
        if len(ends):
            end = int(ends[-1])
            starts = np.concatenate([[0], ends[:-1]])
            yield Piece(pa.py_buffer(data), starts, end, line, has_wrapped)
            line += data.count(b"\n", 0, end)
            left = data[end:]
        else:
            left = data
        if not more:
            return
        if len(left) > MAX_ROW_BYTES:
            raise BadRowError(
                f"{name}, line {line}: the row has no end within {MAX_ROW_BYTES >> 20} MB; a quote"
                " is never closed. Fix the row, or give quote=None if quotes are ordinary"
                " characters."
            )


def _find_ends(data: bytes, quote: str | None, is_last: bool) -> tuple[np.ndarray[Any, Any], bool]:
    """Positions after each row, and whether a row goes over several lines."""
    signs = np.frombuffer(data, np.uint8)
    lines = np.flatnonzero(signs == ord("\n"))
    ends = lines
    if quote is not None and quote.encode() in data:
        quotes = np.flatnonzero(signs == ord(quote))
        ends = lines[np.searchsorted(quotes, lines) % 2 == 0]
    has_wrapped = len(ends) != len(lines)
    ends = ends + 1
    if is_last and len(data) and (not len(ends) or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    return ends, has_wrapped


def read_header(piece: Piece, options: ReadOptions) -> list[str]:
    """The names in the first row of a file."""
    text = piece.cut(0, 1).to_pybytes().removeprefix(_BOM).decode()
    quoting: Any = csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=options.delimiter,
        quotechar=options.quote,
        quoting=quoting,
    )
    return [name.strip() for name in next(rows)]


def guess_fields(
    stream: IO[bytes], name: str, options: ReadOptions
) -> tuple[list[dict[str, Any]], bool]:
    """The fields of a file with a header, and whether there were rows to guess types from."""
    for piece in cut_pieces(stream, name, options.quote, _GUESS_BYTES):
        names = read_header(piece, options)
        fields = dict.fromkeys(names, "string")
        text = piece.cut(1, len(piece)) if len(piece) > 1 else pa.py_buffer(b"")
        has_rows = bool(text.to_pybytes().strip())
        if has_rows:
            rows = pacsv.read_csv(
                pa.BufferReader(text),
                read_options=pacsv.ReadOptions(column_names=names),
                parse_options=_parse_options(options, piece.has_wrapped, lambda row: "skip"),
                convert_options=pacsv.ConvertOptions(null_values=[""], strings_can_be_null=True),
            )
            for field in rows.schema:
                kind = spark_type(field.type)
                # Empty in all first rows, or a time of day: text says it all.
                fields[field.name] = kind if kind in ARROW_TYPES else "string"
        return [{"name": one, "type": fields[one]} for one in names], has_rows
    return [], False


def read_csv(
    stream: IO[bytes],
    shard: Shard,
    options: ReadOptions,
    columns: Sequence[Column],
    tally: Tally,
) -> Iterator[pa.RecordBatch]:
    """The blocks of a shard of an open, decompressed file: one for each piece of text."""
    names = list(options.names)
    for piece in cut_pieces(stream, shard.path, options.quote, PIECE_BYTES):
        first = 0
        if piece.first_line == 1 and options.header:
            names, first = read_header(piece, options), 1
            _check_names(shard, names, [column.name for column in columns])
        num_rows = len(piece) - first
        start = first + num_rows * shard.part // shard.num_parts
        stop = first + num_rows * (shard.part + 1) // shard.num_parts
        if start < stop:
            reader = _Reader(piece, shard, options, columns, names, tally)
            blocks = [block for block in reader.read(start, stop) if block.num_rows]
            if len(blocks) == 1:
                yield blocks[0]
            elif blocks:
                yield from pa.Table.from_batches(blocks).combine_chunks().to_batches()


def _check_names(shard: Shard, known: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if known.count(name) != 1:
            raise BadFileError(
                f"{shard.path} has not exactly one column {name!r}; its header has"
                f" {', '.join(known)}. Write all files with one header, or give header=False and"
                " a schema if they have none."
            )


@dataclass(frozen=True)
class _RowPlace(Place):
    """For rows whose file and line the reader names itself."""

    def refuse(self, column: Column, row: int, problem: str, advice: str) -> BadRowError:
        return BadRowError(f"column {column.name!r} {problem.rstrip(',')}. {advice}")


@dataclass(frozen=True)
class _Reader:
    """Makes blocks of the rows of one piece."""

    piece: Piece
    shard: Shard
    options: ReadOptions
    columns: Sequence[Column]
    names: list[str]
    tally: Tally

    def read(self, first: int, last: int) -> list[pa.RecordBatch]:
        """Blocks of rows first to last; a row that stands alone is skipped or refused."""
        try:
            return [self._parse(first, last)]
        except (pa.ArrowInvalid, BadRowError) as error:
            if last - first > 1:
                middle = (first + last) // 2
                return self.read(first, middle) + self.read(middle, last)
            text = self.piece.cut(first, last).to_pybytes().removeprefix(_BOM).strip()
            if not text:
                return []
            if self.options.bad_rows == "skip":
                self.tally.num_skipped += 1
                return []
            raise BadRowError(
                f"{self.shard.path}, line {self.piece.find_line(first)}: {self._describe(error)}"
                f" The row is {text[:200].decode(errors='replace')!r}. Fix it, declare its columns"
                ' with schema={...} or defaults={...}, or leave such rows out with bad_rows="skip".'
            ) from error

    def _parse(self, first: int, last: int) -> pa.RecordBatch:
        skipped: list[int] = []

        def handle(row: Any) -> str:
            skipped.append(row.actual_columns)
            return self.options.bad_rows

        read_as = {column.name: _read_type(column) for column in self.columns}
        table = pacsv.read_csv(
            pa.BufferReader(self.piece.cut(first, last)),
            read_options=pacsv.ReadOptions(column_names=self.names),
            parse_options=_parse_options(self.options, self.piece.has_wrapped, handle),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(read_as),
                column_types=read_as,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        blocks = []
        for batch in table.combine_chunks().to_batches():
            arrays = [_finish(batch.column(column.name), column) for column in self.columns]
            finished = pa.RecordBatch.from_arrays(arrays, list(read_as))
            blocks.append(make_block(finished, self.columns, _RowPlace("", 0, 0)))
        # Only now: rows of a piece that fails are met again in its halves.
        self.tally.num_skipped += len(skipped)
        if len(blocks) == 1:
            return blocks[0]
        whole = pa.Table.from_batches(blocks, stored_schema(self.columns)).combine_chunks()
        return (whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)])[0]

    def _describe(self, error: Exception) -> str:
        """Arrow's words with the name of the column instead of its number."""

        def name(match: re.Match[str]) -> str:
            return f"column {self.names[int(match[1])]!r}"

        text = re.sub(r"In CSV column #(\d+)", name, str(error).replace("\n", "\\n"))
        return re.sub(r"(: )?Row #\d+", "", text).rstrip(".") + "."


def _parse_options(options: ReadOptions, has_wrapped: bool, handle: Any = None) -> Any:
    return pacsv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote or False,
        newlines_in_values=has_wrapped,
        invalid_row_handler=handle,
    )


def _read_type(column: Column) -> pa.DataType:
    # Times with and without a zone are told apart below, by their text.
    return pa.string() if column.kind == "timestamp" else ARROW_TYPES[column.kind]


def _finish(array: pa.Array, column: Column) -> pa.Array:
    if column.kind != "timestamp":
        return array
    try:
        return array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return array.cast(pa.timestamp("us", "UTC"))
