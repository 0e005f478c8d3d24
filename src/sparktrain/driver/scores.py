"""predict(): a lazy DataFrame whose tasks score rows. What can be refused is refused here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.driver.score_types import fit_type, parse_type
from sparktrain.errors import ConfigError, ModelError
from sparktrain.scoring.plan import (
    DEFAULT_BATCH,
    ERROR,
    NULL,
    Answers,
    Choices,
    check_outputs,
    make_plan,
)
from sparktrain.scoring.spec import AS_IS, ModelInfo, ModelSource, Pick
from sparktrain.scoring.task import DescribeTask, ScoreTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Under which the shape of a column of arrays is kept in the DataFrame's schema.
SHAPE_KEY = "sparktrain.shape"
#: A message of Spark Connect has 128 MB at most.
CONNECT_BYTES = 100 * 1024 * 1024


def describe_model(spark: SparkSession, source: ModelSource) -> ModelInfo:
    """Has a worker load the model and tell; the worker keeps it. Raises ModelError."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(DescribeTask(source), "info string").collect()
    found = json.loads(rows[0]["info"])
    if "info" not in found:
        raise ModelError(model=source.name, problem=found["problem"], advice=found["advice"])
    return ModelInfo.from_dict(found["info"])


def score_frame(
    frame: DataFrame,
    source: ModelSource,
    info: ModelInfo,
    *,
    feeds: Mapping[str, Sequence[str]],
    picks: Sequence[Pick],
    keep: Sequence[str] | None = None,
    batch_size: int = DEFAULT_BATCH,
    on_error: str = ERROR,
    error_column: str = "error",
    nulls: str = ERROR,
    fill: Mapping[str, Any] | None = None,
    pad: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> DataFrame:
    """The DataFrame with what the model says about its rows; see Choices for the last ones.

    Args:
        feeds: For each input of the model its columns.
        picks: The columns that are made of its outputs.
        keep: The columns of the DataFrame that stay; None for all.
    """
    from pyspark.sql.types import StructType

    from sparktrain.driver.arrow_jobs import map_in_arrow
    from sparktrain.driver.tables import quote

    choices = Choices(batch_size, on_error, error_column, nulls, fill, pad, shapes)
    check_size(frame.sparkSession, source)
    answers = find_answers(source, info, picks, choices)
    kept = _find_kept(frame, keep, answers)
    fields = frame.schema.jsonValue()["fields"]
    plan = make_plan(fields, source, info, feeds, answers, choices)
    used = {column.name for column in plan.inputs.columns}
    needed = [name for name in frame.columns if name in kept or name in used]
    chosen = frame
    if len(needed) < len(frame.columns):
        chosen = frame.select([quote(name) for name in needed])
    schema = StructType([*(frame.schema[name] for name in kept), *make_fields(answers, info)])
    return map_in_arrow(chosen, ScoreTask(plan, tuple(kept)), schema)


def check_size(spark: Any, source: ModelSource) -> None:
    """Before anything that a model travels with: gRPC's own error does not say what to do."""
    from sparktrain.driver.spark_facts import is_connect

    if len(source.packed) > CONNECT_BYTES and is_connect(spark):
        raise ModelError(
            model=source.name,
            problem=f"It has {len(source.packed):,} bytes, more than Spark Connect lets through.",
            advice="Write it to a place that the executors can read, as with model.save() of Keras"
            " or model.export() of an estimator's model, and give its path to"
            " sparktrain.predict().",
        )


def find_answers(
    source: ModelSource, info: ModelInfo, picks: Sequence[Pick], choices: Choices
) -> Answers:
    """The columns of the answers and their types; raises ConfigError."""
    check_outputs(source.name, picks, info)
    outputs = {one.name: one for one in info.outputs}
    typed = [
        fit_type(pick, outputs[pick.output], parse_type(pick) if pick.spark_type else None)
        for pick in picks
    ]
    types = tuple(kind for _, kind in typed)
    picks = tuple(pick for pick, _ in typed)
    return Answers(picks, types, choices.error_column if choices.on_error == NULL else "")


def make_fields(answers: Answers, info: ModelInfo) -> list[Any]:
    """The answers' fields of Spark's schema; arrays tell their shape in the metadata."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StringType, StructField

    shapes = {one.name: one.shape for one in info.outputs}
    fields = []
    for pick, kind in zip(answers.picks, answers.types, strict=True):
        shape = shapes[pick.output] if pick.how == AS_IS else ()
        # -1 where lengths vary: metadata has no null in lists.
        metadata = {SHAPE_KEY: [-1 if size is None else size for size in shape]} if shape else None
        fields.append(StructField(pick.column, from_arrow_type(kind), True, metadata))
    if answers.error_column:
        fields.append(StructField(answers.error_column, StringType()))
    return fields


def _find_kept(frame: Any, keep: Sequence[str] | None, answers: Answers) -> list[str]:
    columns = list(frame.columns)
    if isinstance(keep, str):
        raise ConfigError(
            problem=f"predict() got keep={keep!r}.", advice="Expected a list of column names."
        )
    absent = [name for name in keep or () if name not in columns]
    if absent:
        raise ConfigError(
            problem=f"keep names {absent[0]!r}, which is not in the DataFrame.",
            advice=f"The columns are {', '.join(columns)}.",
        )
    kept = columns if keep is None else list(keep)
    # Spark does not tell names apart by case.
    counts = Counter(name.casefold() for name in [*kept, *answers.names])
    doubled = sorted({name for name in answers.names if counts[name.casefold()] > 1})
    doubled = doubled or sorted(name for name, count in Counter(kept).items() if count > 1)
    if doubled:
        raise ConfigError(
            problem=f"The result would have several columns {', '.join(doubled)}.",
            advice="Choose other names with outputs={...} or error_column=, or what stays with"
            " keep=[...].",
        )
    return kept
