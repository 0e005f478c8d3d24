"""From the type of a column to that of the model: a number it cannot hold is refused, not cut.

As in scoring. A column of doubles may well feed an input of whole numbers: what StringIndexer
writes is such a one. So values are looked at, and only where the type of the column has more of
them than that of the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Limits = tuple[int, int]


def find_limits(source: str, dtype: str) -> Limits | None:
    """The lowest and the highest number that may be cast; None where all of them may."""
    if not dtype.startswith(("int", "uint")) or source in ("string", "bool", dtype):
        return None
    limits = np.iinfo(dtype)
    if source.startswith("float"):
        return int(limits.min), int(limits.max)
    own = np.iinfo(source)
    if own.min >= limits.min and own.max <= limits.max:
        return None
    return max(int(own.min), int(limits.min)), min(int(own.max), int(limits.max))


def cast(tensor: Any, dtype: str) -> Any:
    """The tensor in that type, if it can hold its values; else the batch is an error."""
    import tensorflow as tf

    source = tensor.dtype.name
    if source == dtype:
        return tensor
    limits = find_limits(source, dtype)
    return tf.cast(tensor if limits is None else check(tensor, limits), dtype)


def check(tensor: Any, limits: Limits) -> Any:
    """The tensor, if its values are whole numbers within the limits."""
    import tensorflow as tf

    values = tensor.flat_values if isinstance(tensor, tf.RaggedTensor) else tensor
    if values.dtype == tf.bool:
        return tensor  # nought or one
    low, high = limits
    if values.dtype.is_floating:
        # Below the next one: a float may not have the highest itself.
        is_whole = values == tf.floor(values)
        is_good = is_whole & (values >= float(low)) & (values < float(high + 1))
    else:
        is_good = (values >= low) & (values <= high)
    # fit_errors finds out which value of which column it is.
    found = tf.debugging.Assert(tf.reduce_all(is_good), ["a value that the model cannot hold"])
    with tf.control_dependencies([found]):
        values = tf.identity(values)
    return tensor.with_flat_values(values) if isinstance(tensor, tf.RaggedTensor) else values


def find_odd(values: Any, limits: Limits) -> float | None:
    """The first of an array of numpy that is no whole number within the limits."""
    flat = np.asarray(values).reshape(-1)
    low, high = limits
    if flat.dtype.kind == "f":
        is_good = (flat == np.floor(flat)) & (flat >= float(low)) & (flat < float(high + 1))
    else:
        is_good = (flat >= low) & (flat <= high)
    places = np.flatnonzero(~is_good)
    found: float | None = flat[places[0]].item() if len(places) else None
    return found
