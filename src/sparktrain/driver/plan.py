"""From what the user asked to a plan that can run. Every refusal happens here, before any job."""

from __future__ import annotations

import math
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.driver import spark_facts
from sparktrain.driver.arguments import check_env, check_numbers, check_ps
from sparktrain.driver.function import find_own_path, pickle_function
from sparktrain.driver.gpu_plan import GpuPlan, check_gpus, plan_gpus
from sparktrain.driver.run_folder import make_run_id, resolve_run_dir
from sparktrain.driver.tables import StagePlan, plan_stage
from sparktrain.errors import ConfigError, ResourceError
from sparktrain.events import CHIEF_HOST, BoardSpec, EventSpec
from sparktrain.settings import Settings, resolve
from sparktrain.spec import CHIEF, PERIODIC, DeviceWish, NodeSpec, RunSpec, make_nodes
from sparktrain.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Plan:
    """A run that may start."""

    run_id: str
    run_dir: Path
    nodes: tuple[NodeSpec, ...]
    num_workers: int
    function_name: str
    function: bytes = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    max_restarts: int
    timeout_s: float | None
    settings: Settings
    #: What the nodes are fed.
    stage: StagePlan = field(default_factory=StagePlan)
    #: How they get GPUs.
    gpus: GpuPlan = field(default_factory=lambda: GpuPlan(DeviceWish()))
    #: What is written for TensorBoard, and one that was asked for: see driver/boards.py.
    events: EventSpec = field(default_factory=EventSpec)
    board: BoardSpec | None = None

    @property
    def workers(self) -> tuple[NodeSpec, ...]:
        """The nodes that train."""
        return tuple(node for node in self.nodes if node.rank is not None)

    @property
    def is_periodic(self) -> bool:
        """Whether workers train alone and meet at parameter servers."""
        return self.settings.distribution == PERIODIC

    def make_spec(self, attempt: int) -> RunSpec:
        return RunSpec(
            run_id=self.run_id,
            attempt=attempt,
            nodes=self.nodes,
            num_workers=self.num_workers,
            run_dir=str(self.run_dir),
            function=self.function,
            env=dict(self.env),
            python_path=find_own_path(sys.path),
            driver_versions={"sparktrain": __version__},
            distribution=self.settings.distribution,
            kept_log_lines=self.settings.kept_log_lines,
            max_result_bytes=self.settings.max_result_bytes,
            tables=self.stage.tables,
            is_mixed=self.stage.is_mixed,
            file_tables=self.stage.file_tables,
            spill_dir=self.settings.spill_dir,
            may_restart=attempt < self.max_restarts,
            restart_on_error=self.settings.restart_on_error,
            worker_restarts=self.max_restarts if self.is_periodic else 0,
            feed_token=secrets.token_urlsafe(32) if self.is_periodic else "",
            devices=self.gpus.wish,
            events=self.events,
            board=self.board if self.board and self.board.at == CHIEF_HOST else None,
        )


def make_plan(
    spark: SparkSession,
    train_fn: Callable[..., Any],
    *,
    num_workers: int,
    args: Any,
    evaluator: bool,
    run_dir: str | os.PathLike[str] | None,
    max_restarts: int,
    timeout_s: float | None,
    env: Mapping[str, str] | None,
    settings: Mapping[str, Any],
    data: Any = None,
    num_ps: Any = 0,
) -> Plan:
    """Checks everything that can be checked on the driver."""
    resolved = resolve(settings, lambda key: spark_facts.get_conf(spark, key), os.environ)
    resolved = check_ps("run", num_ps, resolved)
    check_numbers(num_workers, max_restarts, timeout_s)
    check_env(env)
    check_dynamic_allocation(spark)
    function = pickle_function(train_fn, args)
    nodes = make_nodes(num_workers, evaluator, num_ps)
    gpus = plan_gpus(spark, resolved)
    check_gpus(spark, gpus, len(nodes), num_workers, resolved.slot_wait_s, evaluator, env)
    check_slots(spark, len(nodes), resolved.slot_wait_s, gpus.profile)
    stage = plan_stage(spark, data, num_workers, len(nodes))
    run_id = make_run_id()
    return Plan(
        run_id=run_id,
        run_dir=resolve_run_dir(run_dir, resolved.runs_dir, run_id),
        nodes=nodes,
        num_workers=num_workers,
        function_name=getattr(train_fn, "__qualname__", type(train_fn).__qualname__),
        function=function,
        env=dict(env or {}),
        max_restarts=max_restarts,
        timeout_s=timeout_s,
        settings=resolved,
        stage=stage,
        gpus=gpus,
    )


