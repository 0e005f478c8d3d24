"""The options of the `tfrecord` format, checked on the driver before any job."""

from __future__ import annotations

import json
import os
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparktrain.errors import ConfigError

EXAMPLE, SEQUENCE, BYTE_ARRAY = "Example", "SequenceExample", "ByteArray"
RECORD_TYPES = (EXAMPLE, SEQUENCE, BYTE_ARRAY)
FAIL, DROP, PERMISSIVE = "FAILFAST", "DROPMALFORMED", "PERMISSIVE"
MODES = (FAIL, DROP, PERMISSIVE)
#: What becomes of doubles, for which the format has no place.
ROUND, REFUSE = "round", "refuse"
#: Whether a path that has files already is written to.
APPEND, ERROR = "append", "error"
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
        columns: The only features that count for the schema; empty for all.
        storage: What the store's own package is given: keys, endpoints.
        zone: Where timestamps in the names of folders are at home that have no zone.
        skip_missing: Leaves out files that are gone when their turn comes.
        max_trigger_files, max_trigger_bytes: A stream takes at most so much at once; 0: all.
    """

    paths: tuple[str, ...]
    record_type: str = EXAMPLE
    mode: str = FAIL
    verify: bool = True
    partition_bytes: int = 128 * _MEGABYTE
    max_infer_files: int = 100
    sampling_ratio: float = 1.0
    columns: tuple[str, ...] = ()
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    zone: str = ""
    skip_missing: bool = False
    max_trigger_files: int = 0
    max_trigger_bytes: int = 0


@dataclass(frozen=True)
class WriteOptions:
    """How files are written.

    Attributes:
        path: The folder.
        record_type: What a record is.
        compression: gzip, zlib or nothing.
        partition_by: Columns whose values become folders.
        only_touched: Overwriting replaces only the folders that get new files.
        doubles: round them to what the format has, or refuse them.
        max_records: A file gets at most so many; 0: all of a task.
        if_exists: append to a folder that has files, or make it an error.
        storage: What the store's own package is given: keys, endpoints.
    """

    path: str
    record_type: str = EXAMPLE
    compression: str = ""
    partition_by: tuple[str, ...] = ()
    only_touched: bool = False
    doubles: str = ROUND
    max_records: int = 0
    if_exists: str = APPEND
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)

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
    """Options as Spark hands them over: text, whatever was given. Names in any case."""
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
    if given.get("writelocality", "distributed").lower() != "distributed":
        raise _refuse(
            "writeLocality",
            given["writelocality"],
            "Files go where the path says: give one that all executors share.",
        )
    partition_by = _split_names(given.get("partitionby", ""))
    missing = [name for name in partition_by if name not in columns]
    if missing:
        raise _refuse("partitionBy", missing[0], f"The columns are {', '.join(columns)}.")
    for name in partition_by:
        if name.startswith("."):
            raise _refuse("partitionBy", name, "A folder of this name would be a hidden one.")
    if partition_by and len(partition_by) == len(columns):
        raise _refuse("partitionBy", partition_by, "Expected a column that is left for the files.")
    overwrite = _choose(given, "partitionOverwriteMode", ("static", "dynamic"), "static")
    return WriteOptions(
        path=_make_absolute(given["path"].rstrip("/") or "/"),
        record_type=_choose(given, "recordType", RECORD_TYPES, EXAMPLE),
        compression=_CODECS[codec.lower()],
        partition_by=tuple(partition_by),
        only_touched=overwrite == "dynamic",
        doubles=_choose(given, "doubles", (ROUND, REFUSE), ROUND),
        max_records=_whole(given, "maxRecordsPerFile", 0),
        if_exists=_choose(given, "ifExists", (APPEND, ERROR), APPEND),
        storage=_parse_storage(given),
    )


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Options as Spark hands them over: text, whatever was given. Names in any case."""
    given = {name.lower(): value for name, value in options.items()}
    # Spark has several paths in an option of their own, as a list in JSON.
    path = given.get("path") or given.get("paths")
    if not path:
        raise ConfigError(
            problem="The tfrecord format got no path.",
            advice='Expected spark.read.format("tfrecord").load("path").',
        )
    if "maxfilespertrigger" in given and "maxbytespertrigger" in given:
        raise ConfigError(
            problem="The tfrecord format got both maxFilesPerTrigger and maxBytesPerTrigger.",
            advice="Give one of them.",
        )
    return ReadOptions(
        paths=tuple(_parse_list(path) or [path]),
        record_type=_choose(given, "recordType", RECORD_TYPES, EXAMPLE),
        mode=_choose(given, "mode", MODES, FAIL),
        verify=_flag(given, "verifyCrc", True),
        partition_bytes=_whole(given, "maxPartitionBytes", 128 * _MEGABYTE),
        max_infer_files=_whole(given, "maxInferFiles", 100),
        sampling_ratio=_share(given, "samplingRatio"),
        columns=tuple(_split_names(given.get("columns", ""))),
        storage=_parse_storage(given),
        zone=_zone(given),
        skip_missing=_flag(given, "ignoreMissingFiles", False),
        max_trigger_files=_whole(given, "maxFilesPerTrigger", 0),
        max_trigger_bytes=_whole(given, "maxBytesPerTrigger", 0),
    )


def _make_absolute(path: str) -> str:
    """Executors have other folders of their own: a path below this one is made a whole one."""
    is_local = "://" not in path and "::" not in path and not path.startswith("file:")
    return os.path.abspath(path) if is_local else path  # noqa: PTH100 (Path would change `//`)


def _split_names(text: str) -> list[str]:
    found = _parse_list(text)
    if found is not None:
        return found
    return [name.strip() for name in text.split(",") if name.strip()]


def _parse_list(text: str) -> list[str] | None:
    """A list of texts in JSON; None for anything else, such as a glob with a bracket."""
    if not text.startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if is_list else None


def _parse_storage(given: Mapping[str, str]) -> Mapping[str, Any]:
    text = given.get("storageoptions", "{}")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # Not what was given: there may be keys in it.
        raise _refuse("storageOptions", "...", "Expected an object in JSON, as text.")
    return found


def _choose(given: Mapping[str, str], name: str, known: tuple[str, ...], default: str) -> str:
    value = given.get(name.lower(), default)
    for one in known:
        if one.lower() == value.lower():
            return one
    raise _refuse(name, value, f"Expected one of {', '.join(known)}.")


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    return _choose(given, name, ("true", "false"), str(default).lower()) == "true"


def _zone(given: Mapping[str, str]) -> str:
    name = given.get("timezone", "")
    try:
        return zoneinfo.ZoneInfo(name).key if name else ""
    except (ValueError, KeyError, OSError) as error:
        raise _refuse("timeZone", name, "Expected a name such as Europe/Berlin.") from error


def _whole(given: Mapping[str, str], name: str, default: int) -> int:
    """A number of at least 1, if it is given."""
    value = given.get(name.lower())
    if value is None:
        return default
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
