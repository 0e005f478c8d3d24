"""Scoring without a cluster: DataFrames and streams through any Keras or TensorFlow model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparktrain.errors import ConfigError
from sparktrain.scoring.class_names import check_classes, check_count
from sparktrain.scoring.plan import DEFAULT_BATCH, Choices
from sparktrain.scoring.spec import ARGMAX, CLASS, TOP_K, ModelInfo, ModelSource, Pick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def predict(
    frame: DataFrame,
    model: str | os.PathLike[str] | Any,
    *,
    inputs: Mapping[str, str | Sequence[str]] | Sequence[str] | str | None = None,
    outputs: Any = None,
    keep: Sequence[str] | None = None,
    batch_size: int = DEFAULT_BATCH,
    build: Callable[[], Any] | None = None,
    signature: str = "serving_default",
    types: Mapping[str, str] | None = None,
    on_error: str = "error",
    error_column: str = "error",
    nulls: str = "error",
    fill: Mapping[str, Any] | None = None,
    pad: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Scores the rows of a DataFrame, or of a stream; the DataFrame that comes back is lazy.

        scored = st.predict(df, "model.keras", inputs={"image": "pixels"}, outputs="p")

    Args:
        frame: The DataFrame, classic or Connect, batch or stream.
        model: A .keras or .h5 file, a SavedModel folder, a .weights.h5 file (with build), at any
            path of fsspec; a Keras model; or a model of an estimator.
        inputs: For each input of the model its column, or columns to join. For a model of one
            input also a column or a list. Defaults to columns named like the inputs, and for a
            model of an estimator to those it was trained on.
        outputs: For each output its column; argmax() and top_k() make classes of scores, and a
            list makes several columns of one output. A layer's name gives what it computes.
            Defaults to all outputs; the only one is called "prediction".
        keep: Which columns of the DataFrame stay. Defaults to all.
        batch_size: Rows for a call of the model. Defaults to 512.
        build: Makes the model that a file of weights is for.
        signature: Of a SavedModel. Defaults to "serving_default".
        types: Casts columns of the answers to types of Spark, by column.
        on_error: "error" ends the job with the first row that fails; "null" leaves its answers
            null and says why in error_column.
        error_column: Defaults to "error".
        nulls: "error", or "null": rows with a null in a column of the model have null answers.
        fill: What stands for null, by column.
        pad: What to pad arrays of different lengths with, to the longest of the batch, by column.

    Raises:
        ModelError: The model cannot be read, or does not fit the columns.
        SchemaError: A column that the model cannot take.
        ConfigError: Something else that was asked for cannot be.
    """
    from sparktrain.driver.score_wishes import name_feeds
    from sparktrain.driver.scores import score_frame

    if not hasattr(frame, "mapInArrow"):
        raise ConfigError(
            problem=f"predict() got a {type(frame).__name__}.", advice="Expected a Spark DataFrame."
        )
    source, info, picks = _look(frame.sparkSession, model, build, signature, outputs, types)
    trained = getattr(model, "contract", None)
    # Where these columns are not, others may be named like the inputs, as for any model.
    if inputs is None and trained is not None and set(trained.columns) <= set(frame.columns):
        inputs = dict(trained.feeds)
    return score_frame(
        frame,
        source,
        info,
        feeds=name_feeds(source.name, inputs, info, frame.columns),
        picks=picks,
        keep=keep,
        batch_size=batch_size,
        on_error=on_error,
        error_column=error_column,
        nulls=nulls,
        fill=fill,
        pad=pad,
    )


def predict_udf(
    model: str | os.PathLike[str] | Any,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Any = None,
    batch_size: int = DEFAULT_BATCH,
    build: Callable[[], Any] | None = None,
    signature: str = "serving_default",
    types: Mapping[str, str] | None = None,
    on_error: str = "error",
    nulls: str = "error",
    pad: Any = None,
    spark: SparkSession | None = None,
) -> Any:
    """A function for select() and SQL that scores columns.

        score = st.predict_udf("model.keras")
        df.select("id", score("pixels").alias("p"))
        spark.udf.register("score", score); spark.sql("select score(pixels) from t")

    One output gives a column of its type; several, or on_error="null", a struct.

    Args:
        inputs: The inputs of the model in the order of the function's arguments. Defaults to the
            model's own order.
        pad: What to pad arrays of different lengths with.
        spark: The session in which the model is looked at. Defaults to the active one.

    The other arguments are those of predict().
    """
    from sparktrain.driver.score_udf import make_udf
    from sparktrain.embedded import session

    source, info, picks = _look(
        spark if spark is not None else session(), model, build, signature, outputs, types
    )
    return make_udf(
        source,
        info,
        inputs,
        picks,
        # The arguments have no names: one pad value is for all of them.
        Choices(batch_size, on_error, "error", nulls, None, None if pad is None else {"": pad}),
    )


def argmax(column: str, *, classes: Sequence[Any] | None = None, logits: bool = False) -> Pick:
    """For outputs={...}: the class with the highest score.

        st.predict(df, model, outputs={"scores": st.argmax("label", classes=["cat", "dog"])})

    Args:
        column: The name of the column.
        classes: Names of the classes; without them the position, as a double, which is what
            evaluators of pyspark.ml take.
        logits: For one score of two classes: whether 0 is the limit, and not 0.5.
    """
    names = check_classes(column, classes)
    return Pick("", column, CLASS if names else ARGMAX, classes=names, is_logits=logits)


def top_k(
    column: str, k: int, *, classes: Sequence[Any] | None = None, logits: bool = False
) -> Pick:
    """For outputs={...}: the k best classes, as an array of structs of class and score.

    Args:
        logits: Whether scores are to be made probabilities first.
    """
    names = check_classes(column, classes)
    return Pick("", column, TOP_K, classes=names, k=check_count(column, k), is_logits=logits)


def _look(
    spark: Any, model: Any, build: Any, signature: str, outputs: Any, types: Any
) -> tuple[ModelSource, ModelInfo, list[Pick]]:
    """The model, what it is, and what is wanted of it."""
    from sparktrain.driver.model_sources import find_source
    from sparktrain.driver.score_wishes import name_picks
    from sparktrain.driver.scores import check_size, describe_model

    source = find_source(model, build, signature)
    check_size(spark, source)
    # A model of an estimator remembers; of any other one a worker has to load it.
    trained = getattr(model, "contract", None)
    info = describe_model(spark, source) if trained is None else trained.info
    picks = name_picks(outputs, [one.name for one in info.outputs])
    known = {one.name for one in info.outputs}
    layers = tuple(dict.fromkeys(pick.output for pick in picks if pick.output not in known))
    if layers and source.kind != "saved_model":
        source = replace(source, layers=layers)
        info = describe_model(spark, source)
    wished = dict(types or {})
    unknown = [name for name in wished if name not in [pick.column for pick in picks]]
    if unknown:
        raise ConfigError(
            problem=f"types names {unknown[0]!r}, which is no column of the answers.",
            advice=f"These are {', '.join(pick.column for pick in picks)}.",
        )
    picks = [replace(pick, spark_type=wished.get(pick.column, "")) for pick in picks]
    return source, info, picks
