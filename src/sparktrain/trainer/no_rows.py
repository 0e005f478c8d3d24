"""Steps of a group for which one worker has no rows left.

Its part in such a step is a batch of no rows, and must come to nothing: gradients of zero, and
statistics as they were. Nearly all of TensorFlow and Keras does that by itself. Mended here is
what does not (seen in TensorFlow 2.21 and Keras 3.15):

1. Convolutions and max pooling. oneDNN's convolution gives no rows the shape of its input, on
   which the next layer fails, and the gradient of its pooling ends the process. The gradient
   of a depthwise convolution is whatever was in memory, also without oneDNN.
2. Batch normalization. The mean of no rows is not a number, and from then on the whole model.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import tensorflow as tf

#: TensorFlow's own functions for these ops, which all others end in: `tf.nn`, Keras, tf_keras.
_NEEDS_ROWS = ("conv2d", "conv3d", "depthwise_conv2d_native", "max_pool", "max_pool3d")

#: What a function has that is mended already.
_MARK = "_allows_no_rows"


def allow_steps_without_rows() -> None:
    """Mends TensorFlow and Keras in this process."""
    from tensorflow.python.ops import gen_nn_ops

    for name in _NEEDS_ROWS:
        _replace(gen_nn_ops, name, _give_a_row)
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "layers"):  # not if it is only just being loaded
        _replace(keras.layers.BatchNormalization, "_moments", _keep_moments)


def _replace(owner: Any, name: str, mend: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is not None and not hasattr(original, _MARK):
        mended = mend(original)
        setattr(mended, _MARK, True)
        setattr(owner, name, mended)


def _give_a_row(compute: Any) -> Any:
    """Of no rows, computes one of zeros and leaves its result out."""

    @functools.wraps(compute)
    def mended(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, tf.Tensor) or input.shape.rank is None or input.shape[0]:
            return compute(input, *args, **kwargs)
        if _is_for_xla():
            return compute(input, *args, **kwargs)
        sizes = tf.shape(input)
        has_rows = sizes[0] > 0
        # A choice, and not a row added always, which would copy every batch of every layer.
        zeros = functools.partial(tf.zeros, tf.concat([[1], sizes[1:]], 0), input.dtype)
        rows = tf.cond(has_rows, lambda: input, zeros)
        rows.set_shape([None, *input.shape[1:]])
        result = compute(rows, *args, **kwargs)
        return tf.cond(has_rows, lambda: result, lambda: result[:0])

    return mended


def _is_for_xla() -> bool:
    """Whether the function being traced is for XLA: it needs no mending, and fails with ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if getattr(frame.f_locals.get("self"), "_jit_compile", None) is True:
            return True
        frame = frame.f_back
    return False


def _keep_moments(moments: Any) -> Any:
    """Of no rows, takes the moving mean and variance, which then stay as they are."""

    @functools.wraps(moments)
    def mended(layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        found = moments(layer, inputs, *args, **kwargs)
        if layer.synchronized or inputs.shape[0]:
            return found
        has_rows = tf.shape(inputs)[0] > 0
        kept = (layer.moving_mean, layer.moving_variance)
        return tuple(
            tf.where(has_rows, new, tf.cast(tf.convert_to_tensor(old), new.dtype))
            for new, old in zip(found, kept, strict=True)
        )

    return mended
