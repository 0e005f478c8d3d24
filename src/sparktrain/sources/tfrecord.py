"""`spark.read.format("tfrecord")`: what Spark asks a data source for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType, UserDefinedType

from sparktrain.data.example_infer import Inference
from sparktrain.data.example_types import find_depth, has_doubles, to_kind
from sparktrain.data.listing import Listing, list_tree
from sparktrain.data.partition_folders import infer_types
from sparktrain.data.record_blocks import Damage, read_blocks
from sparktrain.data.records import describe
from sparktrain.data.storage import open_plain, open_store
from sparktrain.errors import ConfigError
from sparktrain.sources.folder import OutputFolder
from sparktrain.sources.options import (
    BYTE_ARRAY,
    BYTE_ARRAY_COLUMN,
    ERROR,
    EXAMPLE,
    FAIL,
    REFUSE,
    SEQUENCE,
    ReadOptions,
    WriteOptions,
    parse_read_options,
    parse_write_options,
)
from sparktrain.sources.reader import BatchReader, RecordSourceReader
from sparktrain.sources.writer import RecordSourceWriter
from sparktrain.tfrecord import HAS_FILES


class RecordSource(DataSource):
    """TFRecord files as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        return "tfrecord"

    def schema(self) -> StructType:
        options = parse_read_options(self.options)
        listing = list_tree(options.paths, options.storage)
        types = _infer(options, listing)
        folders = infer_types([values for _, values in listing])
        missing = [name for name in options.columns if name not in {**types, **folders}]
        if missing:
            raise ConfigError(
                problem=f"No record that was looked into has a feature {missing[0]!r}.",
                advice=f"Found were {', '.join(types) or 'none'} of the columns that were asked"
                " for: leave it out, or give a schema.",
            )
        if options.columns:
            folders = {name: kind for name, kind in folders.items() if name in options.columns}
        if not types and not folders:
            raise ConfigError(
                problem=f"No record was found in {', '.join(options.paths)} to tell the schema.",
                advice='Give it: spark.read.schema("label long, x array<float>").format(...).',
            )
        return _make_schema({**types, **folders})

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options)
        check_schema(schema)
        return RecordSourceReader(
            BatchReader(options, schema), list_tree(options.paths, options.storage)
        )

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 (Spark's name)
        try:
            from sparktrain.sources.stream_reader import RecordStreamReader
        except ImportError as error:
            raise _too_old("reading a stream", "4.2") from error
        options = parse_read_options(self.options)
        check_schema(schema)
        return RecordStreamReader(options, BatchReader(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = self._check_write(schema)
        if OutputFolder(options).is_file():
            raise ConfigError(
                problem=f"{options.path} is a file.", advice="Expected the path of a folder."
            )
        if options.if_exists == ERROR and OutputFolder(options).has_files():
            raise ConfigError(
                problem=f"{options.path} {HAS_FILES}.",
                advice="Write to another folder, or with the mode append or overwrite.",
            )
        return RecordSourceWriter(options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        try:
            from sparktrain.sources.stream_writer import RecordStreamWriter
        except ImportError as error:
            raise _too_old("writing a stream", "4.1") from error
        return RecordStreamWriter(self._check_write(schema), overwrite)

    def _check_write(self, schema: StructType) -> WriteOptions:
        options = parse_write_options(self.options, [field.name for field in schema.fields])
        check_columns(schema, options)
        return options


def check_schema(schema: StructType, deepest: int = 2) -> None:
    """Refuses types that have no place in the files, and that nothing there can be read as."""
    for column in schema.fields:
        _refuse_structs(column)
    for field in to_arrow_schema(schema, timezone="UTC"):
        to_kind(field.name, pa.array([], field.type))
        if find_depth(field.type) > deepest:
            raise ConfigError(
                problem=f"Column {field.name!r} has the type {field.type}, which"
                f" {SEQUENCE if deepest > 1 else EXAMPLE}s have no place for.",
                advice='Arrays of arrays are feature lists of option("recordType",'
                ' "SequenceExample"); there are none of more than two dimensions.',
            )


def _refuse_structs(column: StructField) -> None:
    """One that looks like a vector of Spark ML in Arrow is none."""
    kind: Any = column.dataType
    while isinstance(kind, ArrayType):
        kind = kind.elementType
    is_vector = isinstance(kind, UserDefinedType) and type(kind).__name__ == "VectorUDT"
    if isinstance(kind, (StructType, UserDefinedType)) and not is_vector:
        raise ConfigError(
            problem=f"Column {column.name!r} has the type {column.dataType.simpleString()}, which"
            " TFRecord has no place for.",
            advice="Select the fields of a struct as columns of their own.",
        )


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuses columns that have no place in the files, before any job."""
    inside = [field for field in schema.fields if field.name not in options.partition_by]
    if options.record_type == BYTE_ARRAY:
        if [field.dataType.typeName() for field in inside] != ["binary"]:
            raise ConfigError(
                problem="ByteArray files have one column, of bytes; the DataFrame has"
                f" {', '.join(f'{field.name} {field.dataType.typeName()}' for field in inside)}.",
                advice="Select that one column.",
            )
        return
    if not inside:
        raise ConfigError(
            problem="The DataFrame has no column.", advice="Select what the records shall have."
        )
    check_schema(StructType(inside), 2 if options.record_type == SEQUENCE else 1)
    for field in to_arrow_schema(StructType(inside), timezone="UTC"):
        if options.doubles == REFUSE and has_doubles(field.type):
            raise ConfigError(
                problem=f"Column {field.name!r} has doubles, and the option doubles is refuse:"
                " TFRecord files have no place for more than a float.",
                advice='Cast it to float, or to string for all digits, or use option("doubles",'
                ' "round").',
            )
    for column in schema.fields:
        if column.name in options.partition_by and column.dataType.typeName() in _NO_FOLDERS:
            raise ConfigError(
                problem=f"Column {column.name!r} has the type {column.dataType.typeName()}, which"
                " cannot be the name of a folder.",
                advice="Partition by numbers, strings, dates, timestamps or booleans.",
            )


#: Types of columns whose values are no names of folders.
_NO_FOLDERS = ("binary", "array", "map", "struct", "udt", "void", "variant")


def _too_old(what: str, wanted: str) -> ConfigError:
    import pyspark

    return ConfigError(
        problem=f"This Spark is {pyspark.__version__}, and {what} needs Spark {wanted}.",
        advice="Use a newer Spark, or foreachBatch.",
    )


def _infer(options: ReadOptions, listing: Listing) -> Mapping[str, str]:
    if options.record_type == BYTE_ARRAY:
        return {BYTE_ARRAY_COLUMN: "binary"}
    inference = Inference(options.columns or None)
    # Spread over all files, so that those written last count as well.
    count = min(options.max_infer_files, len(listing))
    chosen = {round(place) for place in np.linspace(0, len(listing) - 1, count)}
    for number in sorted(chosen):
        info, _ = listing[number]
        filesystem, _ = open_store(info.url, options.storage)
        with open_plain(filesystem, info.path) as stream:
            blocks = read_blocks(
                stream,
                verify=options.verify,
                on_damage=_raise_or_ignore(options.mode, info.path),
            )
            for place, (block, _) in enumerate(blocks):
                if place == 0 or int(place * options.sampling_ratio) > int(
                    (place - 1) * options.sampling_ratio
                ):
                    inference.add(block)
    types = inference.types()
    if not types and inference.num_malformed:
        raise ConfigError(
            problem=f"{inference.num_malformed} of {inference.num_rows} records in"
            f" {', '.join(options.paths)} are no Examples.",
            advice='option("recordType", "ByteArray") reads records as they are.',
        )
    return types


def _raise_or_ignore(mode: str, path: str) -> Any:
    def tell(damage: Damage) -> None:
        if mode == FAIL:
            raise describe(path, damage)

    return tell


def _make_schema(types: Mapping[str, str]) -> StructType:
    fields = [
        {"name": name, "type": _make_type(kind), "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def _make_type(kind: str) -> Any:
    if not kind.startswith("array<"):
        return kind
    element = kind.removeprefix("array<").removesuffix(">")
    return {"type": "array", "elementType": _make_type(element), "containsNull": True}
