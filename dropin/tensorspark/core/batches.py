"""From the rows of a partition to mini-batches, one array for each placeholder."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparktrain.agent.failure import NodeFailureError
from sparktrain.spec import Failure


@dataclass(frozen=True)
class Batches:
    """Called by Spark with each partition, for rdd.mapPartitionsWithIndex().

    Args:
        told: Goes with every batch: what the worker is to do with it.
        names, dtypes: Of the placeholders; None for a type that numpy finds itself.
        batch_size: Rows of a batch; the last one of a partition may be shorter.
        seed: Shuffles each partition; None leaves the rows in their order.
    """

    told: Any
    names: tuple[str, ...]
    dtypes: tuple[str | None, ...]
    batch_size: int
    seed: int | None = None

    def __call__(self, partition: int, rows: Iterable[Any]) -> Iterator[tuple[Any, list[Any]]]:
        if self.seed is not None:
            # The same order if Spark tries the task again: rows that came already are not sent.
            mixed = list(rows)
            random.Random(f"{self.seed}-{partition}").shuffle(mixed)
            rows = mixed
        rows = iter(rows)
        while some := list(itertools.islice(rows, self.batch_size)):
            yield self.told, self._stack(some, partition)

    def _stack(self, rows: Sequence[Any], partition: int) -> list[Any]:
        for row in rows:
            count = len(row) if isinstance(row, (tuple, list)) else None
            if count != len(self.names):
                what = f"{count} values" if count is not None else f"a {type(row).__name__}"
                raise _fail(
                    f"a row of partition {partition} is {what}, expected a tuple of"
                    f" {len(self.names)}: one value for each of {', '.join(self.names)}"
                )
        found = []
        for place, (name, dtype) in enumerate(zip(self.names, self.dtypes, strict=True)):
            try:
                found.append(np.asarray([row[place] for row in rows], dtype))
            except (TypeError, ValueError) as error:
                raise _fail(
                    f"the values for {name} in partition {partition} do not make an array of"
                    f" {dtype or 'any type'}: {error}. Expected values of one shape"
                ) from error
        return found


def _fail(what: str) -> NodeFailureError:
    return NodeFailureError(Failure("the feed", "", "data", what))
