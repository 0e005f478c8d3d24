"""The strategies Keras 3 can train with: TensorFlow's own, with their gaps closed.

Keras 3 calls a strategy in ways MultiWorkerMirroredStrategy and MirroredStrategy do not answer.
Rather than change Keras, these subclasses answer them:

1. `reduce` of a whole batch (Keras builds the model from it before the first step) and of
   scalars with axis=0 (Keras averages the logs of a step). TensorFlow refuses both.
2. A step without data. When a dataset of unknown length ends, TensorFlow raises inside the
   step, but ops of the step that do not need the data, such as the optimizer's step counter,
   may already have run: weights move with Adam and momentum. Here every op of a step waits
   for its data.
3. Rows lost without a word. A worker's own dataset (AutoShardPolicy.OFF) of known length, and
   one that was sharded by hand and would be sharded again, are refused with the way out.
4. Batch normalization. Keras 3 lets every device keep moving statistics of its own rows, so
   that workers evaluate with different models. Here they are averaged, as in Keras 2.
5. Steps for which a device has no rows (no_rows.py), and epochs that end late (autotune.py).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from sparktrain.errors import ConfigError
from sparktrain.trainer.autotune import leave_autotuning_out, leave_autotuning_out_of_devices
from sparktrain.trainer.clock import StepClock, find_tensors
from sparktrain.trainer.no_rows import allow_steps_without_rows

#: Where TensorFlow finds out whether any worker has data for the next step.
_ASKS_FOR_DATA = "_calculate_replicas_with_values"


class _KerasSteps(tf.distribute.Strategy):  # type: ignore[misc]
    """What both strategies do otherwise than TensorFlow's, in front of one of which it stands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        allow_steps_without_rows()
        leave_autotuning_out_of_devices()
        #: How long steps have waited for this worker's own data.
        self.clock = StepClock()
        #: The graph of the step whose wait is measured already.
        self._measured: Any = None

    @contextlib.contextmanager
    def scope(self) -> Iterator[Any]:
        with super().scope() as current, tf.variable_creator_scope(_average_statistics):
            yield current

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        if axis is None and tf.nest.is_nested(value):
            # The symbolic build only looks at shapes and types: any local value will do, where
            # a mean of labels has none.
            return tf.nest.map_structure(
                lambda leaf: self.experimental_local_results(leaf)[0], value
            )
        if axis == 0 and self._is_scalar(value):
            axis = None
        if not tf.executing_eagerly() and sys._getframe(1).f_code.co_name == _ASKS_FOR_DATA:
            # How many workers have data: here this one's has come, and the others' may not have.
            self._measured = tf.compat.v1.get_default_graph()
            with tf.control_dependencies([self.clock.measure([value])]):
                value = tf.identity(value)
        return super().reduce(reduce_op, value, axis=axis)

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        if tf.executing_eagerly():
            return super().run(fn, args, kwargs, options)
        allow_steps_without_rows()  # again, as Keras may have been loaded since

        def after_data(*fn_args: Any, **fn_kwargs: Any) -> Any:
            with tf.control_dependencies(find_tensors((fn_args, fn_kwargs))):
                return fn(*fn_args, **fn_kwargs)

        # Twice, because ops are made in two places: in the replica's function, and around it
        # where replicas are merged to update variables.
        local = [self.experimental_local_results(leaf) for leaf in tf.nest.flatten((args, kwargs))]
        waits = find_tensors(local)
        if self._measured is not tf.compat.v1.get_default_graph():
            waits = [*waits, self.clock.measure(waits)]
        with tf.control_dependencies(waits):
            return super().run(after_data, args, kwargs, options)

    def distribute_datasets_from_function(self, dataset_fn: Any, options: Any = None) -> Any:
        def make(context: Any) -> Any:
            return leave_autotuning_out(dataset_fn(context))

        return super().distribute_datasets_from_function(make, options)

    def _is_scalar(self, value: Any) -> bool:
        shapes = [getattr(leaf, "shape", None) for leaf in self.experimental_local_results(value)]
        return all(shape is not None and shape.rank == 0 for shape in shapes)


