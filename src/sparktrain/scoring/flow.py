"""From Arrow batches to answers: model batches cross Arrow batches, answers come back by them.

Knows neither Spark nor TensorFlow: how rows are read and how a model is asked is given to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.answers import to_arrow
from sparktrain.data.batches import join

Values = dict[str, Any]


@dataclass
class Asked:
    """An Arrow batch as the model is asked about it.

    Attributes:
        block: The rows to ask about.
        rows: Which rows of the batch these are; None for all.
        reasons: Why others are not asked about, by row.
    """

    block: pa.RecordBatch
    rows: np.ndarray[Any, Any] | None = None
    reasons: dict[int, str] = field(default_factory=dict)


@dataclass
class Answered:
    """What the model said about some rows.

    Attributes:
        values: For each output the answers, of the rows that have one.
        good: Which rows these are; None for all.
        reasons: Why others have none, by row.
    """

    num_rows: int
    values: Values
    good: np.ndarray[Any, Any] | None = None
    reasons: dict[int, str] = field(default_factory=dict)

    def slice(self, start: int, stop: int) -> Answered:
        reasons = {row - start: why for row, why in self.reasons.items() if start <= row < stop}
        if self.good is None:
            values = {name: value[start:stop] for name, value in self.values.items()}
            return Answered(stop - start, values, None, reasons)
        low, high = np.searchsorted(self.good, [start, stop])
        values = {name: value[low:high] for name, value in self.values.items()}
        return Answered(stop - start, values, self.good[low:high] - start, reasons)


def merge(pieces: list[Answered]) -> Answered:
    """The answers to rows that follow each other."""
    if len(pieces) == 1:
        return pieces[0]
    reasons: dict[int, str] = {}
    good: list[np.ndarray[Any, Any]] = []
    start = 0
    for piece in pieces:
        reasons.update({row + start: why for row, why in piece.reasons.items()})
        own = piece.good if piece.good is not None else np.arange(piece.num_rows)
        good.append(own + start)
        start += piece.num_rows
    filled = [piece.values for piece in pieces if piece.values]
    values = {name: _concat([one[name] for one in filled]) for name in filled[0]} if filled else {}
    is_all = all(piece.good is None for piece in pieces)
    return Answered(start, values, None if is_all else np.concatenate(good), reasons)


def _concat(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if not isinstance(parts[0], pa.Array) and len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)
    # Lengths of answers may follow those of a batch: as lists they go together.
    arrays = [to_arrow(part, "") if isinstance(part, np.ndarray) else part for part in parts]
    # A piece of empty lists only does not know what they are lists of.
    known = next((one.type for one in arrays if "null" not in str(one.type)), arrays[0].type)
    return pa.concat_arrays([one.cast(known) for one in arrays])


@dataclass
class _Held:
    """An Arrow batch that waits for its answers."""

    batch: pa.RecordBatch
    asked: Asked
    pieces: list[Answered] = field(default_factory=list)
    num_answered: int = 0

    @property
    def num_missing(self) -> int:
        return int(self.asked.block.num_rows) - self.num_answered

    def finish(self) -> Answered:
        """The answers by rows of the batch."""
        asked = self.asked
        if asked.rows is None:
            return merge(self.pieces) if self.pieces else Answered(0, {})
        found = merge(self.pieces) if self.pieces else Answered(0, {}, np.arange(0))
        own = found.good if found.good is not None else np.arange(found.num_rows)
        reasons = {int(asked.rows[row]): why for row, why in found.reasons.items()}
        return Answered(
            self.batch.num_rows, found.values, asked.rows[own], {**asked.reasons, **reasons}
        )


def score(
    batches: Iterable[pa.RecordBatch],
    read: Callable[[pa.RecordBatch, int], Asked],
    ask: Callable[[pa.RecordBatch], Answered],
    batch_size: int,
) -> Iterator[tuple[pa.RecordBatch, Answered]]:
    """Every batch with its answers, in order; the model is asked about batch_size rows at once.

    Args:
        read: What to ask about a batch; told how many rows came before it.
        ask: Answers the rows of a block.
    """
    held: deque[_Held] = deque()
    pending: deque[pa.RecordBatch] = deque()
    num_pending = 0
    first_row = 0

    def ask_about(count: int) -> None:
        nonlocal num_pending
        answered = ask(_take(pending, count))
        num_pending -= count
        start = 0
        for one in held:
            if start == count:
                break
            own = min(one.num_missing, count - start)
            if own:
                one.pieces.append(answered.slice(start, start + own))
                one.num_answered += own
                start += own

    for batch in batches:
        asked = read(batch, first_row)
        first_row += batch.num_rows
        held.append(_Held(batch, asked))
        if asked.block.num_rows:
            pending.append(asked.block)
            num_pending += asked.block.num_rows
        while num_pending >= batch_size:
            ask_about(batch_size)
        while held and not held[0].num_missing:
            done = held.popleft()
            yield done.batch, done.finish()
    if num_pending:
        ask_about(num_pending)
    while held:
        done = held.popleft()
        yield done.batch, done.finish()


def _take(pending: deque[pa.RecordBatch], count: int) -> pa.RecordBatch:
    """The first rows of the blocks that wait, as one."""
    pieces = []
    while count:
        block = pending.popleft()
        if block.num_rows > count:
            pending.appendleft(block.slice(count))
            block = block.slice(0, count)
        pieces.append(block)
        count -= block.num_rows
    return join(pieces)
