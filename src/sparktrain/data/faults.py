"""What can be wrong with data, named where it is found: the file, or the row of a partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparktrain.data.schema import Column


class BadRowError(Exception):
    """A value that does not fit its column; the text names column, row and partition."""


class BadFileError(Exception):
    """A file that cannot be read; the text names it and says what to do."""


@dataclass(frozen=True)
class Place:
    """Where a batch comes from, for errors."""

    table: str
    partition: int
    first_row: int
    #: Whether the rows are scored: what can be declared then is less than for training.
    is_scored: bool = field(default=False, kw_only=True)
    #: Which rows of the batch these are, if some of it were left out; None for all.
    rows: np.ndarray[Any, Any] | None = field(default=None, kw_only=True)

    def refuse(self, column: Column, row: int, problem: str, advice: str) -> BadRowError:
        own = self.first_row + (row if self.rows is None else int(self.rows[row]))
        return BadRowError(
            f"column {column.name!r} of {self.table!r} {problem} in row {own} of"
            f" partition {self.partition} (both count from 0). {advice}"
        )
