"""Names of classes as users give them: as plain values of one type, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.errors import ConfigError

#: A text is a row of letters, a mapping one of keys, and a set has no order.
_ODD = (str, bytes, Mapping, set, frozenset)


def check_classes(column: str, classes: Any) -> tuple[Any, ...]:
    """The names in order, () for None; raises ConfigError.

    Args:
        column: What is to be made with them; for messages.
    """
    if classes is None:
        return ()
    is_row = isinstance(classes, Iterable) and not isinstance(classes, _ODD)
    names = tuple(_to_plain(one) for one in classes) if is_row else ()
    if not names:
        raise _refuse(column, f"classes={classes!r}")
    odd = next((place for place, name in enumerate(names) if name is None), None)
    if odd is not None:
        raise _refuse(column, f"classes with None as the name of class {odd}")
    try:
        pa.array(names)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        kinds = ", ".join(sorted({type(name).__name__ for name in names}))
        raise _refuse(column, f"classes={classes!r}, of {kinds}") from error
    return names


def check_count(column: str, k: Any) -> int:
    """How many classes are wanted; raises ConfigError."""
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
        raise ConfigError(
            problem=f"The column {column!r} is to have k={k!r} classes.",
            advice="Expected a whole number of at least 1.",
        )
    return int(k)


def _to_plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name


def _refuse(column: str, problem: str) -> ConfigError:
    return ConfigError(
        problem=f"The column {column!r} got {problem}.",
        advice="Expected a list with a name for each class, all of one type, such as ['cat',"
        " 'dog']. Without classes the column has positions.",
    )
