"""Rows for validation: chosen by what is in them, so that a row that Spark computes again, on
another executor or in another order, is never on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.driver.tables import quote
from sparktrain.errors import SchemaError
from sparktrain.fit_spec import TRAIN, VALIDATION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How finely fractions are told apart.
PARTS = 1_000_000


def split(
    frame: DataFrame, validation: Any, names: Sequence[str], vectors: Sequence[str], seed: int
) -> tuple[DataFrame, DataFrame | None]:
    """The rows to train on, and those to validate with; None if that is not wished.

    Raises SchemaError where none of the rows is to validate with.

    Args:
        names: The columns that are fed: a row is known by them.
        vectors: Those of them that are vectors of Spark ML.
    """
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

    if validation is None or (isinstance(validation, float) and validation == 0):
        return frame, None
    if isinstance(validation, float):
        keys = [_hashable(name, name in vectors) for name in names]
        place = F.pmod(F.xxhash64(*keys, F.lit(seed)), F.lit(PARTS))
        limit = max(round(validation * PARTS), 1)
        return frame.filter(place >= limit), _check_some(frame.filter(place < limit), validation)
    if isinstance(validation, str):
        kinds = dict(frame.dtypes)
        if kinds.get(validation) != "boolean":
            found = kinds.get(validation)
            raise SchemaError(
                table=TRAIN,
                column=validation,
                problem="validation names it, but it "
                + ("is not there." if found is None else f"is {found}."),
                advice="Expected a boolean column, true for rows to validate with;"
                f" the columns are {', '.join(frame.columns)}.",
            )
        is_held_out = F.coalesce(F.col(quote(validation)), F.lit(False))
        return frame.filter(~is_held_out), _check_some(frame.filter(is_held_out), validation)
    return frame, validation


def _check_some(held_out: DataFrame, validation: Any) -> DataFrame:
    """By a small job: else it is found out when all have been fed."""
    from pyspark.sql import functions as F  # noqa: N812

    if not held_out.select(F.lit(1)).head(1):
        raise SchemaError(
            table=VALIDATION,
            column="",
            problem=f"There is no row: validation={validation!r} chose none.",
            advice="Give a larger fraction, another seed, or the name of a boolean column that is"
            " true for some rows.",
        )
    return held_out


def _hashable(name: str, is_vector: bool) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(quote(name))
    if not is_vector:
        return column
    from pyspark.ml.functions import vector_to_array

    return vector_to_array(column)
