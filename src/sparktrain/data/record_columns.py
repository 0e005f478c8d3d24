"""Record batches from blocks of records, with what cannot be read told or left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.example_columns import Problems, make_column
from sparktrain.data.example_encode import is_nested
from sparktrain.data.example_lists import gather
from sparktrain.data.example_scan import Scanner
from sparktrain.data.record_blocks import Block


class ExampleReader:
    """Makes columns of one block of records after the other.

    Args:
        fields: The columns, by the names of features.
    """

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._fields = fields
        self._scanner = Scanner([field.name for field in fields])

    def read(self, block: Block) -> tuple[list[pa.Array], dict[int, str]]:
        """The columns of a block, and what is wrong with its bad rows, in which all is null."""
        scanned = self._scanner.scan(block)
        problems = Problems()
        problems.add(np.flatnonzero(scanned.malformed), "it is no Example")
        columns = []
        for field in self._fields:
            column = make_column(block, field.name, scanned, field.type, problems)
            if not field.nullable and column.null_count:
                rows = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
                what = f"feature {field.name!r} is missing, and the column is not nullable"
                problems.add(rows, what)
            if is_nested(field.type) and not field.type.value_field.nullable:
                what = f"feature {field.name!r} has a feature of no kind, and may have none"
                problems.add(_find_inner_nulls(column), what)
            columns.append(column)
        if problems.by_row:
            is_good = np.ones(len(block), bool)
            is_good[list(problems.by_row)] = False
            chosen = pa.array(np.where(is_good, np.arange(len(block)), 0), mask=~is_good)
            columns = [column.take(chosen) for column in columns]
        return columns, problems.by_row


def _find_inner_nulls(column: pa.ListArray) -> Any:
    """The rows whose arrays have a null in them."""
    is_null = column.values.is_null().to_numpy(zero_copy_only=False)
    counts = np.concatenate([[0], np.cumsum(is_null)])[column.offsets.to_numpy()]
    return np.flatnonzero(np.diff(counts))


def read_bytes(block: Block) -> pa.Array:
    """The records themselves."""
    return gather(block.data, block.starts, block.ends).cast(pa.binary())
