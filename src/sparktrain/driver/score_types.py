"""The types of the answers' columns: those of the outputs, or what was wished if it can be had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from sparktrain.errors import ConfigError
from sparktrain.scoring.picks import find_type
from sparktrain.scoring.spec import AS_IS, VALUE, Pick, TensorInfo
from sparktrain.scoring.typed import can_cast


def fit_type(
    pick: Pick, tensor: TensorInfo, wished: pa.DataType | None
) -> tuple[Pick, pa.DataType]:
    """How the column is made, and its type; raises ConfigError for one that no value can have."""
    if wished is None:
        return pick, find_type(pick, tensor)
    is_single = tensor.shape != () and all(size == 1 for size in tensor.shape)
    if pick.how == AS_IS and is_single and not pa.types.is_nested(wished):
        pick = replace(pick, how=VALUE)
    found = find_type(pick, tensor)
    if can_cast(found, wished):
        return pick, wished
    from pyspark.sql.pandas.types import from_arrow_type

    own = from_arrow_type(found).simpleString()
    raise ConfigError(
        problem=f"types has {pick.spark_type!r} for {pick.column!r}, which is {own}: the output"
        f" {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}.",
        advice=f"Expected {own!r}, or one that differs in the type of its values.",
    )


def parse_type(pick: Pick) -> pa.DataType:
    """What types has for the column; needs a session, as all DDL."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    try:
        parsed: Any = StructType.fromDDL(f"x {pick.spark_type}")
        return to_arrow_type(parsed.fields[0].dataType)
    except Exception as error:
        raise ConfigError(
            problem=f"types has {pick.spark_type!r} for {pick.column!r}: {error}.",
            advice="Expected a type of Spark such as 'double', 'binary' or 'array<double>'.",
        ) from error
