"""The others that read and write TFRecord files in Spark, for bench/tfrecord.py."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JAR = "com.linkedin.sparktfrecord:spark-tfrecord_2.13:0.7.0"
#: Its name `tfrecord` would be ambiguous here: the package is not.
JAR_FORMAT = "com.linkedin.spark.datasources.tfrecord"


def fetch_jar() -> str | None:
    """The jar from Maven's registry; None where it is not to be had."""
    if shutil.which("mvn") is None:
        return None
    goal = f"-Dartifact={JAR}"
    answer = subprocess.run(
        ["mvn", "-q", "-B", "dependency:get", goal, "-Dtransitive=false"], capture_output=True
    )
    group, name, version = JAR.split(":")
    path = Path.home() / ".m2/repository" / group.replace(".", "/") / name / version
    path /= f"{name}-{version}.jar"
    return str(path) if answer.returncode == 0 and path.exists() else None


def make_example_class() -> Any:
    """tf.train.Example without TensorFlow, whose import would be measured too."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="proto3")

    def add(name: str, fields: list[tuple[str, int, int, str]], oneof: bool = False) -> Any:
        message = file.message_type.add(name=name)
        if oneof:
            message.oneof_decl.add(name="kind")
        for number, (label, kind, repeated, type_name) in enumerate(fields, 1):
            one = message.field.add(
                name=label,
                number=number,
                type=kind,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
            )
            if type_name:
                one.type_name = f".e.{type_name}"
            if oneof:
                one.oneof_index = 0
        return message

    add("BytesList", [("value", field.TYPE_BYTES, 1, "")])
    add("FloatList", [("value", field.TYPE_FLOAT, 1, "")])
    add("Int64List", [("value", field.TYPE_INT64, 1, "")])
    message = field.TYPE_MESSAGE
    add(
        "Feature",
        [
            ("bytes_list", message, 0, "BytesList"),
            ("float_list", message, 0, "FloatList"),
            ("int64_list", message, 0, "Int64List"),
        ],
        oneof=True,
    )
    features = add("Features", [("feature", message, 1, "Features.FeatureEntry")])
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=message, type_name=".e.Feature", label=field.LABEL_OPTIONAL
    )
    add("Example", [("features", message, 0, "Features")])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("e.Example"))


def write_rows(example_class: Any, rows: Iterator[dict[str, Any]], path: str) -> int:
    """An Example for each row, into a new file of the folder."""
    import os
    import uuid

    from sparktrain.data.records import pack_record

    os.makedirs(path, exist_ok=True)  # noqa: PTH103 (travels by value)
    count = 0
    with open(f"{path}/{uuid.uuid4().hex}", "wb") as file:  # noqa: PTH123
        for row in rows:
            example = example_class()
            feature = example.features.feature
            for name, value in row.items():
                values = value if isinstance(value, list) else [value]
                first = values[0] if values else 0
                if isinstance(first, float):
                    feature[name].float_list.value.extend(values)
                elif isinstance(first, int):
                    feature[name].int64_list.value.extend(values)
                else:
                    raw = [v.encode() if isinstance(v, str) else bytes(v) for v in values]
                    feature[name].bytes_list.value.extend(raw)
            file.write(pack_record(example.SerializeToString()))
            count += 1
    return count


def read_rows(example_class: Any, path: str, types: dict[str, tuple[str, str]]) -> Iterator[Any]:
    """A list of values for each record of a file; types are those of columns and of elements."""
    from sparktrain import tfrecord

    lists = {"float": "float_list", "long": "int64_list"}
    with open(path, "rb") as file:  # noqa: PTH123
        for record in tfrecord.RecordReader(file):
            feature = example_class.FromString(record).features.feature
            row: list[Any] = []
            for name, (kind, element) in types.items():
                values = list(getattr(feature[name], lists.get(element, "bytes_list")).value)
                if element == "string":
                    values = [value.decode() for value in values]
                row.append(values if kind == "array" else values[0])
            yield row


def write_by_rows(frame: Any, path: str) -> Any:
    """Something to collect, which has then written the files: rows of an RDD, as by hand."""

    def write(rows: Iterator[Any]) -> Iterator[int]:
        yield write_rows(make_example_class(), (row.asDict() for row in rows), path)

    return frame.rdd.mapPartitions(write)


def write_by_batches(frame: Any, path: str) -> Any:
    """The same with rows that come in Arrow batches."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        rows = (row for batch in batches for row in batch.to_pylist())
        count = write_rows(make_example_class(), rows, path)
        yield pa.record_batch({"rows": pa.array([count])})

    return frame.mapInArrow(write, "rows long")


def read_by_rows(spark: Any, path: str, schema: Any) -> Any:
    """The files as a DataFrame of an RDD of rows."""
    types, paths = find_types(schema), find_paths(path)

    def read(found: Iterator[str]) -> Iterator[Any]:
        example_class = make_example_class()
        for one in found:
            yield from read_rows(example_class, one, types)

    rows = spark.sparkContext.parallelize(paths, len(paths)).mapPartitions(read)
    return spark.createDataFrame(rows, schema)


def read_by_batches(spark: Any, path: str, schema: Any) -> Any:
    """The same with rows that go back in Arrow batches."""
    types, paths = find_types(schema), find_paths(path)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import itertools

        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        example_class, arrow = make_example_class(), to_arrow_schema(schema)
        for batch in batches:
            for one in batch.column(0).to_pylist():
                rows = read_rows(example_class, one, types)
                while some := list(itertools.islice(rows, 10_000)):
                    columns = dict(zip(types, zip(*some, strict=True), strict=True))
                    yield pa.RecordBatch.from_pydict(columns, schema=arrow)

    frame = spark.createDataFrame([(one,) for one in paths], "path string")
    return frame.repartition(len(paths)).mapInArrow(read, schema)


def find_types(schema: Any) -> dict[str, tuple[str, str]]:
    return {
        field.name: (
            field.dataType.typeName(),
            getattr(field.dataType, "elementType", field.dataType).typeName(),
        )
        for field in schema.fields
    }


def find_paths(path: str) -> list[str]:
    return sorted(str(one) for one in Path(path).iterdir())