class KerasMultiWorkerStrategy(
    _KerasSteps,
    tf.distribute.MultiWorkerMirroredStrategy,  # type: ignore[misc]
):
    """Synchronous training on several workers, for Keras 3, tf_keras and custom loops."""

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        if not isinstance(dataset, tf.data.Dataset):
            return super().experimental_distribute_dataset(dataset, options)
        check_shards(dataset, self.extended._num_workers)
        if not _is_own(dataset):
            dataset = leave_autotuning_out(dataset)
            return super().experimental_distribute_dataset(dataset, options)
        own = split_batches(dataset, self.num_replicas_in_sync)
        return self.distribute_datasets_from_function(lambda _: own, options)


class KerasMirroredStrategy(_KerasSteps, tf.distribute.MirroredStrategy):  # type: ignore[misc]
    """All GPUs of a worker that trains alone, for Keras 3, tf_keras and custom loops."""

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        if isinstance(dataset, tf.data.Dataset):
            dataset = leave_autotuning_out(dataset)
        return super().experimental_distribute_dataset(dataset, options)


#: What batch normalization calls its statistics. Other variables without a rule of their own
#: are left alone: some optimizers change theirs on one worker only, where averaging would hang.
_STATISTICS = ("moving_mean", "moving_variance")


def _average_statistics(next_creator: Any, **options: Any) -> Any:
    is_statistic = str(options.get("name", "")).rpartition("/")[2] in _STATISTICS
    if is_statistic and options.get("aggregation") in (None, tf.VariableAggregation.NONE):
        options["aggregation"] = tf.VariableAggregation.MEAN
    return next_creator(**options)


def make_local_dataset(dataset: Any) -> Any:
    """Marks a dataset as this worker's own rows, so that fit neither shards nor cuts it."""
    # Keras ends an epoch after as many steps as the dataset has batches, but TensorFlow makes
    # several smaller batches of each: only a dataset of unknown length is read to its end.
    return turn_sharding_off(dataset.filter(lambda *_: True))


def turn_sharding_off(dataset: Any) -> Any:
    """For a dataset of unknown length whose rows only this worker has."""
    options = tf.data.Options()
    off = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = off
    return dataset.with_options(options)


def _is_own(dataset: Any) -> bool:
    policy = dataset.options().experimental_distribute.auto_shard_policy
    return bool(policy == tf.data.experimental.AutoShardPolicy.OFF)


def split_batches(dataset: Any, num_parts: int) -> Any:
    """Cuts each batch, which has the size of the global one, into the parts of single steps.

    TensorFlow's own cut makes parts without rows of a last batch that has fewer rows than there
    are workers: steps without data.
    """

    def split(*batch: Any) -> Any:
        leaf = tf.nest.flatten(batch)[0]
        rows = leaf.nrows() if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf, tf.int64)[0]
        size = tf.maximum((rows + num_parts - 1) // num_parts, 1)

        def part(number: Any) -> Any:
            cut = tf.nest.map_structure(lambda t: t[number * size : (number + 1) * size], batch)
            return cut if len(batch) > 1 else cut[0]

        # A batch without rows is a step without rows: others may have some.
        return tf.data.Dataset.range(tf.maximum((rows + size - 1) // size, 1)).map(part)

    return dataset.flat_map(tf.autograph.experimental.do_not_convert(split))


def check_shards(dataset: Any, num_workers: int) -> None:
    """Refuses the two kinds of dataset of which fit would silently use a part only."""
    if _is_own(dataset):
        length = int(dataset.cardinality())
        if length >= 0:
            raise ConfigError(
                problem=f"This dataset has AutoShardPolicy.OFF and a known length of {length}"
                f" batches: Keras would end each epoch after {length} steps, having seen"
                f" 1/{num_workers} of its rows.",
                advice="Pass ctx.local_dataset(dataset) to fit, evaluate or predict instead.",
            )
    elif _is_sharded_by_hand(dataset, num_workers):
        raise ConfigError(
            problem=f"This dataset was sharded with .shard({num_workers}, ...), and fit shards"
            f" it again over the {num_workers} workers: most of its rows would never be seen.",
            advice="Pass ctx.local_dataset(dataset), or leave .shard out: every worker then"
            " passes the same dataset and fit gives each worker its part.",
        )


def _is_sharded_by_hand(dataset: Any, num_workers: int) -> bool:
    pending = [dataset]
    while pending:
        step = pending.pop()
        if type(step).__name__ == "_ShardDataset":
            num_shards = tf.get_static_value(getattr(step, "_num_shards", None))
            if num_shards is None or int(num_shards) == num_workers:
                return True
        pending.extend(step._inputs())
    return False
