"""Folders named after values, `day=2026-01-01/`: read as columns, as Spark does."""

from __future__ import annotations

import datetime
import decimal
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from sparktrain.errors import ConfigError

#: What stands for null.
NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SPECIAL = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def parse_folders(path: str, root: str) -> dict[str, str | None]:
    """The values in the folders between the root and the file, as text."""
    inside = PurePosixPath(path).parent.parts[len(PurePosixPath(root).parts) :]
    found: dict[str, str | None] = {}
    for part in inside:
        name, equals, value = part.partition("=")
        if equals and name:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return found


def infer_types(folders: Sequence[Mapping[str, str | None]]) -> dict[str, str]:
    """Spark's names of the types of the columns; raises ConfigError where folders differ."""
    names = list(folders[0]) if folders else []
    for one in folders:
        if list(one) != names:
            raise ConfigError(
                problem="The folders of partitions do not agree: some have the columns"
                f" {', '.join(names) or 'none'}, others {', '.join(one) or 'none'}.",
                advice="Expected the same folders name=value above every file: read one of them,"
                " or give a glob that matches files of one kind only.",
            )
    return {name: _infer({one[name] for one in folders} - {None}) for name in names}


def _infer(values: set[Any]) -> str:
    if values and all(_WHOLE.fullmatch(value) and len(value) < 19 for value in values):
        is_small = all(-(2**31) <= int(value) < 2**31 for value in values)
        return "integer" if is_small else "long"
    if values and all(_is_date(value) for value in values):
        return "date"
    return "string"


def _is_date(value: str) -> bool:
    try:
        _parse_date(value)
    except ValueError:
        return False
    return True


def convert(name: str, value: str | None, kind: pa.DataType, zone: str = "") -> Any:
    """The value of a folder as the column's type; raises ConfigError.

    Args:
        zone: Where timestamps without a zone are at home.
    """
    if value is None:
        return None
    try:
        found = _parse(value, kind, zone)
        pa.scalar(found, kind)  # whether it has room for it
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        why = f" ({error})" if isinstance(error, _ZoneError) else ""
        raise ConfigError(
            problem=f"The folder {name}={value} is no {kind}{why}.",
            advice=f"Give the column {name!r} another type, such as string, or leave it out.",
        ) from error
    return found


class _ZoneError(ValueError):
    """A timestamp has no zone and needs one, or the other way round."""


def _parse(value: str, kind: pa.DataType, zone: str) -> Any:
    types = pa.types
    if types.is_string(kind):
        return value
    if types.is_integer(kind):
        if not _WHOLE.fullmatch(value):
            raise ValueError(value)
        return int(value)
    if types.is_floating(kind):
        return float(value)
    if types.is_decimal(kind):
        return decimal.Decimal(value)
    if types.is_boolean(kind) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if types.is_date(kind):
        return _parse_date(value)
    if types.is_timestamp(kind):
        return _parse_timestamp(value, kind.tz is not None, zone)
    raise ValueError(value)


def _parse_date(value: str) -> datetime.date:
    if not _DATE.fullmatch(value):
        raise ValueError(value)  # Python knows more ways to write one
    return datetime.date.fromisoformat(value)


def _parse_timestamp(value: str, has_zone: bool, zone: str) -> datetime.datetime:
    if not _DATE.match(value):
        raise ValueError(value)
    found = datetime.datetime.fromisoformat(value)
    if not has_zone:
        if found.tzinfo is not None:
            raise _ZoneError("it has a time zone")
        return found
    if found.tzinfo is None:
        if not zone:
            raise _ZoneError("it has no time zone: give option timeZone, or read timestamp_ntz")
        found = found.replace(tzinfo=zoneinfo.ZoneInfo(zone))
    return found.astimezone(datetime.UTC)


def make_folder(name: str, value: Any) -> str:
    """The folder of a value; what a path cannot hold is written with percent signs."""
    text = NULL if value is None or value == "" else _escape(_to_text(value))
    return f"{_escape(name)}={text}"


def _escape(text: str) -> str:
    """As Spark and Hive do."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
