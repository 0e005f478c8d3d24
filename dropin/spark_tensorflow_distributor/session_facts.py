"""What the runner asks of the Spark session: amounts of GPUs, encryption."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

from sparktrain.agent.devices import find_own, read_visible

IGNORE_SSL = "tensorflow.spark.distributor.ignoreSsl"


def find_session() -> Any:
    """The session of this process; a new one if there is none, as ever."""
    from pyspark.sql import SparkSession

    from sparktrain.embedded import find_session

    return find_session() or SparkSession.builder.getOrCreate()


def get_boolean(spark: Any, key: str) -> bool:
    text = str(spark.conf.get(key, "false"))
    if text.lower() not in ("true", "false"):
        raise Exception(f"The Spark configuration {key} is {text!r}. Expected true or false.")
    return text.lower() == "true"


def check_encryption(spark: Any) -> None:
    """Whoever wants Spark's traffic encrypted must know that TensorFlow's is not."""
    if not get_boolean(spark, "spark.ssl.enabled"):
        return
    what = "spark.ssl.enabled is true, and TensorFlow's traffic between workers is not encrypted."
    if not get_boolean(spark, IGNORE_SSL):
        raise Exception(f"{what} Set {IGNORE_SSL} to true to train nevertheless.")
    warnings.warn(what, stacklevel=3)


def count_tasks(spark: Any, num_slots: int, resource: str) -> int:
    """How many tasks have so many GPUs.

    Tasks of other jobs may have a part of a GPU each; those that train have whole ones.
    """
    key = f"spark.task.resource.{resource}.amount"
    text = spark.conf.get(key, None)
    if text is None:
        raise Exception(
            f"The Spark configuration {key} is not set: your cluster might not have Spark"
            " GPU-aware scheduling enabled. Set it and"
            f" spark.executor.resource.{resource}.amount, or give use_gpu=False."
        )
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < math.inf:
        raise ValueError(f"The Spark configuration {key} is {text!r}. Expected a number above 0.")
    return math.ceil(num_slots / max(1, int(amount)))


def find_driver_gpus(spark: Any, resource: str) -> list[str]:
    """What the driver was given: spark.driver.resource, as its environment calls it."""
    given = dict(spark.sparkContext.resources).get(resource)
    if given is None:
        raise Exception(
            f"The driver has no resource {resource!r}. Set spark.driver.resource.{resource}.amount"
            f" and spark.driver.resource.{resource}.discoveryScript, or give use_gpu=False."
        )
    return list(find_own([str(one) for one in given.addresses], read_visible(os.environ)))
