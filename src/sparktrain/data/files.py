"""What a user declares about files: which ones, in what format, with which columns.

Nothing is opened here. What has no meaning is refused at once, where the user wrote it; what
depends on the files themselves is refused by the driver when it lists them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike, fspath
from typing import Any

from sparktrain.data.ddl import parse_schema
from sparktrain.data.schema import UNKNOWN, Column, Wishes, make_columns
from sparktrain.errors import ConfigError, SchemaError

FORMATS = ("tfrecord", "csv", "parquet")
_RECORD_ADVICE = 'Expected schema={"label": "long", "pixels": "array<float>"} or a StructType.'


@dataclass(frozen=True)
class ReadOptions:
    """What a worker has to know to read its shards; travels as JSON."""

    format: str
    #: The columns of a CSV file without a header, in its order.
    names: tuple[str, ...] = ()
    header: bool = True
    delimiter: str = ","
    quote: str | None = '"'
    bad_rows: str = "error"
    #: For fsspec. May hold keys of a store, hence in no repr.
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "names": list(self.names)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadOptions:
        return cls(**{**values, "names": tuple(values["names"])})


@dataclass(frozen=True)
class Files:
    """Files and what is declared about them; made by files()."""

    paths: tuple[str, ...]
    options: ReadOptions
    wishes: Wishes
    #: Fields as in Spark's JSON; None where the files have to tell.
    fields: tuple[Mapping[str, Any], ...] | None = None

    @property
    def format(self) -> str:
        return self.options.format

    @property
    def name(self) -> str:
        """For errors, before the files have a name in run(data=...)."""
        return ", ".join(self.paths)


def files(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    format: str,
    schema: Any = None,
    columns: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    pad: Mapping[str, Any] | None = None,
    fill: Mapping[str, Any] | None = None,
    mask: Sequence[str] = (),
    header: bool = True,
    delimiter: str = ",",
    quote: str | None = '"',
    defaults: Mapping[str, Any] | None = None,
    bad_rows: str = "error",
    storage_options: Mapping[str, Any] | None = None,
) -> Files:
    """Files for run(data=...): listed once by the driver, each read by one worker.

        st.run(train, num_workers=4, data=st.files("s3://bucket/part-*.csv", format="csv"))

    Args:
        path: A path or URL of anything fsspec knows, or several. Globs are expanded, a folder
            means the files in it; names that begin with a dot or an underscore are left out.
        format: "tfrecord", "csv" or "parquet".
        schema: Types by column, in Spark's names: a mapping, DDL text or a StructType. TFRecord
            needs it; for CSV it is guessed from the first rows; Parquet has its own.
        columns: The columns to feed. Defaults to all.
        shapes: The shape of a row, by column; None where lengths vary.
        pad: What to pad arrays of varying length with, by column.
        fill: What stands for null, by column. Without it null is an error.
        mask: Columns for which a boolean column name_is_null tells where nulls were.
        header: CSV: whether the first line of each file has the names. Without one the names
            are those of the schema, in its order.
        delimiter: CSV: what stands between cells.
        quote: CSV: what stands around cells that hold a delimiter or a line end, doubled for
            itself. None where quotes are ordinary characters.
        defaults: CSV: what an empty cell means, by column. Without it an empty cell is an empty
            text in a string column and a bad row in any other.
        bad_rows: CSV: "error" names file and line, "skip" leaves the row out and counts it.
        storage_options: Given to fsspec: keys, endpoints, users.

    Raises:
        ConfigError: A declaration has no meaning, or does not fit another.
    """
    paths = _check_paths(path)
    if format not in FORMATS:
        raise _refuse("format", format, f"Expected one of {', '.join(FORMATS)}.")
    for option, names in (("columns", columns), ("mask", mask)):
        if isinstance(names, str):
            raise _refuse(option, names, f"Expected a list: {option}=[{names!r}].")
    if format != "csv":
        _check_csv_only(format, header, delimiter, quote, defaults, bad_rows)
    _check_signs(delimiter, quote)
    if bad_rows not in ("error", "skip"):
        raise _refuse("bad_rows", bad_rows, 'Expected "error" or "skip".')
    _check_storage_options(storage_options)
    fields = _check_schema(format, schema, header)
    both = sorted(set(defaults or ()) & set(fill or ()))
    if both:
        raise _refuse("defaults and fill for", both, "An empty cell has one meaning: give one.")
    wishes = Wishes(
        columns=None if columns is None else tuple(columns),
        shapes=dict(shapes or {}),
        pad=dict(pad or {}),
        # An empty cell is CSV's null: one mechanism fills both.
        fill={**(defaults or {}), **(fill or {})},
        mask=tuple(mask),
    )
    options = ReadOptions(
        format=format,
        names=tuple(str(one["name"]) for one in fields) if fields and not header else (),
        header=header,
        delimiter=delimiter,
        quote=quote,
        bad_rows=bad_rows,
        storage_options=dict(storage_options or {}),
    )
    declared = Files(paths=paths, options=options, wishes=wishes, fields=fields)
    if fields is not None:
        choose_columns(declared.name, declared, fields)
    return declared


def choose_columns(
    table: str, files: Files, fields: Sequence[Mapping[str, Any]]
) -> tuple[Column, ...]:
    """The columns of the files from their fields; raises SchemaError for what a format cannot."""
    columns = make_columns(table, fields, files.wishes)
    return tuple(_fit_format(table, files.format, column) for column in columns)


def _fit_format(table: str, format: str, column: Column) -> Column:
    def refuse(problem: str, advice: str) -> SchemaError:
        return SchemaError(table=table, column=column.name, problem=problem, advice=advice)

    if column.kind in ("vector", "image"):
        raise refuse(
            f"A {column.kind} is not read from files.",
            "Store an array: vector_to_array(column) in Spark, or the bytes of the image.",
        )
    if format == "csv":
        if column.depth:
            raise refuse(
                "A cell of a CSV file holds no array.",
                "Declare one column for each value; ctx.dataset(features=[...]) takes many.",
            )
        if column.dtype == "string" and column.fill is None:
            return replace(column, fill=b"" if column.kind == "binary" else "")
    if format == "tfrecord":
        if UNKNOWN in column.shape:
            raise refuse(
                "The length of its arrays is not declared.",
                f"Give shapes={{{column.name!r}: (100,)}}, or (None,) where lengths vary.",
            )
        if column.depth > 1 and not column.is_dense:
            raise refuse(
                f"A feature of a TFRecord is flat, but arrays are nested {column.depth} deep.",
                "Declare a shape of whole numbers, or one level with (None,).",
            )
    return column


def _check_paths(path: Any) -> tuple[str, ...]:
    paths = [path] if isinstance(path, (str, PathLike)) else path
    is_list = isinstance(paths, Sequence) and len(paths) > 0
    if not is_list or not all(isinstance(one, (str, PathLike)) and fspath(one) for one in paths):
        raise _refuse("path", path, 'Expected a path, a URL or a list of them: "data/*.csv".')
    return tuple(fspath(one) for one in paths)


def _check_csv_only(
    format: str, header: Any, delimiter: Any, quote: Any, defaults: Any, bad_rows: Any
) -> None:
    given = {
        "header": header is not True and header,
        "delimiter": delimiter != "," and delimiter,
        "quote": quote != '"' and repr(quote),
        "defaults": defaults,
        "bad_rows": bad_rows != "error" and bad_rows,
    }
    for option, value in given.items():
        if value or (option == "header" and header is not True):
            advice = "Give fill={...}." if option == "defaults" else "Leave it out."
            raise _refuse(option, value, f"It is for CSV, and the format is {format!r}. {advice}")


def _check_signs(delimiter: Any, quote: Any) -> None:
    for option, sign in (("delimiter", delimiter), ("quote", quote)):
        if option == "quote" and sign is None:
            continue
        is_sign = isinstance(sign, str) and len(sign) == 1 and sign.isascii()
        if not is_sign or sign in "\r\n":
            raise _refuse(option, sign, "Expected one ASCII character that is no line end.")
    if delimiter == quote:
        raise _refuse("quote", quote, "Expected another character than the delimiter.")


def _check_storage_options(options: Any) -> None:
    """They travel to the trainers as JSON. Names only in the error: values may be secrets."""
    for name, value in dict(options or {}).items():
        try:
            json.dumps({name: value})
        except (TypeError, ValueError) as error:
            raise ConfigError(
                problem=f"files() got storage_options[{name!r}] of type {type(value).__name__}.",
                advice="Expected plain values: text, numbers, lists and dicts of them.",
            ) from error


def _check_schema(format: str, schema: Any, header: bool) -> tuple[Mapping[str, Any], ...] | None:
    if format == "parquet" and schema is not None:
        advice = "Parquet files carry their own schema: leave it out, and choose with columns=[...]"
        raise _refuse("schema", schema, f"{advice}.")
    if schema is None and format == "tfrecord":
        raise _refuse("schema", None, f"TFRecord files do not tell their types. {_RECORD_ADVICE}")
    if schema is None and format == "csv" and not header:
        raise _refuse("schema", None, "Without a header the names of columns come from a schema.")
    return None if schema is None else tuple(parse_schema(schema))


def _refuse(option: str, value: Any, advice: str) -> ConfigError:
    return ConfigError(problem=f"files() got {option}={value!r}.", advice=advice)
