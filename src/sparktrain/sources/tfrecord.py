"""`spark.read.format("tfrecord")`: what Spark asks a data source for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparktrain.data.example_infer import Inference
from sparktrain.data.example_types import to_kind
from sparktrain.data.partition_folders import infer_types
from sparktrain.data.record_blocks import Damage, read_blocks
from sparktrain.data.storage import open_plain, open_store
from sparktrain.errors import ConfigError
from sparktrain.sources.listing import Listing, list_tree
from sparktrain.sources.options import (
    BYTE_ARRAY,
    BYTE_ARRAY_COLUMN,
    FAIL,
    ReadOptions,
    WriteOptions,
    parse_read_options,
    parse_write_options,
)
from sparktrain.sources.reader import RecordSourceReader
from sparktrain.sources.writer import RecordSourceWriter
from sparktrain.tfrecord import describe


class RecordSource(DataSource):
    """TFRecord files as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        return "tfrecord"

    def schema(self) -> StructType:
        options = parse_read_options(self.options)
        listing = list_tree(options.paths)
        types = _infer(options, listing)
        folders = infer_types([values for _, values in listing.files])
        if not types and not folders:
            raise ConfigError(
                problem=f"No record was found in {', '.join(options.paths)} to tell the schema.",
                advice='Give it: spark.read.schema("label long, x array<float>").format(...).',
            )
        return _make_schema({**types, **folders})

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options)
        listing = list_tree(options.paths)
        folders = {field.name: field.dataType.typeName() for field in schema.fields}
        found = infer_types([values for _, values in listing.files])
        arrow = to_arrow_schema(schema, timezone="UTC")
        return RecordSourceReader(
            options, listing, arrow, {name: folders.get(name, kind) for name, kind in found.items()}
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        names = [field.name for field in schema.fields]
        options = parse_write_options(self.options, names)
        check_columns(schema, options)
        return RecordSourceWriter(options, overwrite)


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
    for field in to_arrow_schema(StructType(inside), timezone="UTC"):
        to_kind(field.name, pa.array([], field.type))


def _infer(options: ReadOptions, listing: Listing) -> Mapping[str, str]:
    if options.record_type == BYTE_ARRAY:
        return {BYTE_ARRAY_COLUMN: "binary"}
    inference = Inference()
    step = max(round(1 / options.sampling_ratio), 1)
    files = listing.files
    # Spread over all files, so that those written last count as well.
    spread = max(-(-len(files) // options.max_infer_files), 1)
    for info, _ in files[::spread]:
        filesystem, _ = open_store(info.url, {})
        with open_plain(filesystem, info.path) as stream:
            blocks = read_blocks(
                stream,
                verify=options.verify,
                on_damage=_raise_or_ignore(options.mode, info.path),
            )
            for block, _ in itertools.islice(blocks, 0, None, step):
                inference.add(block)
    return inference.types()


def _raise_or_ignore(mode: str, path: str) -> Any:
    def tell(damage: Damage) -> None:
        if mode == FAIL:
            raise describe(path, damage)

    return tell


def _make_schema(types: Mapping[str, str]) -> StructType:
    fields = []
    for name, kind in types.items():
        element = kind.removeprefix("array<").removesuffix(">")
        spark: Any = element
        if kind != element:
            spark = {"type": "array", "elementType": element, "containsNull": True}
        fields.append({"name": name, "type": spark, "nullable": True, "metadata": {}})
    return StructType.fromJson({"type": "struct", "fields": fields})
