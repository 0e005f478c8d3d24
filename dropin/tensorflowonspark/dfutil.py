"""DataFrames as TFRecord files, and back, by sparktrain's own format: no jar."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from tensorflowonspark.paths import make_absolute
from tensorflowonspark.TFCluster import find_default_fs

#: DataFrames that were loaded from TFRecord files, and where from; as long as they are used.
loadedDF: MutableMapping[Any, str] = weakref.WeakKeyDictionary()


def isLoadedDF(df: Any) -> bool:
    """Whether a DataFrame was loaded by loadTFRecords()."""
    return any(known is df for known in loadedDF)


def saveAsTFRecords(df: Any, output_dir: str) -> None:
    """Writes a DataFrame as files of tf.train.Example."""
    import sparktrain

    sparktrain.tfrecord.write(df, find_path(df.sparkSession, output_dir))


def find_path(spark: Any, path: str) -> str:
    """A path without a scheme is one of the default file system, as Hadoop has it."""
    found = make_absolute(path, find_default_fs(spark), str(Path.cwd()))
    return found.removeprefix("file://")


def loadTFRecords(sc: Any, input_dir: str, binary_features: Sequence[str] = []) -> Any:
    """A DataFrame of files of tf.train.Example.

    Args:
        binary_features: Features that are bytes and no text.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    import sparktrain

    spark = SparkSession(sc)
    df = sparktrain.tfrecord.read(spark, find_path(spark, input_dir))
    kinds = dict(df.dtypes)
    for name, kind in kinds.items():  # Python's floats, as the old library had them
        if kind in ("float", "array<float>"):
            df = df.withColumn(name, F.col(f"`{name}`").cast(kind.replace("float", "double")))
    for name in binary_features:
        if kinds.get(name) == "string":
            df = df.withColumn(name, F.col(name).cast("binary"))
        elif kinds.get(name) == "array<string>":
            df = df.withColumn(name, F.col(name).cast("array<binary>"))
    loadedDF[df] = input_dir
    return df


def toTFExample(dtypes: Sequence[tuple[str, str]]) -> Any:
    """A function for mapPartitions: rows of these types to pairs of (Example bytes, None)."""

    def convert(rows: Iterable[Any]) -> Iterator[tuple[bytearray, None]]:
        import tensorflow as tf

        for row in rows:
            example = tf.train.Example()
            for name, kind in dtypes:
                value = row[name]
                if value is None:
                    continue
                _fill(example.features.feature[name], kind, value)
            yield bytearray(example.SerializeToString()), None

    return convert


def _fill(feature: Any, kind: str, value: Any) -> None:
    values = value if kind.startswith("array<") else [value]
    inner = kind.removeprefix("array<").removesuffix(">")
    if inner in ("float", "double"):
        feature.float_list.value.extend(values)
    elif inner in ("boolean", "tinyint", "smallint", "int", "bigint", "long"):
        feature.int64_list.value.extend(int(one) for one in values)
    elif inner in ("string", "binary"):
        feature.bytes_list.value.extend(
            one.encode() if isinstance(one, str) else bytes(one) for one in values
        )
    else:
        raise Exception(f"Unsupported dtype: {kind}")


def infer_schema(example: Any, binary_features: Sequence[str] = []) -> Any:
    """Spark's schema of one tf.train.Example."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DoubleType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    fields = []
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        found: Any = {"int64_list": LongType(), "float_list": DoubleType()}.get(str(kind))
        if found is None:
            found = BinaryType() if name in binary_features else StringType()
        count = len(getattr(feature, kind).value) if kind else 0
        fields.append(StructField(name, ArrayType(found) if count > 1 else found, True))
    return StructType(fields)


def fromTFExample(iter: Iterable[Any], binary_features: Sequence[str] = []) -> list[Any]:
    """Rows of pairs of (Example bytes, None)."""
    import tensorflow as tf
    from pyspark.sql import Row

    rows = []
    for data, *_ in iter:
        example = tf.train.Example.FromString(bytes(data))
        values = {}
        for name, feature in sorted(example.features.feature.items()):
            kind = feature.WhichOneof("kind")
            found = list(getattr(feature, kind).value) if kind else []
            if kind == "bytes_list":
                is_binary = name in binary_features
                found = [bytearray(one) if is_binary else one.decode() for one in found]
            values[name] = found if len(found) > 1 else (found[0] if found else None)
        rows.append(Row(**values))
    return rows
