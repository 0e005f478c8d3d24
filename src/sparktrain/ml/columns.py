"""Which columns of a DataFrame a fit takes, checked against its schema before any job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.data.schema import Column, Wishes, make_columns
from sparktrain.errors import ConfigError, SchemaError
from sparktrain.fit_spec import TRAIN, VALIDATION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Chosen:
    """The columns by what they are for.

    Attributes:
        feeds: Input -> columns, if the user named inputs.
        labels: (output, column); the output is empty for the model's only one.
    """

    features: tuple[str, ...]
    feeds: Mapping[str, tuple[str, ...]] | None
    labels: tuple[tuple[str, str], ...]
    weight: str | None

    @property
    def names(self) -> tuple[str, ...]:
        wished = [*self.features, *(column for _, column in self.labels)]
        wished += [self.weight] if self.weight is not None else []
        return tuple(dict.fromkeys(wished))


def choose(features: Any, label: Any, weight: str | None) -> Chosen:
    """The columns as the Params name them; raises ConfigError for what is not given."""
    for name, value in (("featureCols", features), ("labelCol", label)):
        if not value:
            raise ConfigError(
                problem=f"The estimator has no {name}.",
                advice=f"Give {name}= the names of columns of the DataFrame.",
            )
    feeds = None
    if isinstance(features, Mapping):
        feeds = {name: tuple(columns) for name, columns in features.items()}
        features = [column for columns in feeds.values() for column in columns]
    named = label.items() if isinstance(label, Mapping) else [("", label)]
    return Chosen(tuple(dict.fromkeys(features)), feeds, tuple(named), weight)


def check_columns(
    table: str, frame: DataFrame, chosen: Chosen, wishes: Mapping[str, Any]
) -> dict[str, Column]:
    """The columns of a table by name; raises SchemaError for one that is missing or no tensor."""
    fields = frame.schema.jsonValue()["fields"]
    known = [str(field["name"]) for field in fields]
    roles = [*((name, "featureCols") for name in chosen.features)]
    roles += [(name, "labelCol") for _, name in chosen.labels]
    roles += [(chosen.weight, "weightCol")] if chosen.weight is not None else []
    for name, role in roles:
        if name not in known:
            raise SchemaError(
                table=table,
                column=name,
                problem=f"{role} names it, but it is not there.",
                advice=f"The columns are {', '.join(known)}.",
            )
    found = {
        one.name: one for one in make_columns(table, fields, Wishes(columns=chosen.names, **wishes))
    }
    weight = found[chosen.weight] if chosen.weight is not None else None
    if weight is not None and (weight.shape or weight.dtype in ("string", "bool")):
        raise SchemaError(
            table=table,
            column=weight.name,
            problem="weightCol names it, but it does not hold one number a row.",
            advice="Expected a column of numbers.",
        )
    return found


def check_alike(train: Mapping[str, Column], validation: Mapping[str, Column]) -> None:
    """That rows to validate with have the form of those to train on; raises SchemaError."""
    for name, wanted in train.items():
        found = validation[name]
        if (_describe(found), len(found.shape)) != (_describe(wanted), len(wanted.shape)):
            raise SchemaError(
                table=VALIDATION,
                column=name,
                problem=f"It is {_describe(found)}{_nest(found)}, but {TRAIN!r} has"
                f" {_describe(wanted)}{_nest(wanted)}.",
                advice="Cast it in Spark as it is in the rows to train on.",
            )


def _describe(column: Column) -> str:
    """What a tensor's type is a kind of: models take numbers of any width."""
    if column.dtype == "string":
        return "text"
    if column.kind == "image" or column.dtype == "uint8":
        return "bytes with a shape"
    return "fractional numbers" if column.dtype.startswith("float") else "whole numbers"


def _nest(column: Column) -> str:
    return f" in arrays of {len(column.shape)} dimensions" if column.shape else ""


def check_names(what: str, names: Sequence[str], chosen: Chosen) -> None:
    """That declarations are about columns that are fed."""
    for name in names:
        if name not in chosen.names:
            raise SchemaError(
                table=TRAIN,
                column=name,
                problem=f"{what} names it, but it is none of the columns that are fed.",
                advice=f"These are {', '.join(chosen.names)}.",
            )
