"""Runs a function on several executors at once, each for itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tensorflowonspark import node_env
from tensorflowonspark.TFSparkNode import TFNodeContext, call


def run(
    sc: Any,
    map_fn: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    use_barrier: bool = True,
) -> None:
    """Runs map_fn(tf_args, ctx) on every node; returns when all have, or raises the first error.

    Args:
        use_barrier: Whether all start together; else they are ordinary tasks of Spark, in its
            own processes, and of more than there are slots for, some wait for others.
    """
    from pyspark.sql import SparkSession

    import sparktrain
    from tensorflowonspark.TFCluster import find_default_fs

    spark = SparkSession(sc)
    place = (find_default_fs(spark), os.getcwd())  # noqa: PTH109 (as text)
    if not use_barrier:
        task = AloneTask(map_fn, tf_args, num_executors, *place)
        sc.parallelize(range(num_executors), num_executors).foreachPartition(task)
        return
    sparktrain.run(
        run_alone,
        num_workers=num_executors,
        args=(map_fn, tf_args, *place),
        spark=spark,
        distribution="none",
    )


def run_alone(ctx: Any) -> None:
    """The function of the run: calls the program's own."""
    map_fn, tf_args, default_fs, working_dir = ctx.args
    node_env.choose_gpus(tf_args, ctx.role, ctx.index, ctx.cluster_spec)
    AloneTask(map_fn, tf_args, ctx.num_workers, default_fs, working_dir).call(ctx.rank)


@dataclass(frozen=True)
class AloneTask:
    """Calls the program's function; given to foreachPartition, in a task of Spark."""

    map_fn: Callable[[Any, Any], Any]
    tf_args: Any
    num_executors: int
    default_fs: str
    working_dir: str

    def __call__(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            # A process of Spark may have run another one before.
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            node_env.choose_gpus(self.tf_args, "worker", 0, {})
            self.call(number)

    def call(self, number: int) -> None:
        if isinstance(self.tf_args, list):
            sys.argv = self.tf_args
        node_env.expand_classpath()
        os.environ.pop("TF_CONFIG", None)  # it trains alone
        node = TFNodeContext(
            executor_id=number, defaultFS=self.default_fs, working_dir=self.working_dir
        )
        node.num_workers = self.num_executors
        call(self.map_fn, self.tf_args, node)
