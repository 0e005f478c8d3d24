"""Schemas as users write them, read into the fields of Spark's schema as JSON.

Three ways lead to the same list: a mapping {"label": "long"}, Spark's DDL
"label long, pixels array<float>", and a StructType. The last is known by its jsonValue(), so
that nothing here needs pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparktrain.errors import ConfigError

#: SQL's names of types -> Spark's. What is not here keeps its name.
_NAMES = {
    "bool": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*(?::|\s)\s*(.+?)\s*$", re.DOTALL)
_SUFFIX = re.compile(r"\s+(NOT\s+NULL|NULL|COMMENT\s+('[^']*'|\"[^\"]*\"))\s*$", re.IGNORECASE)
_PAIRS = {"<": ">", "(": ")"}


def parse_schema(schema: Any) -> list[dict[str, Any]]:
    """The fields of a schema, each with name and type as in Spark's JSON; raises ConfigError."""
    if hasattr(schema, "jsonValue"):
        schema = schema.jsonValue()
        fields = schema.get("fields") if isinstance(schema, Mapping) else None
        if fields is None:
            raise _refuse(schema, "it is no struct")
        return [{"name": str(field["name"]), "type": field["type"]} for field in fields]
    if isinstance(schema, str):
        found = [_parse_field(text, schema) for text in _split(schema, schema) if text.strip()]
    elif isinstance(schema, Mapping):
        found = [(str(name), _parse_type(kind, schema)) for name, kind in schema.items()]
    else:
        raise _refuse(schema, f"it is a {type(schema).__name__}")
    if not found:
        raise _refuse(schema, "it has no column")
    return [{"name": name, "type": kind} for name, kind in found]


def _parse_field(text: str, schema: str) -> tuple[str, Any]:
    match = _FIELD.match(text)
    if match is None:
        raise _refuse(schema, f"{text.strip()!r} has no type")
    quoted, plain, kind = match.groups()
    while suffix := _SUFFIX.search(kind):
        kind = kind[: suffix.start()]
    return plain if quoted is None else quoted.replace("``", "`"), _parse_type(kind, schema)


def _parse_type(kind: Any, schema: Any) -> Any:
    if hasattr(kind, "jsonValue"):
        return kind.jsonValue()
    if isinstance(kind, Mapping):
        return kind
    if not isinstance(kind, str) or not kind.strip():
        raise _refuse(schema, f"{kind!r} is no type")
    name = " ".join(kind.split()).lower()
    inner = re.fullmatch(r"array ?<(.+)>", name)
    if inner is not None:
        element = _parse_type(inner[1], schema)
        return {"type": "array", "elementType": element, "containsNull": True}
    plain, bracket, rest = name.replace(" ", "").partition("(")
    return _NAMES.get(plain, plain) + bracket + rest


def _split(text: str, schema: str) -> list[str]:
    """Cuts at the commas that stand outside of brackets and quotes."""
    parts, start, waiting, quote = [], 0, [], ""
    for position, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        elif sign in _PAIRS:
            waiting.append(_PAIRS[sign])
        elif waiting and sign == waiting[-1]:
            waiting.pop()
        elif sign == "," and not waiting:
            parts.append(text[start:position])
            start = position + 1
    if waiting or quote:
        raise _refuse(schema, f"{(quote or waiting[-1])!r} is missing at its end")
    return [*parts, text[start:]]


def _refuse(schema: Any, problem: str) -> ConfigError:
    return ConfigError(
        problem=f"files() got schema={schema!r}: {problem}.",
        advice='Expected {"label": "long", "pixels": "array<float>"}, the same as text'
        ' "label long, pixels array<float>", or a StructType.',
    )
