"""What a user gives as data: a DataFrame, plain or with declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.data.files import ReadOptions
from sparktrain.data.schema import Column, Wishes
from sparktrain.data.shards import Shard
from sparktrain.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Table:
    """A DataFrame and what is declared about it; made by table()."""

    frame: Any
    wishes: Wishes
    #: "spark": all rows are mixed once, by Spark. None: as they come.
    shuffle: str | None = None
    seed: int = 0


def table(
    frame: DataFrame,
    *,
    columns: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    pad: Mapping[str, Any] | None = None,
    fill: Mapping[str, Any] | None = None,
    mask: Sequence[str] = (),
    shuffle: str | None = None,
    seed: int = 0,
) -> Table:
    """A DataFrame with declarations, for run(data=...). docs/types.md says what becomes of types.

        st.run(train, num_workers=2, data=st.table(df, shapes={"image": (28, 28, 1)}))

    Args:
        frame: The DataFrame.
        columns: The columns to feed. Defaults to all.
        shapes: The shape of a row, by column; None where lengths vary.
        pad: What to pad arrays of varying length with, by column.
        fill: What stands for null, by column. Without it null is an error.
        mask: Columns for which a boolean column name_is_null tells where nulls were.
        shuffle: "spark" has Spark mix all rows once, over all workers. Defaults to None.
        seed: For shuffle="spark".

    Raises:
        ConfigError: A declaration has no meaning. run() checks the columns themselves.
    """
    if shuffle not in (None, "spark"):
        raise ConfigError(
            problem=f"table() got shuffle={shuffle!r}.",
            advice='Expected "spark" or None; a window is given to ctx.dataset(shuffle=10_000).',
        )
    if isinstance(columns, str) or isinstance(mask, str):
        raise ConfigError(
            problem=f"table() got {columns if isinstance(columns, str) else mask!r}.",
            advice="Expected a list of column names.",
        )
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(problem=f"table() got seed={seed!r}.", advice="Expected a whole number.")
    wishes = Wishes(columns=columns, shapes=shapes, pad=pad, fill=fill, mask=tuple(mask))
    return Table(frame, wishes, shuffle, seed)


@dataclass(frozen=True)
class FileTableSpec:
    """One table that workers read from files themselves."""

    name: str
    columns: tuple[Column, ...]
    options: ReadOptions
    #: By worker; an evaluator reads all.
    shards: tuple[tuple[Shard, ...], ...]

    def to_dict(self, rank: int | None) -> dict[str, Any]:
        """As the trainer of that rank gets it."""
        own = self.shards[rank] if rank is not None else sum(self.shards, ())
        return {
            "name": self.name,
            "columns": [column.to_dict() for column in self.columns],
            "options": self.options.to_dict(),
            "shards": [shard.to_dict() for shard in own],
        }


@dataclass(frozen=True)
class TableSpec:
    """One table as agents and trainers know it."""

    name: str
    columns: tuple[Column, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableSpec:
        columns = tuple(Column.from_dict(column) for column in values["columns"])
        return cls(values["name"], columns)
