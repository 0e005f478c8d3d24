"""Reads shards of CSV and Parquet files into stored blocks, ahead of whoever uses them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa

from sparktrain.data.ahead import read_ahead
from sparktrain.data.csv_file import Tally, read_csv
from sparktrain.data.files import ReadOptions
from sparktrain.data.parquet_file import read_parquet
from sparktrain.data.schema import Column
from sparktrain.data.shards import Shard
from sparktrain.data.storage import naming, open_plain, open_seekable, open_store

#: A block has at most so many rows, and about so many bytes.
BLOCK_ROWS = 10_000
BLOCK_BYTES = 16 << 20


def read_blocks(
    shards: Sequence[Shard],
    options: ReadOptions,
    columns: Sequence[Column],
    order: Sequence[int],
    *,
    tally: Tally | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """The blocks of the shards, in the given order of shards; one is read ahead in a thread.

    Closing the generator early closes the file and ends the thread.

    Args:
        shards: What this worker reads.
        options: How to read it.
        columns: Which columns, with nothing left to find out about them.
        order: Positions in shards, as from file_order().
        tally: Counts the rows that were skipped, if anybody wants to know.

    Raises:
        BadFileError: A file is broken or gone.
        BadRowError: A value does not fit its column.
    """
    return read_ahead(_read_all(shards, options, columns, order, tally or Tally()))


def _read_all(
    shards: Sequence[Shard],
    options: ReadOptions,
    columns: Sequence[Column],
    order: Sequence[int],
    tally: Tally,
) -> Iterator[pa.RecordBatch]:
    for position in order:
        shard = shards[position]
        with naming(shard.path):
            for block in _read(shard, options, columns, tally):
                yield from _cut(block)


def _read(
    shard: Shard, options: ReadOptions, columns: Sequence[Column], tally: Tally
) -> Iterator[pa.RecordBatch]:
    filesystem, _ = open_store(shard.url, options.storage_options)
    if options.format == "parquet":
        with open_seekable(filesystem, shard.path) as stored:
            yield from read_parquet(stored, shard, columns, (BLOCK_ROWS, BLOCK_BYTES))
    else:
        with open_plain(filesystem, shard.path) as stream:
            yield from read_csv(stream, shard, options, columns, tally)


def _cut(block: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A block in pieces of the right size; they look at the same memory."""
    num_rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES * block.num_rows // max(block.nbytes, 1)))
    for first in range(0, block.num_rows, num_rows):
        yield block.slice(first, num_rows)
