"""What the tasks of predict() run: a model in Spark's own Python worker, Arrow in, Arrow out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.ahead import read_ahead
from sparktrain.data.arrow import make_block
from sparktrain.data.faults import BadRowError, Place
from sparktrain.data.nulls import find_nulls, has_nulls
from sparktrain.data.vectors import make_dense
from sparktrain.errors import ModelError, ScoringError
from sparktrain.scoring.asking import make_ask
from sparktrain.scoring.columns import TABLE
from sparktrain.scoring.flow import Answered, Asked, score
from sparktrain.scoring.place import TaskPlace, find_place
from sparktrain.scoring.plan import ScorePlan
from sparktrain.scoring.spec import ModelSource
from sparktrain.scoring.typed import make_columns


@dataclass(frozen=True)
class ScoreTask:
    """The callable given to mapInArrow.

    Args:
        keep: The columns of the rows that come back with the answers.
    """

    plan: ScorePlan
    keep: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [*self.keep, *self.plan.answers.names]
        for batch, arrays in answer(self.plan, batches):
            kept = [batch.column(name) for name in self.keep]
            yield pa.RecordBatch.from_arrays([*kept, *arrays], names=names)


def answer(
    plan: ScorePlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, list[pa.Array]]]:
    """Every batch with the columns that the model answers, also those without rows."""
    place = find_place()
    ask: Callable[[pa.RecordBatch], Answered] | None = None

    def ask_lazily(block: pa.RecordBatch) -> Answered:
        nonlocal ask
        if ask is None:  # a task without rows loads no model
            ask = make_ask(plan, place)
        return ask(block)

    def read(batch: pa.RecordBatch, first_row: int) -> Asked:
        return read_batch(plan, place, batch, first_row)

    # The next batch is on its way from Spark while the model answers one.
    with closing(read_ahead(batches)) as ahead:
        for batch, answered in score(ahead, read, ask_lazily, plan.batch_size):
            yield batch, make_columns(plan.answers, answered, batch.num_rows)


def read_batch(plan: ScorePlan, place: TaskPlace, batch: pa.RecordBatch, first_row: int) -> Asked:
    """The rows to ask about, checked and in the model's shapes."""
    names = [column.name for column in plan.inputs.columns]
    rows = make_dense(batch.select(names))
    here: np.ndarray[Any, Any] | None = None
    pairs = zip(plan.inputs.columns, rows.columns, strict=True)
    unfilled = [array for column, array in pairs if column.fill is None]
    if plan.leaves_nulls_out and any(has_nulls(array) for array in unfilled):
        is_null = np.zeros(rows.num_rows, bool)
        for array in unfilled:
            is_null |= find_nulls(array)
        here = np.flatnonzero(~is_null)
        rows = rows.take(pa.array(here))
    own = here if here is not None else np.arange(batch.num_rows)
    where = Place(TABLE, place.partition, first_row, is_scored=True, rows=own)
    try:
        return Asked(make_block(rows, plan.inputs.columns, where), here)
    except BadRowError as error:
        if not plan.answers.error_column:
            raise ScoringError(problem=str(error), advice=_ADVICE) from error
    good, reasons = _find_good(plan, rows, own, where)
    block = make_block(rows.take(pa.array(good, pa.int64())), plan.inputs.columns, where)
    return Asked(block, own[good], {int(own[row]): why for row, why in reasons.items()})


_ADVICE = "Rows that do not fit may have no answer instead: predict(..., on_error='null')."


def _find_good(
    plan: ScorePlan, rows: pa.RecordBatch, own: np.ndarray[Any, Any], where: Place
) -> tuple[np.ndarray[Any, Any], dict[int, str]]:
    """The rows that fit, and why others do not: halves are tried until single rows are left.

    Args:
        own: Where the rows are in their batch.
    """
    reasons: dict[int, str] = {}
    good: list[int] = []
    pending = [(0, rows.num_rows)]
    while pending:
        start, stop = pending.pop()
        try:
            here = replace(where, rows=own[start:stop])
            make_block(rows.slice(start, stop - start), plan.inputs.columns, here)
            good.extend(range(start, stop))
        except BadRowError as error:
            if stop - start == 1:
                reasons[start] = str(error)
                continue
            middle = (start + stop) // 2
            pending += [(middle, stop), (start, middle)]
    return np.array(good, np.int64), reasons


@dataclass(frozen=True)
class DescribeTask:
    """Loads a model where it will be used and tells what goes in and comes out, as JSON."""

    source: ModelSource

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # To the end: Spark gives up a worker that leaves rows unread, and with it the model.
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_pydict({"info": [self._describe()]})

    def _describe(self) -> str:
        from sparktrain.scoring.loading import load
        from sparktrain.scoring.place import prepare

        place = find_place()
        try:
            prepare(place)
            return json.dumps({"info": load(self.source, place.device).info.to_dict()})
        except ModelError as error:
            return json.dumps({"problem": error.problem, "advice": error.advice})
        except ImportError as error:
            return json.dumps(
                {
                    "problem": f"The executors cannot load it: {error}.",
                    "advice": "Install tensorflow or tensorflow-cpu for the Python of every"
                    " executor (PYSPARK_PYTHON).",
                }
            )
