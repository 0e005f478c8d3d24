"""The classes of a column of labels: found or checked by one job of Spark, before the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.data.schema import Column
from sparktrain.driver.tables import quote
from sparktrain.errors import SchemaError
from sparktrain.fit_spec import LabelSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: More classes than this are most often a column of something else.
MAX_CLASSES = 10_000
_NO_ROW = "Check how the DataFrame was made."
_TIMES = ("date", "timestamp", "timestamp_ntz")
#: Spark's types of names of classes; those of bytes are read as text.
TEXTS = ("string", "binary")


def find_classes(
    tables: dict[str, DataFrame], output: str, column: Column, classes: Sequence[Any] | None
) -> LabelSpec:
    """What is known of a column of labels of classes; raises SchemaError for one that is none.

    Args:
        tables: By name: all that have labels.
        classes: As the user gave them; None to find them.
    """
    if column.shape:
        # Places of which one is one: the model's output says how many.
        return LabelSpec(column.name, output, classes=tuple(classes or ()))
    if column.kind in _TIMES:
        raise _refuse(
            "train",
            column,
            f"It is a {column.kind}, which is no class.",
            "Expected strings or whole numbers; cast it to string in Spark to make each value a"
            " class.",
        )
    if classes is not None and len(set(classes)) != len(classes):
        raise _refuse("train", column, f"classes has one twice: {list(classes)}.", "Each once.")
    if column.dtype == "string":
        if odd := [one for one in classes or () if not isinstance(one, str)]:
            raise _refuse(
                "train",
                column,
                f"It has strings, but classes has {odd[0]!r}.",
                f"Give them as strings: classes={[str(one) for one in (classes or ())[:20]]}.",
            )
        given = tuple(classes) if classes is not None else _list_classes(tables, column)
        if classes is not None:
            _check_members(tables, column, given)
        return LabelSpec(column.name, output, len(given), given)
    if classes is not None and not all(isinstance(one, str) for one in classes):
        _check_members(tables, column, tuple(classes))
        return LabelSpec(column.name, output, len(classes), tuple(classes))
    highest = _check_numbers(tables, column)
    if classes is not None and highest >= len(classes):
        raise _refuse(
            "train",
            column,
            f"It has the label {highest:g}, but classes names {len(classes)}.",
            f"Expected whole numbers from 0 to {len(classes) - 1}.",
        )
    named = tuple(classes or ())
    return LabelSpec(column.name, output, len(named) or int(highest) + 1, named)


def refuse_texts(column: Column) -> None:
    """That labels are no arrays of texts: classes are found of one text a row."""
    if column.shape and column.dtype == "string":
        raise _refuse(
            "train",
            column,
            "It has arrays of texts as labels.",
            "Expected one text a row, or arrays of numbers: of positions of classes, one for each"
            " place of a sequence, or of a value for each class.",
        )


def needs_lookup(spec: LabelSpec, column: Column) -> bool:
    """Whether labels are values of classes, and not yet positions of them."""
    if not spec.classes or column.shape:
        return False
    return column.dtype == "string" or not all(isinstance(one, str) for one in spec.classes)


def to_index(name: str, classes: Sequence[Any]) -> Any:
    """The position of a label's class; null for a label that is none."""
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

    values = F.array(*[F.lit(one) for one in classes])
    place = F.array_position(values, _read(name, classes))
    return F.when(place > 0, (place - 1).cast("int"))


def _read(name: str, classes: Sequence[Any]) -> Any:
    """The column as it is compared with classes: bytes as text."""
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(quote(name))
    return column.cast("string") if all(isinstance(one, str) for one in classes) else column


def _list_classes(tables: dict[str, DataFrame], column: Column) -> tuple[str, ...]:
    found: Any = None
    for frame in tables.values():
        labels = frame.select(quote(column.name))
        found = labels if found is None else found.union(labels)
    values = [row[0] for row in found.distinct().limit(MAX_CLASSES + 1).collect()]
    if len(values) > MAX_CLASSES:
        raise _refuse(
            "train",
            column,
            f"It has more than {MAX_CLASSES} different values.",
            "Is it the column of labels? Else give classes=[...].",
        )
    if None in values:
        raise _refuse("train", column, "It has a null.", "Leave out rows without a label.")
    if not values:
        raise _refuse("train", column, "There is no row.", _NO_ROW)
    return tuple(sorted(_to_text(one, column) for one in values))


def _to_text(value: Any, column: Column) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise _refuse(
            "train",
            column,
            f"It has the bytes {bytes(value)[:40]!r}, which are no text.",
            "Expected labels as strings or whole numbers, or bytes of UTF-8.",
        ) from error


def _check_members(tables: dict[str, DataFrame], column: Column, classes: tuple[Any, ...]) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    for table, frame in tables.items():
        label = F.col(quote(column.name))
        is_known = _read(column.name, classes).isin(list(classes))
        unknown = frame.filter(label.isNull() | ~is_known).select(label).head(1)
        if unknown:
            raise _refuse(
                table,
                column,
                f"It has the label {unknown[0][0]!r}, which is none of the classes.",
                f"classes has {', '.join(map(repr, classes[:20]))}"
                + (", ..." if len(classes) > 20 else "")
                + ". Add it, or leave out such rows.",
            )


def _check_numbers(tables: dict[str, DataFrame], column: Column) -> float:
    """The highest label; labels must be whole numbers from 0 on."""
    from pyspark.sql import functions as F  # noqa: N812

    highest = -1.0
    for table, frame in tables.items():
        label = F.col(quote(column.name)).cast("double")
        is_odd = F.isnan(label) | (label != F.floor(label)) | label.isNull()
        shown = F.coalesce(F.col(quote(column.name)).cast("string"), F.lit("null"))
        row = frame.select(
            F.min(label).alias("low"),
            F.max(label).alias("high"),
            F.count(F.lit(1)).alias("rows"),
            F.max(F.when(is_odd, shown)).alias("odd"),
        ).collect()[0]
        if not row["rows"]:
            raise _refuse(table, column, "There is no row.", _NO_ROW)
        bad = row["odd"]
        if bad is None and row["low"] < 0:
            bad = f"{row['low']:g}"
        if bad is None and row["high"] >= 2**31:
            bad = f"{row['high']:g}"
        if bad is not None:
            raise _refuse(
                table,
                column,
                f"It has the label {bad}; labels go from {row['low']} to {row['high']}.",
                "Expected whole numbers from 0 on, one for each class; strings are given numbers"
                " by themselves, other numbers by classes=[...].",
            )
        highest = max(highest, float(row["high"]))
    return highest


def _refuse(table: str, column: Column, problem: str, advice: str) -> SchemaError:
    return SchemaError(table=table, column=column.name, problem=problem, advice=advice)
