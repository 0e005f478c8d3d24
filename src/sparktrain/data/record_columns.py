"""Record batches from blocks of records, with what cannot be read told or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparktrain.data.example_columns import Problems, make_column
from sparktrain.data.example_lists import gather
from sparktrain.data.example_scan import Block, scan
from sparktrain.data.record_blocks import HEAD


@dataclass(frozen=True)
class BadRecord:
    """A record that is whole but is not what was expected."""

    offset: int
    problem: str


def read_examples(
    block: Block, base: int, fields: Sequence[pa.Field]
) -> tuple[list[pa.Array], list[BadRecord]]:
    """The columns of a block of Examples, and its bad records, in which all is null."""
    spans, malformed = scan(block, [field.name for field in fields])
    problems = Problems()
    problems.add(np.flatnonzero(malformed), "it is no Example")
    columns = []
    for field in fields:
        column = make_column(block, field.name, spans[field.name], field.type, problems)
        if not field.nullable and column.null_count:
            rows = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            problems.add(rows, f"feature {field.name!r} is missing, and the column is not nullable")
        columns.append(column)
    if problems.by_row:
        is_good = np.ones(len(block), bool)
        is_good[list(problems.by_row)] = False
        chosen = pa.array(np.where(is_good, np.arange(len(block)), 0), mask=~is_good)
        columns = [column.take(chosen) for column in columns]
    return columns, [
        BadRecord(base + int(block.starts[row]) - HEAD.size, what)
        for row, what in sorted(problems.by_row.items())
    ]


def read_bytes(block: Block) -> pa.Array:
    """The records themselves."""
    return gather(block.data, block.starts, block.ends).cast(pa.binary())
