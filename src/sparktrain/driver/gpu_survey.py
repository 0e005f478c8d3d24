"""Asks executors which GPUs their hosts have: one short job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class HostGpus:
    """What a host has where Spark gives out no GPUs."""

    host: str
    total: int
    free: int


def ask_hosts(spark: SparkSession, num_tasks: int) -> list[HostGpus]:
    """One row for each host of the executors."""
    stage = spark.range(0, num_tasks, 1, num_tasks).mapInArrow(_describe, "card string")
    found: dict[str, HostGpus] = {}
    for row in stage.collect():
        card = HostGpus(**json.loads(row.card))
        # Executors of one host may see different devices of it.
        known = found.get(card.host)
        if known is None or card.total > known.total:
            found[card.host] = card
    return list(found.values())


def _describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for _ in batches:
        pass
    card = describe_host()
    yield pa.RecordBatch.from_pydict({"card": [json.dumps(card)]})


def describe_host() -> dict[str, Any]:
    """Of the process that asks: its host, and the devices that it may use."""
    import os
    import socket

    from sparktrain.agent import nvidia
    from sparktrain.agent.claims import UNITS, count_free
    from sparktrain.agent.devices import read_visible

    usable = nvidia.choose_visible(nvidia.find_gpus(), read_visible(os.environ))
    free = [gpu for _, gpu in usable if not gpu.is_busy and count_free(gpu.uuid) == UNITS]
    return {"host": socket.gethostname(), "total": len(usable), "free": len(free)}
