"""Runs a function on several executors at once, each for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflowonspark.TFSparkNode import TFNodeContext


def run(
    sc: Any,
    map_fn: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    use_barrier: bool = True,
) -> None:
    """Runs map_fn(tf_args, ctx) on every node; returns when all have, or raises the first error.

    Args:
        use_barrier: Kept: nodes always start together.
    """
    import os

    from pyspark.sql import SparkSession

    import sparktrain
    from tensorflowonspark.TFCluster import find_default_fs

    spark = SparkSession(sc)
    default_fs, working_dir = find_default_fs(spark), os.getcwd()  # noqa: PTH109

    sparktrain.run(
        run_alone,
        num_workers=num_executors,
        args=(map_fn, tf_args, default_fs, working_dir),
        spark=spark,
        distribution="none",
    )


def run_alone(ctx: Any) -> None:
    """The function of the run: calls the program's own."""
    import os
    import sys

    map_fn, tf_args, default_fs, working_dir = ctx.args
    if isinstance(tf_args, list):
        sys.argv = tf_args
    os.environ.pop("TF_CONFIG", None)  # it trains alone
    node = TFNodeContext(executor_id=ctx.rank, defaultFS=default_fs, working_dir=working_dir)
    node.num_workers = ctx.num_workers
    map_fn(tf_args, node)
