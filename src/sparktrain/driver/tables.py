"""From run(data=...) to the DataFrame of the barrier stage. Bad columns are refused here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.agent.feed import STRUCT_COLUMN, TABLE_COLUMN
from sparktrain.data.files import Files
from sparktrain.data.schema import (
    Column,
    Wishes,
    make_columns,
    needs_first_row,
    with_lengths,
)
from sparktrain.data.shards import list_files, split
from sparktrain.data.tables import FileTableSpec, Table, TableSpec
from sparktrain.driver.spark_facts import is_connect
from sparktrain.errors import ConfigError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The name of the one table of run(data=df).
DEFAULT_NAME = "train"


@dataclass(frozen=True)
class StagePlan:
    """What the stage's tasks are handed."""

    tables: tuple[TableSpec, ...] = ()
    #: The rows, one partition for each node; None if the stage only counts nodes.
    frame: Any = None
    #: Whether the tables share the stage as structs, behind a shuffle.
    is_mixed: bool = False
    #: What workers read themselves.
    file_tables: tuple[FileTableSpec, ...] = ()


def plan_stage(spark: SparkSession, data: Any, num_workers: int, num_nodes: int) -> StagePlan:
    """Checks the data and says how it reaches the nodes."""
    named = name_tables(data)
    files = tuple(
        plan_files(name, value, num_workers)
        for name, value in named.items()
        if isinstance(value, Files)
    )
    tables = {name: value for name, value in named.items() if isinstance(value, Table)}
    if not tables:
        return StagePlan(file_tables=files)
    specs = []
    frames = []
    for name, table in tables.items():
        frame, columns = plan_frame(name, table)
        specs.append(TableSpec(name, columns))
        frames.append(frame)
    is_plain = [table.shuffle for table in tables.values()] == [None]
    can_tell = is_plain and num_nodes == num_workers and not is_connect(spark)
    # As fields of a struct, columns may have any name.
    can_tell = can_tell and not any(has_odd_name(name) for name in frames[0].columns)
    if can_tell and is_ready(frames[0], num_workers):
        return StagePlan(tuple(specs), frames[0], is_mixed=False, file_tables=files)
    mixed = mix(frames, list(tables.values()), num_workers, num_nodes)
    return StagePlan(tuple(specs), mixed, is_mixed=True, file_tables=files)


def plan_frame(
    name: str, table: Table, known: tuple[Column, ...] | None = None
) -> tuple[Any, tuple[Column, ...]]:
    """The columns to feed, and what becomes of them; lengths as they are known, if they are."""
    fields = table.frame.schema.jsonValue()["fields"]
    columns = make_columns(name, fields, table.wishes)
    frame = table.frame.select([_select(column) for column in columns])
    if known is not None and [c.name for c in known] == [c.name for c in columns]:
        return frame, known
    return frame, _look_at_first_row(name, frame, columns)


def plan_files(name: str, files: Files, num_workers: int) -> FileTableSpec:
    """Lists the files, once for the run, and splits them over the workers."""
    from sparktrain.data.fields import find_columns

    infos = list_files(files, num_workers)
    columns = tuple(find_columns(name, files, infos))
    return FileTableSpec(name, columns, files.options, tuple(split(infos, num_workers)))


def name_tables(data: Any) -> dict[str, Table | Files]:
    """The tables by name; a plain DataFrame is one without declarations."""
    if data is None:
        return {}
    named = data if isinstance(data, Mapping) else {DEFAULT_NAME: data}
    tables: dict[str, Table | Files] = {}
    for name, value in named.items():
        if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
            raise ConfigError(
                problem=f"run() got data with the name {name!r}.",
                advice="Expected names such as 'train' and 'validation'.",
            )
        if isinstance(value, Files):
            tables[name] = value
            continue
        if not isinstance(value, Table) and not _is_frame(value):
            raise ConfigError(
                problem=f"run() got data of type {type(value).__name__} as {name!r}.",
                advice="Expected a Spark DataFrame, sparktrain.table(df, ...),"
                " sparktrain.files(path, ...), or a dict of them.",
            )
        frame = value.frame if isinstance(value, Table) else value
        if not _is_frame(frame) or frame.isStreaming:
            raise ConfigError(
                problem=f"The data {name!r} is "
                + (f"a {type(frame).__name__}." if not _is_frame(frame) else "a stream."),
                advice="Expected a DataFrame of rows that are there.",
            )
        tables[name] = value if isinstance(value, Table) else Table(value, Wishes())
    if not tables:
        raise ConfigError(
            problem="run() got an empty dict as data.", advice="Leave it out, or name a DataFrame."
        )
    return tables


def _is_frame(value: Any) -> bool:
    return hasattr(value, "mapInArrow") and hasattr(value, "schema")


def _select(column: Column) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

    found = F.col(quote(column.name))
    if column.kind == "vector":
        from pyspark.ml.functions import vector_to_array

        found = vector_to_array(found, "float32")
    return found.alias(column.name)


