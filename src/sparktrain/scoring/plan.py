"""All that a scoring task is told, and the checks of it that need no DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.errors import ConfigError, ModelError
from sparktrain.scoring.columns import InputPlan, plan_inputs
from sparktrain.scoring.spec import ModelInfo, ModelSource, Pick

#: What becomes of rows that fail: the job fails with them, or they have no answer.
ERROR, NULL = "error", "null"
DEFAULT_BATCH = 512


@dataclass(frozen=True)
class Choices:
    """How rows are scored.

    Attributes:
        on_error: ERROR, or NULL for rows without an answer and the reason in error_column.
        nulls: ERROR, or NULL for no answer where a column of the model is null.
        fill, pad: What stands for null, and what arrays are padded with, by column.
        shapes: Declared for training; they say where the model leaves lengths open.
    """

    batch_size: int = DEFAULT_BATCH
    on_error: str = ERROR
    error_column: str = "error"
    nulls: str = ERROR
    fill: Mapping[str, Any] | None = None
    pad: Mapping[str, Any] | None = None
    shapes: Mapping[str, Sequence[int | None]] | None = None

    def __post_init__(self) -> None:
        for name, value in (("on_error", self.on_error), ("nulls", self.nulls)):
            if value not in (ERROR, NULL):
                raise ConfigError(
                    problem=f"predict() got {name}={value!r}.",
                    advice="Expected 'error' or 'null'.",
                )
        is_whole = isinstance(self.batch_size, (int, np.integer))
        is_count = is_whole and not isinstance(self.batch_size, bool)
        if not is_count or self.batch_size < 1:
            raise ConfigError(
                problem=f"predict() got batch_size={self.batch_size!r}.",
                advice="Expected a whole number of at least 1.",
            )
        object.__setattr__(self, "batch_size", int(self.batch_size))  # a plain one, for JSON


@dataclass(frozen=True)
class Answers:
    """The columns of the answers.

    Attributes:
        types: For each pick the type of its column.
        error_column: Where the reasons are of rows that failed; empty to fail with them.
    """

    picks: tuple[Pick, ...]
    types: tuple[pa.DataType, ...]
    error_column: str = ""

    @property
    def names(self) -> list[str]:
        names = [pick.column for pick in self.picks]
        return [*names, self.error_column] if self.error_column else names


@dataclass(frozen=True)
class ScorePlan:
    """What a task needs to know."""

    source: ModelSource
    inputs: InputPlan
    answers: Answers
    batch_size: int
    fixed_batch: int | None
    leaves_nulls_out: bool


def make_plan(
    fields: Sequence[Mapping[str, Any]],
    source: ModelSource,
    info: ModelInfo,
    feeds: Mapping[str, Sequence[str]],
    answers: Answers,
    choices: Choices,
) -> ScorePlan:
    """Checks the columns; raises SchemaError.

    Args:
        fields: Of Spark's schema, as JSON.
        feeds: For each input of the model its columns.
    """
    return ScorePlan(
        source=source,
        inputs=plan_inputs(fields, info, feeds, choices.fill, choices.pad, choices.shapes),
        answers=answers,
        batch_size=info.fixed_batch or choices.batch_size,
        fixed_batch=info.fixed_batch,
        leaves_nulls_out=choices.nulls == NULL,
    )


def check_outputs(model: str, picks: Sequence[Pick], info: ModelInfo) -> None:
    """Refuses outputs that the model does not have."""
    known = [one.name for one in info.outputs]
    for pick in picks:
        if pick.output not in known:
            raise ModelError(
                model=model,
                problem=f"It has no output {pick.output!r}.",
                advice=f"Its outputs are {', '.join(known)}.",
            )
