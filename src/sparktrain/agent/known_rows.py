"""Rows that an earlier attempt of a task brought: seen to be the same, and left out.

The trainer keeps, for rows that came together, how many they were and a fingerprint. An attempt
that Spark repeats computes the rows again, and compares before it goes on behind them: where a
shuffle stands before the task, the same rows may come in another order, and to skip as many as
came before would lose some and bring others twice.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from sparktrain.agent.failure import NodeFailureError
from sparktrain.data.batches import join
from sparktrain.data.faults import Place
from sparktrain.spec import Failure

#: Rows of a block that are looked at, spread over it: all of a small one.
SAMPLE_ROWS = 1024
#: How many rows came together, and their fingerprint.
Mark = tuple[int, int]


def fingerprint(block: pa.RecordBatch) -> int:
    """The same for the same rows in the same order, however they were cut before."""
    step = -(-block.num_rows // SAMPLE_ROWS) or 1
    # Copies, so that what else is in the buffers does not count.
    sample = block.take(pa.array(np.arange(0, block.num_rows, step)))
    return zlib.crc32(sample.serialize(), block.num_rows)


def leave_out(
    blocks: Iterable[pa.RecordBatch], known: Sequence[Mark], place: Place
) -> Iterator[pa.RecordBatch]:
    """The blocks behind those that are known; raises if the known ones are others."""
    source = iter(blocks)
    rest: pa.RecordBatch | None = None
    done = 0
    for count, mark in known:
        pieces: list[pa.RecordBatch] = []
        missing = count
        while missing:
            block = rest if rest is not None else next(source, None)
            if block is None:
                raise differ(place, done)
            piece, rest = block.slice(0, missing), block.slice(missing)
            rest = rest if rest.num_rows else None
            pieces.append(piece)
            missing -= piece.num_rows
        if pieces and fingerprint(join(pieces)) != mark:
            raise differ(place, done)
        done += count
    yield from source if rest is None else itertools.chain([rest], source)


def differ(place: Place, done: int) -> NodeFailureError:
    what = (
        f"partition {place.partition} of {place.table!r} came in another order when Spark tried"
        f" its task again: rows from number {done} on are not those that were brought before."
        " Going on would lose rows and bring others twice. Feed rows whose order is certain:"
        " df.sortWithinPartitions(...) behind a join or repartition, or df.persist() before"
    )
    return NodeFailureError(Failure("the feed", "", "data", what))
