"""The values of a model's variables, looked at and replaced without a copy.

TensorFlow shares memory instead of copying it, and copies before it writes: into what somebody
else still looks at, and into memory that is not its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sparktrain.data.aligned import align, make_aligned
from sparktrain.wire.layout import Variable

#: Types of TensorFlow that numpy does not have.
_UNKNOWN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
#: Of an array in a list that is gone through: the list's, the loop's, and that of the question.
_OWN_REFERENCES = 3


def read(variable: Any) -> Any:
    """The values, not to be written to; types that numpy does not know become float32."""
    import tensorflow as tf

    value = tf.convert_to_tensor(variable)
    if value.dtype.name in _UNKNOWN:
        value = tf.cast(value, tf.float32)
    return np.asarray(value)


def is_exact(variable: Any, array: Any) -> bool:
    """Whether a variable will have the very values of an array, in its type."""
    return bool(str(getattr(variable.dtype, "name", variable.dtype)) == array.dtype.name)


def make_room(variables: Iterable[Variable]) -> list[Any]:
    """Arrays for replace(), whose values are to be written yet."""
    return [make_aligned(one.shape, one.dtype) for one in variables]


def copy(arrays: Iterable[Any]) -> list[Any]:
    """Arrays for replace() with the same values, to be written to."""
    found = []
    for array in arrays:
        found.append(make_aligned(array.shape, array.dtype))
        np.copyto(found[-1], array)
    return found


def is_free(arrays: Sequence[Any]) -> bool:
    """Whether they may be written to: nobody but the holder of the list looks at any of them."""
    return all(
        array.flags.writeable and sys.getrefcount(array) <= _OWN_REFERENCES for array in arrays
    )


def replace(variable: Any, array: Any) -> None:
    """Gives a variable other values. It may look at the array until it is changed itself."""
    import tensorflow as tf

    if is_exact(variable, array):
        # TensorFlow ends the process over memory that is not aligned.
        own = align(array, array.dtype)
        variable.assign(tf.experimental.dlpack.from_dlpack(own.__dlpack__()))
    else:
        variable.assign(array)
