"""A row of Spark as a function gets it, where Spark is not there."""

from __future__ import annotations

from typing import Any


class FedRow(tuple[Any, ...]):
    """A tuple whose fields have names: row.label, row["label"] and row[0] are the same."""

    __fields__: tuple[str, ...] = ()

    @classmethod
    def make(cls, names: tuple[str, ...], values: tuple[Any, ...]) -> FedRow:
        row = cls(values)
        row.__fields__ = names
        return row

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.__fields__:
            raise AttributeError(name)
        return self[self.__fields__.index(name)]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.__fields__:
                raise KeyError(key)
            key = self.__fields__.index(key)
        return super().__getitem__(key)

    def __contains__(self, item: object) -> bool:
        return item in self.__fields__ if self.__fields__ else super().__contains__(item)

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        values = map(_to_plain, self) if recursive else self
        return dict(zip(self.__fields__, values, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return (FedRow.make, (self.__fields__, tuple(self)))

    def __repr__(self) -> str:
        if not self.__fields__:
            return f"<Row({', '.join(map(repr, self))})>"
        pairs = zip(self.__fields__, self, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"


def _to_plain(value: Any) -> Any:
    """Rows within a value as dicts."""
    if isinstance(value, FedRow) and value.__fields__:
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_to_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _to_plain(one) for key, one in value.items()}
    return value