def has_odd_name(name: str) -> bool:
    """Whether pyspark does not find the column by its plain name."""
    return "." in name or "`" in name


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _look_at_first_row(
    table: str, frame: DataFrame, columns: Sequence[Column]
) -> tuple[Column, ...]:
    """Finds the lengths nobody has declared; the only job before the run's own."""
    names = needs_first_row(columns)
    if not names:
        return tuple(columns)
    looked_at = frame.select([quote(name) for name in names])
    # Not dropna: it takes a dot in a name for a field.
    whole = " and ".join(f"{quote(name)} is not null" for name in names)
    rows = looked_at.filter(whole).head(1)
    if not rows:
        is_empty = not looked_at.head(1)
        raise SchemaError(
            table=table,
            column="" if is_empty else ", ".join(names),
            problem="There is no row." if is_empty else "No row is without null in all of them.",
            advice="Check how the DataFrame was made." if is_empty else "Declare shapes={...}.",
        )
    found = []
    for column in columns:
        if column.name in names:
            column = with_lengths(table, column, _lengths(rows[0][column.name], column))
        found.append(column)
    return tuple(found)


def _lengths(value: Any, column: Column) -> list[int]:
    if column.kind == "image":
        return [value["height"], value["width"], value["nChannels"]]
    lengths = []
    for _ in range(max(column.depth, 1)):
        lengths.append(len(value))
        value = next((inner for inner in value if inner is not None), []) if len(value) else []
    return lengths


def is_ready(frame: DataFrame, num_workers: int) -> bool:
    """Whether a barrier stage can run on the DataFrame as it is: one partition a worker.

    Spark refuses one behind a union or a coalesce, which join partitions without a shuffle.
    """
    plan = frame._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.initialPlan()
    if _has_exchange(plan):
        return False  # to know its partitions, Spark would have to run it
    pending = [frame._jdf.queryExecution().toRdd()]
    while pending:
        rdd = pending.pop()
        if rdd.getNumPartitions() != num_workers:
            return False
        dependencies = rdd.dependencies()
        for number in range(dependencies.size()):
            dependency = dependencies.apply(number)
            if "ShuffleDependency" not in dependency.getClass().getName():
                pending.append(dependency.rdd())
    return True


def _has_exchange(plan: Any) -> bool:
    if "Exchange" in plan.nodeName():
        return True
    children = plan.children()
    return any(_has_exchange(children.apply(number)) for number in range(children.size()))


def mix(
    frames: Sequence[DataFrame], tables: Sequence[Table], num_workers: int, num_nodes: int
) -> DataFrame:
    """One DataFrame of all tables: rows dealt out evenly, in an order that timing cannot change."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = F.array(*[F.lit(key) for key in find_keys(num_nodes)[:num_workers]])
    parts = []
    for number, (frame, table) in enumerate(zip(frames, tables, strict=True)):
        row = F.monotonically_increasing_id()
        # The number of the partition in front of the number of the row; dealing goes on from
        # one partition to the next, so that small ones do not all begin with the same worker.
        turn = F.pmod(F.shiftright(row, 33) + row.bitwiseAND(2**33 - 1), F.lit(num_workers))
        order = F.xxhash64(row, F.lit(table.seed)) if table.shuffle == "spark" else row
        structs = [
            F.struct(*[F.col(quote(name)) for name in frame.columns])
            if position == number
            else F.lit(None).cast(other.schema)
            for position, other in enumerate(frames)
        ]
        parts.append(
            frame.select(
                F.lit(number).alias(TABLE_COLUMN),
                order.alias("sparktrain_order"),
                F.element_at(keys, (turn + 1).cast("int")).alias("sparktrain_key"),
                *[one.alias(STRUCT_COLUMN.format(i)) for i, one in enumerate(structs)],
            )
        )
    union = parts[0]
    for part in parts[1:]:
        union = union.union(part)
    dealt = union.repartition(num_nodes, "sparktrain_key")
    return dealt.sortWithinPartitions(TABLE_COLUMN, "sparktrain_order").drop(
        "sparktrain_order", "sparktrain_key"
    )


def find_keys(num_partitions: int) -> list[int]:
    """For each partition a number that Spark's repartition(n, column) sends there."""
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < num_partitions:
        keys.setdefault(_spark_hash(number) % num_partitions, number)
        number += 1
    return [keys[partition] for partition in range(num_partitions)]


def _spark_hash(number: int) -> int:
    """Spark's hash of an int: Murmur3 of its four bytes with seed 42, as a signed number."""
    mask = 0xFFFFFFFF

    def rotate(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & mask

    mixed = rotate(number * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    state = (rotate(42 ^ mixed, 13) * 5 + 0xE6546B64) & mask
    state ^= 4
    state = (state ^ (state >> 16)) * 0x85EBCA6B & mask
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & mask
    state ^= state >> 16
    return state - (1 << 32) if state >= 1 << 31 else state
