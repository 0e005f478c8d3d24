"""Steps of a group for which one worker has no rows left.

Its part in such a step is a batch of no rows, and must come to nothing: gradients of zero, and
statistics as they were. Nearly all of TensorFlow and Keras does that by itself. Mended here is
what does not (seen in TensorFlow 2.21 and Keras 3.15):

1. Convolutions and max pooling. oneDNN's convolution gives no rows the shape of its input, on
   which the next layer fails, and the gradient of its pooling ends the process. The gradient
   of a depthwise convolution is whatever was in memory, also without oneDNN.
2. Batch normalization. The mean of no rows is not a number, and from then on the whole model.
3. Sizes that are known with the rows only, such as the length of a text: TensorFlow makes them
   0 too, which recurrent layers and convolutions refuse.

All of it is for steps of a strategy only. What a model is exported with stays TensorFlow's own.
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
    from tensorflow.python.distribute import input_lib
    from tensorflow.python.ops import gen_nn_ops

    _replace(input_lib, "_dummy_tensor_fn", _give_sizes)
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
        if not _is_in_step() or _is_for_xla():
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


def _give_sizes(make_dummy: Any) -> Any:
    """Of the batch without rows, gives what is not known of its shape a size that layers take."""

    @functools.wraps(make_dummy)
    def mended(structure: Any) -> Any:
        return make_dummy(tf.nest.map_structure(_fill_shape, structure))

    return mended


def _fill_shape(spec: Any) -> Any:
    # Not of ragged ones, whose own way it is to have no size.
    if type(spec) is not tf.TensorSpec or spec.shape.rank is None or spec.shape.rank < 2:
        return spec
    rows, *sizes = spec.shape.as_list()
    # Nothing is computed of them but the one row above; a volume of 128 would be felt.
    size = 128 if sizes.count(None) <= 2 else 32
    filled = [size if one is None else one for one in sizes]
    return tf.TensorSpec([rows, *filled], spec.dtype, spec.name)


def _is_in_step() -> bool:
    return tf.distribute.has_strategy() and tf.distribute.get_replica_context() is not None


def _is_for_xla() -> bool:
    """Whether the function being traced is for XLA: it needs no mending, and fails with ours."""
    from tensorflow.python.ops import control_flow_util

    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return True
    # Called by Python itself, it is only known to whoever calls.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if getattr(frame.f_locals.get("self"), "_jit_compile", None) is True:
            return True
        frame = frame.f_back
    return False


def _keep_moments(moments: Any) -> Any:
    """Of no rows, takes the moving mean and variance, which then stay as they are."""

    @functools.wraps(moments)
    def mended(layer: Any, inputs: Any, mask: Any) -> Any:
        found = moments(layer, inputs, mask)
        is_of_all = layer.synchronized and mask is None  # with a mask Keras forgets the others
        if is_of_all or inputs.shape[0] or not _is_in_step():
            return found
        has_rows = tf.shape(inputs)[0] > 0
        kept = (layer.moving_mean, layer.moving_variance)
        return tuple(
            tf.where(has_rows, new, tf.cast(tf.convert_to_tensor(old), new.dtype))
            for new, old in zip(found, kept, strict=True)
        )

    return mended
