"""predict_udf(): a function of select() and SQL that scores columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparktrain.driver.scores import find_answers, make_fields
from sparktrain.errors import ConfigError, ModelError
from sparktrain.scoring.plan import Choices
from sparktrain.scoring.spec import ModelInfo, ModelSource, Pick
from sparktrain.scoring.udf import ColumnScorer


def make_udf(
    source: ModelSource,
    info: ModelInfo,
    inputs: Sequence[str] | None,
    picks: Sequence[Pick],
    choices: Choices,
) -> Any:
    """The function, ready for select() and spark.udf.register()."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructField, StructType

    if not hasattr(F, "arrow_udf"):
        raise ConfigError(
            problem="This pyspark has no functions that take Arrow data.",
            advice="Expected pyspark 4.1 or later; sparktrain.predict(df, ...) works with 4.0.",
        )
    known = [one.name for one in info.inputs]
    names = tuple(inputs) if inputs is not None else tuple(known)
    if sorted(names) != sorted(known):
        raise ModelError(
            model=source.name,
            problem=f"inputs names {', '.join(names)}.",
            advice=f"Expected its inputs in the order of the arguments: {', '.join(known)}.",
        )
    answers = find_answers(source, info, picks, choices)
    # Without metadata: Spark takes a struct with it for another type than the answers have.
    fields = [StructField(field.name, field.dataType) for field in make_fields(answers, info)]
    is_struct = len(fields) > 1
    scorer = ColumnScorer(source, info, names, answers, choices, is_struct)
    kind = StructType(fields) if is_struct else fields[0].dataType

    def score(arguments: Any) -> Any:
        return scorer(arguments)

    # pyspark tells kinds of functions by their annotations, which must not be texts.
    score.__annotations__ = {
        "arguments": Iterator[tuple[pa.Array, ...]],
        "return": Iterator[pa.Array],
    }
    return F.arrow_udf(score, kind)
