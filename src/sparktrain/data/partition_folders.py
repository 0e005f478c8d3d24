"""Folders named after values, `day=2026-01-01/`: read as columns, as Spark does."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from sparktrain.errors import ConfigError

#: What stands for null.
NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


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
    if values and all(_WHOLE.fullmatch(value) for value in values):
        is_small = all(-(2**31) <= int(value) < 2**31 for value in values)
        return "integer" if is_small else "long"
    if values and all(_DATE.fullmatch(value) and _is_date(value) for value in values):
        return "date"
    return "string"


def _is_date(value: str) -> bool:
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return True


def convert(name: str, value: str | None, kind: str) -> Any:
    """The value of a folder as the column's type; raises ConfigError."""
    if value is None:
        return None
    try:
        return _CONVERTERS.get(kind, str)(value)
    except (ValueError, KeyError, ArithmeticError) as error:
        raise ConfigError(
            problem=f"The folder {name}={value} is no {kind}.",
            advice=f"Give the column {name!r} another type, such as string, or leave it out.",
        ) from error


#: By Spark's names of types; everything else stays text.
_CONVERTERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), datetime.datetime.fromisoformat),
    "date": datetime.date.fromisoformat,
    "decimal": decimal.Decimal,
    "boolean": lambda value: {"true": True, "false": False}[value.lower()],
}


def make_folder(name: str, value: Any) -> str:
    """The folder of a value; what a path cannot hold is written with percent signs."""
    text = NULL if value is None or value == "" else quote(_to_text(value), safe=" ,+@")
    return f"{quote(name, safe=' ')}={text}"


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
