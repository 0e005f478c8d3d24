"""Asks a model about the rows of a block; what fails is an error, or rows without an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.answers import to_arrow
from sparktrain.data.faults import BadRowError
from sparktrain.errors import ModelError, ScoringError
from sparktrain.scoring.columns import make_feeds
from sparktrain.scoring.flow import Answered, Values, merge
from sparktrain.scoring.loading import load
from sparktrain.scoring.place import TaskPlace, prepare
from sparktrain.scoring.plan import ScorePlan


def make_ask(plan: ScorePlan, place: TaskPlace) -> Callable[[pa.RecordBatch], Answered]:
    """Loads the model, or finds it loaded, and says how to ask it."""
    prepare(place)
    try:
        scorer = load(plan.source, place.device)
    except ModelError as error:
        raise ScoringError(problem=str(error), advice="") from error
    wanted = list(dict.fromkeys(pick.output for pick in plan.answers.picks))
    size = plan.fixed_batch

    def call(block: pa.RecordBatch) -> Values:
        feeds = make_feeds(block, plan.inputs)
        if size is not None and block.num_rows < size:
            feeds = {name: _lengthen(value, size) for name, value in feeds.items()}
        found = scorer(feeds)
        return {name: _check(name, found, block.num_rows, size) for name in wanted}

    def ask(block: pa.RecordBatch) -> Answered:
        try:
            return Answered(block.num_rows, call(block))
        except ScoringError:
            raise
        except Exception as error:  # whatever the model raises
            is_row = isinstance(error, BadRowError)
            text = str(error).rstrip(".") if is_row else _describe(error)
            if not plan.answers.error_column:
                who = "Rows do not fit" if is_row else f"The model {plan.source.name!r} failed"
                raise ScoringError(
                    problem=f"{who}, among {block.num_rows} rows of partition"
                    f" {place.partition}: {text}.",
                    advice="Rows that fail may have no answer instead:"
                    " predict(..., on_error='null').",
                ) from error
            if block.num_rows == 1:
                return Answered(1, {}, np.arange(0), {0: text})
        half = block.num_rows // 2
        return merge([ask(block.slice(0, half)), ask(block.slice(half))])

    return ask


def _describe(error: Exception) -> str:
    """In one line: TensorFlow has the graph before what happened, and a traceback in between."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_NOISE)]
    return f"{type(error).__name__}: {(said or lines or [''])[0].rstrip('.:')}"


_NOISE = ("Graph execution error", "Detected at node", "File ", "<stack traces", "[[")


def _lengthen(value: Any, size: int) -> Any:
    """To a full batch, with the last row again: its answers are cut off."""
    return np.concatenate([value, np.repeat(value[-1:], size - len(value), axis=0)])


def _check(name: str, found: Mapping[str, Any], num_rows: int, size: int | None) -> Any:
    value = found[name]
    if hasattr(value, "nested_row_splits"):
        array = to_arrow(value, name)
        num_found = len(array)
    else:
        array = np.asarray(value)
        num_found = len(array) if array.ndim else 0
    if num_found != (size or num_rows):
        raise ScoringError(
            problem=f"The model answered {num_found} rows as {name!r} to {size or num_rows}.",
            advice="Expected one answer for each row; outputs={...} chooses among the outputs.",
        )
    return array[:num_rows] if size is not None else array
