"""Leaves tf.data's autotuning out, so that an epoch's end does not wait for it.

Deleting an iterator waits for the thread that tunes it. This thread sleeps between its rounds,
twice as long each time and up to a minute, and the call that should end its sleep can come
before the mark that it looks at: then it goes on sleeping. The whole process stands still
meanwhile (seen in TensorFlow 2.21, where epochs of a group took up to three times as long).

Without it, AUTOTUNE means as many threads as there are cores, which is also where autotuning
begins; the size of prefetch buffers is found by other means and still is. TensorFlow then adds
no threads or prefetching to a `map` that asks for none.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

#: What TensorFlow's function has once it is replaced.
_MARK = "_leaves_autotuning_out"


def leave_autotuning_out(dataset: Any) -> Any:
    """The same dataset; as it is if its options say anything about autotuning."""
    wishes = dataset.options().autotune
    names = ("enabled", "cpu_budget", "ram_budget", "autotune_algorithm")
    if any(getattr(wishes, name, None) is not None for name in names):
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def leave_autotuning_out_of_devices() -> None:
    """Also for the datasets that TensorFlow makes itself, to bring batches to each device."""
    from tensorflow.python.data.ops import multi_device_iterator_ops as iterators

    make = getattr(iterators, "_create_device_dataset", None)
    if make is None or hasattr(make, _MARK):
        return

    @functools.wraps(make)
    def make_without(*args: Any, **kwargs: Any) -> Any:
        return leave_autotuning_out(make(*args, **kwargs))

    setattr(make_without, _MARK, True)
    iterators._create_device_dataset = make_without
