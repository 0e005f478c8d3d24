"""What a scoring function of SQL runs: arrays of arguments in, one array of answers out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sparktrain.data.parquet_file import spark_type
from sparktrain.data.vectors import make_dense
from sparktrain.errors import ScoringError
from sparktrain.scoring.plan import Answers, Choices, make_plan
from sparktrain.scoring.spec import ModelInfo, ModelSource
from sparktrain.scoring.task import answer


@dataclass(frozen=True)
class ColumnScorer:
    """Takes an iterator of the arguments of batches, as pyspark gives them.

    Args:
        names: The inputs of the model, in the order of the arguments.
        is_struct: Whether the answers are fields of a struct.
    """

    source: ModelSource
    info: ModelInfo
    names: tuple[str, ...]
    answers: Answers
    choices: Choices
    is_struct: bool

    def __call__(self, arguments: Iterator[Any]) -> Iterator[pa.Array]:
        batches = (_to_batch(one) for one in arguments)
        first = next(batches, None)
        if first is None:
            return
        # The types of arguments are known here only.
        columns = first.schema.names
        choices = replace(self.choices, pad=self._pad(first))
        feeds = self._feed(columns)
        plan = make_plan(find_fields(first), self.source, self.info, feeds, self.answers, choices)

        def again() -> Iterator[pa.RecordBatch]:
            yield first
            yield from batches

        for _, arrays in answer(plan, again()):
            if self.is_struct:
                yield pa.StructArray.from_arrays(arrays, names=self.answers.names)
            else:
                yield arrays[0]

    def _pad(self, batch: pa.RecordBatch) -> dict[str, Any] | None:
        """One value for all arguments that are arrays."""
        pad = (self.choices.pad or {}).get("")
        fields = find_fields(batch)
        arrays = [field["name"] for field in fields if isinstance(field["type"], dict)]
        return None if pad is None else dict.fromkeys(arrays, pad)

    def _feed(self, columns: list[str]) -> dict[str, list[str]]:
        if len(self.names) == 1:
            return {self.names[0]: columns}
        if len(columns) != len(self.names):
            raise ScoringError(
                problem=f"The function got {len(columns)} columns.",
                advice=f"Expected one for each input of the model: {', '.join(self.names)}.",
            )
        return {name: [column] for name, column in zip(self.names, columns, strict=True)}


def _to_batch(arguments: Any) -> pa.RecordBatch:
    arrays = list(arguments) if isinstance(arguments, tuple) else [arguments]
    names = [f"argument {number + 1}" for number in range(len(arrays))]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def find_fields(batch: pa.RecordBatch) -> list[Any]:
    """As Spark's schema has them in JSON."""
    schema = make_dense(batch).schema
    return [{"name": field.name, "type": spark_type(field.type)} for field in schema]
