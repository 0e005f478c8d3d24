"""Measures, inside the step and by TensorFlow's own clock, how long it waits for its data."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class StepClock:
    """Adds up the seconds. The cost is two small ops a step."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    @property
    def seconds(self) -> float:
        return float(self._seconds.numpy())

    def measure(self, data: list[Any]) -> Any:
        """An op that adds the time from the beginning of the step until the data is here."""
        with tf.control_dependencies(None):
            began = tf.timestamp()  # waits for nothing
        with tf.control_dependencies(data):
            return self._seconds.assign_add(tf.timestamp() - began, read_value=False)


def find_tensors(structure: Any) -> list[Any]:
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [leaf for leaf in leaves if isinstance(leaf, tf.Tensor)]


def watch_default_strategy() -> StepClock:
    """Measures the steps of a process that trains alone.

    Keras runs every step through TensorFlow's default strategy then, of which there is one in a
    process: ours, so it may be told to look at the clock.
    """
    clock = StepClock()
    strategy = tf.distribute.get_strategy()
    run_step = strategy.run

    def run(fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        if tf.executing_eagerly():
            return run_step(fn, args, kwargs, options)
        with tf.control_dependencies([clock.measure(find_tensors((args, kwargs)))]):
            return run_step(fn, args, kwargs, options)

    strategy.run = run
    return clock
