"""Estimators and models on disk: Spark's own metadata, and beside it binary parts.

    path/metadata     the Params as JSON, as every stage of Spark ML has them; written last
    path/parts        Parquet: name, number of the chunk, bytes; absent where there are no parts

Spark writes both, so that any path that Spark knows will do, also over Spark Connect. Pickled
parts are code: load only what you trust.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from sparktrain.driver.spark_facts import is_connect
from sparktrain.errors import ConfigError
from sparktrain.ml.contract import FORMAT, check_format
from sparktrain.ml.packing import repack
from sparktrain.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A row goes through one message of Spark Connect, of 128 MB at most.
CHUNK_BYTES = 64 << 20
_PARTS = "parts"
_KEY = "sparktrain"


class PartsWriter(MLWriter):
    """Writes what has Params, _to_parts() and _unsaved: names of values that may be no JSON."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802 (Spark's name)
        one = self._instance
        parts = one._to_parts()
        write_parts(self.sparkSession, f"{path}/{_PARTS}", parts)
        about = {
            "format": FORMAT,
            "versions": {"sparktrain": __version__},
            "parts": {name: hashlib.sha256(body).hexdigest() for name, body in parts.items()},
        }
        unsaved = getattr(one, "_unsaved", ())
        kept = {param.name: repack(value) for param, value in one._paramMap.items()}
        kept = {
            name: value
            for name, value in kept.items()
            if value is not None and (name not in unsaved or isinstance(value, str))
        }
        DefaultParamsWriter.saveMetadata(
            one, path, self.sparkSession, extraMetadata={_KEY: about}, paramMap=kept
        )

    def _handleOverwrite(self, path: str) -> None:  # noqa: N802 (Spark's name)
        if not is_connect(self.sparkSession):
            super()._handleOverwrite(path)
            return
        from pyspark.ml.connect.readwrite import RemoteMLWriter

        RemoteMLWriter.handleOverwrite(path, True)


class PartsReader(MLReader[Any]):
    """Reads what PartsWriter wrote."""

    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        spark = self.sparkSession
        try:
            found = DefaultParamsReader.loadMetadata(path, spark)
        except Exception as error:
            raise ConfigError(
                problem=f"Nothing can be loaded from {path!r}: {_line(error)}.",
                advice="Expected a folder that write().save() wrote, to its end.",
            ) from error
        about = found.get(_KEY)
        # What wrote it, and not the name of the class: users have subclasses of their own.
        if not isinstance(about, Mapping):
            raise ConfigError(
                problem=f"{path!r} holds a {found.get('class')}.",
                advice=f"Expected a {self._cls.__name__} of sparktrain.",
            )
        check_format(int(about["format"]), about["versions"], path)
        if found["class"].rsplit(".", 1)[-1] != self._cls.__name__:
            raise ConfigError(
                problem=f"{path!r} holds a {found['class'].rsplit('.', 1)[-1]}.",
                advice=f"Load it with that class, not with {self._cls.__name__}.",
            )
        parts = read_parts(spark, f"{path}/{_PARTS}", about["parts"])
        one: Any = self._cls()
        one._resetUid(found["uid"])
        DefaultParamsReader.getAndSetParams(one, found)
        one._from_parts(parts, path)
        return one


def write_parts(spark: SparkSession, path: str, parts: Mapping[str, bytes]) -> None:
    if not parts:
        return  # an estimator without a model yet: Spark has no table of no rows to write
    schema = pa.schema([("name", pa.string()), ("number", pa.int32()), ("data", pa.binary())])
    rows = [
        (name, number, body[start : start + CHUNK_BYTES])
        for name, body in parts.items()
        for number, start in enumerate(range(0, max(len(body), 1), CHUNK_BYTES))
    ]
    batches: list[list[tuple[str, int, bytes]]] = [[]]
    for row in rows:
        if batches[-1] and sum(len(one[2]) for one in batches[-1]) + len(row[2]) > CHUNK_BYTES:
            batches.append([])
        batches[-1].append(row)
    for number, batch in enumerate(batches):
        names, numbers, bodies = zip(*batch, strict=True)
        table = pa.Table.from_arrays(
            [pa.array(names), pa.array(numbers, pa.int32()), pa.array(bodies, pa.binary())],
            schema=schema,
        )
        frame = spark.createDataFrame(table).coalesce(1)
        # Nothing is to be there yet: else it is said which path has something.
        frame.write.mode("append" if number else "error").parquet(path)


def read_parts(spark: SparkSession, path: str, expected: Mapping[str, str]) -> dict[str, bytes]:
    """The parts by name; raises ConfigError if one is missing or not as it was written."""
    if not expected:
        return {}
    try:
        # One chunk after the other: all at once may be more than Spark lets a job bring back.
        rows = list(spark.read.parquet(path).toLocalIterator())
    except Exception as error:
        raise ConfigError(
            problem=f"{path!r} cannot be read: {_line(error)}.",
            advice="The folder was changed after it was written; save the model again.",
        ) from error
    chunks: dict[str, list[tuple[int, bytes]]] = {}
    for row in rows:
        chunks.setdefault(row["name"], []).append((row["number"], bytes(row["data"])))
    found = {name: b"".join(body for _, body in sorted(some)) for name, some in chunks.items()}
    for name, digest in expected.items():
        if name not in found:
            raise ConfigError(
                problem=f"{path!r} lacks the part {name!r}.",
                advice="The folder was changed after it was written; save the model again.",
            )
        if hashlib.sha256(found[name]).hexdigest() != digest:
            raise ConfigError(
                problem=f"The part {name!r} of {path!r} is not what was written.",
                advice="The folder was changed after it was written; save the model again.",
            )
    return found


def _line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return json.dumps(text.splitlines()[0][:300])
