"""TFRecord files: as DataFrames, and record by record without TensorFlow and without Spark.

df = st.tfrecord.read(spark, "data/*.tfrecord", columns=["label", "pixels"])
st.tfrecord.write(df, "by-day", partition_by=["day"], mode="overwrite", compression="gzip")

with open("part.tfrecord", "rb") as file:
    for record in st.tfrecord.RecordReader(file):
        ...
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal

from sparktrain.data.record_blocks import Damage, read_blocks
from sparktrain.data.records import describe, pack_record
from sparktrain.errors import ConfigError, RecordError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["read", "write", "RecordReader", "RecordWriter"]

#: Names of options, for those who would rather hear of a misspelt one: Spark passes on any.
READ_OPTIONS = frozenset(
    [
        "recordType",
        "mode",
        "verifyCrc",
        "maxPartitionBytes",
        "maxInferFiles",
        "samplingRatio",
        "columns",
        "storageOptions",
        "timeZone",
        "ignoreMissingFiles",
        "maxFilesPerTrigger",
        "maxBytesPerTrigger",
    ]
)
WRITE_OPTIONS = frozenset(
    [
        "recordType",
        "compression",
        "codec",
        "partitionBy",
        "partitionOverwriteMode",
        "doubles",
        "maxRecordsPerFile",
        "ifExists",
        "writeLocality",
        "storageOptions",
    ]
)
#: What is said of a folder that must not have files; write(mode="ignore") looks for it.
HAS_FILES = "has files already"


def read(
    spark: SparkSession,
    path: str | Sequence[str],
    *,
    schema: StructType | str | None = None,
    columns: Sequence[str] | None = None,
    record_type: Literal["Example", "SequenceExample", "ByteArray"] = "Example",
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = "FAILFAST",
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataFrame:
    """TFRecord files as a DataFrame: `spark.read.format("tfrecord")`, with options as arguments.

    Args:
        spark: The session.
        path: A file, a folder or a glob in any store of fsspec, or several.
        schema: Columns and their types. Defaults to what is found in the files.
        columns: Only these features; the others are not even decoded. Defaults to all.
        record_type: What a record is. Examples and SequenceExamples are told apart by themselves.
        mode: What becomes of records that are damaged or do not fit the schema.
        storage_options: For the store's own package: keys, endpoints.
        options: More options of the format, by name: maxPartitionBytes=..., verifyCrc=False.

    Raises:
        ConfigError: Columns are given together with a schema, or no path at all.
    """
    paths = [path] if isinstance(path, str) else list(path)
    if not paths:
        raise ConfigError(problem="read() got no path.", advice="Expected one or several.")
    if columns is not None and not columns:
        raise ConfigError(
            problem="read() got no column in columns.", advice="Leave it out to read all."
        )
    if schema is not None and columns is not None:
        raise ConfigError(
            problem="read() got both a schema and columns.",
            advice="Give a schema of those columns only.",
        )
    reader = spark.read.format("tfrecord").option("recordType", record_type).option("mode", mode)
    if schema is not None:
        reader = reader.schema(schema)
    if columns is not None:
        reader = reader.option("columns", json.dumps(list(columns)))
    reader = reader.options(**_storage(storage_options), **_texts("read", options, READ_OPTIONS))
    return reader.load(paths[0] if len(paths) == 1 else paths)


def write(
    df: DataFrame,
    path: str,
    *,
    mode: Literal["error", "ignore", "append", "overwrite"] = "error",
    partition_by: Sequence[str] = (),
    only_touched: bool = False,
    record_type: Literal["Example", "SequenceExample", "ByteArray"] = "Example",
    compression: Literal["none", "gzip", "zlib"] = "none",
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Writes a DataFrame as TFRecord files: `df.write.format("tfrecord")`, and all save modes.

    Args:
        df: What to write.
        path: A folder in any store of fsspec.
        mode: What to do if the folder has files: raise ConfigError, leave it as it is, add more,
            or replace them when the new ones are there. Defaults to "error".
        partition_by: Columns that become folders, `day=2026-01-01/`.
        only_touched: Overwriting replaces only the folders that get new files.
        record_type: What a record is. Arrays of arrays need SequenceExample.
        compression: Of the files.
        storage_options: For the store's own package: keys, endpoints.
        options: More options of the format, by name: maxRecordsPerFile=..., doubles="refuse".
    """
    modes = ("error", "ignore", "append", "overwrite")
    if mode not in modes:
        raise ConfigError(
            problem=f"write() got mode={mode!r}.", advice=f"Expected one of {', '.join(modes)}."
        )
    missing = [name for name in partition_by if name not in df.columns]
    if missing:
        raise ConfigError(
            problem=f"write() got partition_by={missing[0]!r}.",
            advice=f"The columns are {', '.join(df.columns)}.",
        )
    if partition_by:
        # So that a task has one file open at a time, and makes one for each folder.
        df = df.sortWithinPartitions(*map(_quote, partition_by))
    given = {
        "recordType": record_type,
        "compression": compression,
        "partitionBy": json.dumps(list(partition_by)),
        "partitionOverwriteMode": "dynamic" if only_touched else "static",
        **_storage(storage_options),
        **_texts("write", options, WRITE_OPTIONS),
    }
    if mode in ("error", "ignore"):
        given["ifExists"] = "error"
    _activate(df)
    writer = df.write.format("tfrecord").options(**given)
    try:
        writer.mode("overwrite" if mode == "overwrite" else "append").save(path)
    except Exception as error:
        # Spark's error has our text in it; the folder is where the files are, not here.
        if mode in ("append", "overwrite") or HAS_FILES not in str(error):
            raise
        if mode == "error":
            raise ConfigError(
                problem=f"{path} {HAS_FILES}.",
                advice='Write to another folder, or with mode="append", "overwrite" or "ignore".',
            ) from error


def _quote(name: str) -> str:
    """A column's name as Spark's SQL has it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _storage(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    return {"storageOptions": json.dumps(dict(storage_options))} if storage_options else {}


def _activate(df: DataFrame) -> None:
    """Spark looks for the format in the session of the thread, which another thread has none of."""
    session: Any = df.sparkSession
    if hasattr(session, "_jsparkSession"):
        session._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)


def _texts(caller: str, options: Mapping[str, Any], known: frozenset[str]) -> dict[str, str]:
    spelt = {name.lower() for name in known}
    for name, value in options.items():
        if name.lower() not in spelt:
            raise ConfigError(
                problem=f"{caller}() got an option {name}={value!r}.",
                advice=f"Known options: {', '.join(sorted(known))}.",
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


class RecordReader:
    """The records of a file object, as bytes.

    Args:
        file: Open for reading bytes; decompressed, if it is compressed.
        verify: Checks the CRC of the data too. That of the length is always checked.

    Raises:
        RecordError: The file is damaged; with the byte at which the record begins.
    """

    def __init__(self, file: IO[bytes], *, verify: bool = True) -> None:
        self._file = file
        self._verify = verify

    def __iter__(self) -> Iterator[bytes]:
        try:
            for block, _ in read_blocks(self._file, verify=self._verify):
                for row in range(len(block)):
                    yield block.row(row)
        except Damage as damage:
            name = getattr(self._file, "name", None) or "the file"
            raise describe(name, damage) from None


class RecordWriter:
    """Writes records into a file object, which stays open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, record: bytes) -> None:
        if not isinstance(record, bytes):
            raise RecordError(
                problem=f"A record is a {type(record).__name__}.",
                advice="Expected bytes: serialize it first, an Example with SerializeToString().",
            )
        self._file.write(pack_record(record))
