"""`sparktrain predict`: scores a table of files with a model and writes the result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import typer

from sparktrain.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMATS = ("parquet", "orc", "json", "csv", "tfrecord", "avro")
_MODES = ("error", "overwrite", "append")


def find_format(path: str, given: str | None, option: str) -> str:
    """As given, or by the end of the path."""
    found = given or PurePosixPath(path.rstrip("/")).suffix.lstrip(".") or "parquet"
    if found not in _FORMATS:
        raise ConfigError(
            problem=f"{option} is {found!r} for {path!r}.",
            advice=f"Expected {option} to be one of {', '.join(_FORMATS)}.",
        )
    return found


def parse_inputs(pairs: Mapping[str, str], columns: Sequence[str] | None) -> Any:
    """--inputs image=pixels, or pixels=a,b,c for columns to join; --columns for the only input."""
    if pairs and columns:
        raise ConfigError(
            problem="--inputs and --columns are both given.", advice="Give one of them."
        )
    if columns:
        return list(columns)
    return {name: value.split(",") for name, value in pairs.items()} or None


def run_predict(
    spark: SparkSession,
    *,
    model: str,
    input: str,
    output: str,
    input_format: str | None,
    output_format: str | None,
    mode: str,
    **options: Any,
) -> int:
    """Reads, scores, writes, and says how many rows; the exit code."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    import sparktrain

    if mode not in _MODES:
        raise ConfigError(
            problem=f"--mode is {mode!r}.", advice=f"Expected one of {', '.join(_MODES)}."
        )
    read = find_format(input, input_format, "--input-format")
    write = find_format(output, output_format, "--output-format")
    reader = spark.read.format(read)
    if read == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    frame = reader.load(input)
    started = time.monotonic()
    typer.echo(f"scoring {input} ({', '.join(frame.columns)}) with {model}", err=True)
    scored = sparktrain.predict(frame, model, **options)
    seen = Observation("sparktrain-predict")
    counts = [F.count(F.lit(1)).alias("rows")]
    error_column = options.get("error_column", "error")
    is_lenient = options.get("on_error") == "null"
    if is_lenient:
        counts.append(F.count(F.col(error_column)).alias("failed"))
    writer = scored.observe(seen, *counts).write.format(write).mode(mode)
    if write == "csv":
        writer = writer.option("header", True)
    writer.save(output)
    rows = int(seen.get["rows"])
    seconds = time.monotonic() - started
    typer.echo(f"scored {rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} a second)")
    if is_lenient and seen.get["failed"]:
        typer.echo(f"{int(seen.get['failed']):,} rows failed; see the column {error_column!r}")
    typer.echo(f"written: {output}")
    return 0
