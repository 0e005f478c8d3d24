"""Asks executors which GPUs their hosts have: one short job. None where all is one machine."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sparktrain.agent import nvidia
from sparktrain.agent.claims import Claims
from sparktrain.agent.devices import VISIBLE, read_visible
from sparktrain.agent.executor import find_executor
from sparktrain.agent.gpus import choose_visible
from sparktrain.driver import spark_facts
from sparktrain.errors import DeviceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: How long to wait before executors that were busy are asked again.
TICK_S = 0.5


@dataclass(frozen=True)
class KnownGpu:
    """A device that nodes may use.

    Attributes:
        share: How much of it no node has claimed; 1 for all of it.
        is_busy: Whether somebody computes on it.
        is_part: Whether it is a part of a GPU (MIG).
    """

    uuid: str
    total_mb: int = 0
    share: Fraction = Fraction(1)
    is_busy: bool = False
    is_part: bool = False

    @property
    def is_free(self) -> bool:
        return self.share == 1 and not self.is_busy


@dataclass(frozen=True)
class HostGpus:
    """What a host has where Spark gives out no GPUs."""

    host: str
    gpus: tuple[KnownGpu, ...] = ()
    #: Why it is not known.
    problem: str = ""

    def emptied(self) -> HostGpus:
        """The host as it is when nobody has its devices."""
        gpus = tuple(replace(gpu, share=Fraction(1), is_busy=False) for gpu in self.gpus)
        return replace(self, gpus=gpus)

    @property
    def total(self) -> int:
        return len(self.gpus)

    @property
    def free(self) -> int:
        return sum(gpu.is_free for gpu in self.gpus)

    @property
    def is_split(self) -> bool:
        """Whether a process gets one device only: CUDA gives it one part of a GPU."""
        return any(gpu.is_part for gpu in self.gpus)


@dataclass(frozen=True)
class Survey:
    """What executors answered.

    Attributes:
        hosts: One for each host.
        is_complete: Whether all executors did. Those whose slots others have are not heard.
    """

    hosts: tuple[HostGpus, ...]
    is_complete: bool = True


def ask_hosts(spark: SparkSession, num_tasks: int, wait_s: float, claims_dir: str) -> Survey:
    """Asks all executors, and again until all have answered or the time is over.

    Not in a barrier stage, which would wait for all slots of the session, while the nodes may
    need some of them only.
    """
    deadline = time.monotonic() + wait_s
    answers: dict[tuple[str, int], HostGpus] = {}
    ask = _Describe(claims_dir)
    while True:
        stage = spark.range(0, num_tasks, 1, num_tasks).mapInArrow(ask, "card string")
        for row in stage.collect():
            card = json.loads(row.card)
            answers[card["host"], card["executor"]] = read_card(card)
        wished = spark_facts.count_executors(spark)
        is_complete = wished is not None and len(answers) >= wished
        if is_complete or wished is None or time.monotonic() > deadline:
            return Survey(tuple(merge_hosts(answers.values())), is_complete)
        time.sleep(TICK_S)


def describe_machine(spark: SparkSession, claims_dir: str = "") -> HostGpus | None:
    """This machine, as executors see it: no job is needed. None if they may be elsewhere."""
    is_local = (spark_facts.get_conf(spark, "spark.master") or "").startswith("local")
    if spark_facts.is_connect(spark) or not is_local:
        return None
    if spark_facts.get_conf(spark, "spark.executorEnv.PATH") is not None:
        return None  # with an nvidia-smi of their own
    # What this process has may have changed since Spark was started.
    visible = spark_facts.get_conf(spark, f"spark.executorEnv.{VISIBLE}")
    if visible is None:
        java: Any = spark.sparkContext._jvm
        visible = java.System.getenv(VISIBLE)
    return describe_host({} if visible is None else {VISIBLE: str(visible)}, claims_dir)


def merge_hosts(found: Iterable[HostGpus]) -> list[HostGpus]:
    """Executors of one host may see different devices of it: all of them are there."""
    merged: dict[str, HostGpus] = {}
    for one in found:
        known = merged.get(one.host, HostGpus(one.host))
        gpus = {gpu.uuid: gpu for gpu in (*known.gpus, *one.gpus)}
        merged[one.host] = HostGpus(one.host, tuple(gpus.values()), known.problem or one.problem)
    return list(merged.values())


@dataclass(frozen=True)
class _Describe:
    """What the tasks run."""

    claims_dir: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            pass
        card = make_card(describe_host(os.environ, self.claims_dir))
        card["executor"] = find_executor()
        yield pa.RecordBatch.from_pydict({"card": [json.dumps(card)]})


def describe_host(environ: Mapping[str, str], claims_dir: str = "") -> HostGpus:
    """The host of the process that asks, and the devices that it may use."""
    host, visible = socket.gethostname(), read_visible(environ)
    claims = Claims(folder=claims_dir)
    try:
        usable = choose_visible(nvidia.find_gpus(visible), visible)
        if not usable:
            return HostGpus(host)  # whether or not something could be claimed here
        # While one looks, it holds names of devices, which another one would take for claims.
        with claims.looking():
            gpus = [
                KnownGpu(
                    gpu.uuid,
                    gpu.total_mb,
                    claims.count_free(gpu.key),
                    gpu.is_busy,
                    bool(gpu.parent),
                )
                for _, gpu in usable
            ]
    except DeviceError as error:
        return HostGpus(host, problem=str(error))
    return HostGpus(host, tuple(gpus))


def make_card(found: HostGpus) -> dict[str, Any]:
    """As plain values, which travel in a column."""
    gpus = [
        [gpu.uuid, gpu.total_mb, str(gpu.share), gpu.is_busy, gpu.is_part] for gpu in found.gpus
    ]
    return {"host": found.host, "gpus": gpus, "problem": found.problem}


def read_card(card: Mapping[str, Any]) -> HostGpus:
    gpus = (
        KnownGpu(uuid, total_mb, Fraction(share), is_busy, is_part)
        for uuid, total_mb, share, is_busy, is_part in card["gpus"]
    )
    return HostGpus(card["host"], tuple(gpus), card["problem"])