def make_cluster_plan(
    spark: SparkSession,
    train_fn: Callable[..., Any],
    *,
    num_workers: int,
    num_ps: Any,
    evaluator: bool,
    args: Any,
    data: Any,
    run_dir: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    settings: Mapping[str, Any],
    chief: str | None = CHIEF,
) -> tuple[Plan, int]:
    """The plan of a cluster, and how many tasks start its nodes."""
    resolved = resolve(settings, lambda key: spark_facts.get_conf(spark, key), os.environ)
    check_ps("cluster", num_ps, resolved)
    if num_ps and num_workers < 2 and resolved.distribution == "auto":
        raise ConfigError(
            problem=f"cluster() got num_ps={num_ps} and num_workers={num_workers}: with parameter"
            " servers the chief coordinates, and the workers compute.",
            advice="Give num_workers=2 or more; or distribution='none', where the function runs"
            " on every node.",
        )
    if chief != CHIEF and resolved.distribution != "none":
        raise ConfigError(
            problem=f"cluster() got chief={chief!r}.",
            advice="A strategy needs a node called 'chief'. Leave it out, or give"
            " distribution='none'.",
        )
    check_env(env, "cluster")
    check_dynamic_allocation(spark)
    function = pickle_function(train_fn, args, "cluster")
    nodes = make_nodes(num_workers, evaluator, num_ps, chief)
    # Several nodes may share a slot: they only start in it. But executors that are on their way
    # are worth waiting for, or all nodes would be on the first one.
    gpus = plan_gpus(spark, resolved)
    promised = spark_facts.slots_promised(spark)
    num_wished = count_start_tasks(gpus, nodes)
    wished = num_wished if promised is None else min(num_wished, promised)
    wait_s = resolved.slot_wait_s if promised is None else resolved.launch_timeout_s
    slots, _ = spark_facts.wait_for_slots(spark, wished, wait_s, gpus.profile)
    num_tasks = count_gpu_tasks(gpus, num_wished, num_workers)
    check_gpus(spark, gpus, num_tasks, num_workers, 0.0, evaluator, env)
    check_slots(spark, 1, 0.0, gpus.profile)
    stage = plan_stage(spark, data, num_workers, len(nodes))
    if stage.tables:
        raise ConfigError(
            problem="cluster() got a DataFrame as data.",
            advice="Start the cluster, then cluster.feed(df). Files are what data= is for.",
        )
    run_id = make_run_id()
    plan = Plan(
        run_id=run_id,
        run_dir=resolve_run_dir(run_dir, resolved.runs_dir, run_id, "cluster"),
        nodes=nodes,
        num_workers=num_workers,
        function_name=getattr(train_fn, "__qualname__", type(train_fn).__qualname__),
        function=function,
        env=dict(env or {}),
        max_restarts=0,
        timeout_s=None,
        settings=resolved,
        stage=stage,
        gpus=gpus,
    )
    return plan, min(num_wished, slots if slots is not None else num_wished)


def count_start_tasks(gpus: GpuPlan, nodes: Sequence[NodeSpec]) -> int:
    """How many tasks start a cluster: one for each node that gets what Spark gives a task."""
    if not gpus.is_fixed:
        return len(nodes)
    return max(1, sum(gpus.wish.count_for(node) != 0 for node in nodes))


def count_gpu_tasks(gpus: GpuPlan, num_wished: int, num_workers: int) -> int:
    """How many tasks of a cluster's start bring enough GPUs for its nodes."""
    if gpus.is_fixed:
        return num_wished
    if gpus.amount < 1 or gpus.wish.is_shared or gpus.wish.per_worker == 0:
        return 1
    # Several nodes share what a task was given, and each must have one.
    return math.ceil(num_workers / gpus.amount)


def check_dynamic_allocation(spark: SparkSession) -> None:
    enabled = spark_facts.get_conf(spark, "spark.dynamicAllocation.enabled") or "false"
    master = spark_facts.get_conf(spark, "spark.master") or ""
    # Spark ignores the setting where driver and executor are one process.
    is_local = master == "local" or master.startswith("local[")
    if enabled.lower() == "true" and not is_local:
        raise ConfigError(
            problem="This Spark session has spark.dynamicAllocation.enabled=true. All nodes of a"
            " run start together (a barrier stage), which Spark refuses with dynamic allocation.",
            advice="Start the session with spark.dynamicAllocation.enabled=false and"
            " spark.executor.instances set to the executors you need.",
        )


def check_slots(spark: SparkSession, needed: int, wait_s: float, profile: Any = None) -> None:
    slots, waited = spark_facts.wait_for_slots(spark, needed, wait_s, profile)
    if slots is not None and slots < needed:
        raise ResourceError(
            needed=needed,
            slots=slots,
            waited_s=waited,
            advice="Lower num_workers or num_ps, leave out the evaluator, or give the session more"
            " executors or cores (for the embedded Spark: spark.stop(), then sparktrain.session"
            f"(num_executors={needed})). spark.sparktrain.slotWaitS={wait_s:g} is how long to"
            " look.",
        )
