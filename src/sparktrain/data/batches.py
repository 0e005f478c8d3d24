"""Cuts blocks into batches of one size, where TensorFlow cannot do it itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def cut(
    blocks: Iterable[pa.RecordBatch], batch_size: int, drop_remainder: bool
) -> Iterator[pa.RecordBatch]:
    """Batches of exactly batch_size rows, but for the last one."""
    held: list[pa.RecordBatch] = []
    num_held = 0
    for block in blocks:
        start = 0
        while start < block.num_rows:
            piece = block.slice(start, batch_size - num_held)
            held.append(piece)
            num_held += piece.num_rows
            start += piece.num_rows
            if num_held == batch_size:
                yield join(held)
                held, num_held = [], 0
    if held and not drop_remainder:
        yield join(held)


def join(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
