"""The options of the `tfrecord` format, checked on the driver before any job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparktrain.errors import ConfigError

EXAMPLE, BYTE_ARRAY = "Example", "ByteArray"
RECORD_TYPES = (EXAMPLE, BYTE_ARRAY)
FAIL, DROP, PERMISSIVE = "FAILFAST", "DROPMALFORMED", "PERMISSIVE"
MODES = (FAIL, DROP, PERMISSIVE)
#: The only column of ByteArray files.
BYTE_ARRAY_COLUMN = "byteArray"
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class ReadOptions:
    """How files are read.

    Attributes:
        paths: Files, folders or globs.
        record_type: What a record is.
        mode: What becomes of records that cannot be read.
        verify: Whether the CRC of the data is checked.
        partition_bytes: About so much of the files is one task.
        max_infer_files: So many files are looked into for the schema.
        sampling_ratio: This share of their blocks is looked into.
    """

    paths: tuple[str, ...]
    record_type: str = EXAMPLE
    mode: str = FAIL
    verify: bool = True
    partition_bytes: int = 128 * _MEGABYTE
    max_infer_files: int = 100
    sampling_ratio: float = 1.0


@dataclass(frozen=True)
class WriteOptions:
    """How files are written.

    Attributes:
        path: The folder.
        compression: gzip, zlib or nothing.
        partition_by: Columns whose values become folders.
        only_touched: Overwriting replaces only the folders that get new files.
    """

    path: str
    record_type: str = EXAMPLE
    compression: str = ""
    partition_by: tuple[str, ...] = ()
    only_touched: bool = False

    @property
    def extension(self) -> str:
        return {"gzip": ".gz", "zlib": ".deflate"}.get(self.compression, "")


#: What users call a compression, Hadoop's codecs among it -> what it is.
_CODECS = {
    "": "",
    "none": "",
    "uncompressed": "",
    "gzip": "gzip",
    "gz": "gzip",
    "org.apache.hadoop.io.compress.gzipcodec": "gzip",
    "zlib": "zlib",
    "deflate": "zlib",
    "org.apache.hadoop.io.compress.defaultcodec": "zlib",
    "org.apache.hadoop.io.compress.deflatecodec": "zlib",
}


def parse_write_options(options: Mapping[str, str], columns: Sequence[str]) -> WriteOptions:
    given = {name.lower(): value for name, value in options.items()}
    if not given.get("path"):
        raise ConfigError(
            problem="The tfrecord format got no path.",
            advice='Expected df.write.format("tfrecord").mode("append").save("path").',
        )
    name = "compression" if "compression" in given else "codec"
    codec = given.get(name, "")
    if codec.lower() not in _CODECS:
        raise _refuse(name, codec, "Expected gzip, zlib or none.")
    partition_by = _split_names(given.get("partitionby", ""))
    missing = [name for name in partition_by if name not in columns]
    if missing:
        raise _refuse("partitionBy", missing[0], f"The columns are {', '.join(columns)}.")
    if partition_by and len(partition_by) == len(columns):
        raise _refuse("partitionBy", partition_by, "Expected a column that is left for the files.")
    overwrite = _choose(given, "partitionOverwriteMode", ("static", "dynamic"), "static")
    return WriteOptions(
        path=given["path"].rstrip("/") or "/",
        record_type=_choose(given, "recordType", RECORD_TYPES, EXAMPLE),
        compression=_CODECS[codec.lower()],
        partition_by=tuple(partition_by),
        only_touched=overwrite == "dynamic",
    )


def _split_names(text: str) -> list[str]:
    if text.startswith("["):
        return [str(name) for name in json.loads(text)]
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Options as Spark hands them over: text, whatever was given. Names in any case."""
    given = {name.lower(): value for name, value in options.items()}
    if not given.get("path"):
        raise ConfigError(
            problem="The tfrecord format got no path.",
            advice='Expected spark.read.format("tfrecord").load("path").',
        )
    return ReadOptions(
        paths=tuple(_split_paths(given["path"])),
        record_type=_choose(given, "recordType", RECORD_TYPES, EXAMPLE),
        mode=_choose(given, "mode", MODES, FAIL),
        verify=_choose(given, "verifyCrc", ("true", "false"), "true") == "true",
        partition_bytes=_whole(given, "maxPartitionBytes", 128 * _MEGABYTE),
        max_infer_files=_whole(given, "maxInferFiles", 100),
        sampling_ratio=_share(given, "samplingRatio"),
    )


def _split_paths(path: str) -> list[str]:
    """Spark hands over several paths as a list in JSON."""
    if path.startswith("["):
        try:
            found = json.loads(path)
        except ValueError:
            return [path]  # a glob that begins with a bracket
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found
    return [path]


def _choose(given: Mapping[str, str], name: str, known: tuple[str, ...], default: str) -> str:
    value = given.get(name.lower(), default)
    for one in known:
        if one.lower() == value.lower():
            return one
    raise _refuse(name, value, f"Expected one of {', '.join(known)}.")


def _whole(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name.lower(), str(default))
    if not value.isdecimal() or int(value) < 1:
        raise _refuse(name, value, "Expected a whole number of at least 1.")
    return int(value)


def _share(given: Mapping[str, str], name: str) -> float:
    value: Any = given.get(name.lower(), "1.0")
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise _refuse(name, value, "Expected a number above 0 and at most 1.")
    return share


def _refuse(name: str, value: Any, advice: str) -> ConfigError:
    return ConfigError(problem=f"The tfrecord format got {name}={value!r}.", advice=advice)
