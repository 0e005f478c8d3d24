"""How the nodes of a run get GPUs: from Spark's resources, else from their hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.agent.devices import MOST_SHARES, VISIBLE, count_shares, make_memory_error
from sparktrain.driver import spark_facts
from sparktrain.driver.gpu_survey import HostGpus, ask_hosts, describe_machine
from sparktrain.errors import ConfigError, DeviceError
from sparktrain.settings import Settings
from sparktrain.spec import DeviceWish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LESS = "Lower num_workers or gpus_per_worker, share devices with gpu_memory_fraction, or give"


@dataclass(frozen=True)
class GpuFacts:
    """What the session says of GPUs: 0 where it does not speak of them."""

    per_executor: int = 0
    per_task: float = 0.0


@dataclass(frozen=True)
class GpuPlan:
    """How the stage asks for GPUs.

    Attributes:
        amount: GPUs of a task; 0 if Spark gives out none.
        profile: Of the stage; None for the session's own.
    """

    wish: DeviceWish
    amount: float = 0.0
    profile: Any = None

    @property
    def is_fixed(self) -> bool:
        """Whether tasks bring exactly what a node gets."""
        return self.amount > 0 and (self.profile is not None or self.wish.per_worker is not None)


def make_wish(settings: Settings) -> DeviceWish:
    """Refuses wishes that contradict each other."""
    count = settings.gpus_per_worker
    wish = DeviceWish(
        resource=settings.gpu_resource,
        per_worker=int(count) if count.isdecimal() else None,
        at_most=settings.gpus_at_most,
        per_evaluator=settings.gpus_per_evaluator,
        memory_fraction=settings.gpu_memory_fraction,
        memory_mb=settings.gpu_memory_mb,
        claims_dir=settings.gpu_claims_dir,
    )
    if wish.memory_fraction and wish.memory_mb:
        raise ConfigError(
            problem=f"run() got gpu_memory_fraction={wish.memory_fraction:g} and"
            f" gpu_memory_mb={wish.memory_mb}.",
            advice="Give one of them.",
        )
    if 0 < wish.memory_fraction < 1 / MOST_SHARES:
        raise ConfigError(
            problem=f"run() got gpu_memory_fraction={wish.memory_fraction:g}.",
            advice=f"At most {MOST_SHARES} nodes share a device: give {1 / MOST_SHARES:g} or more.",
        )
    if wish.is_shared and max(wish.per_worker or 0, wish.per_evaluator) > 1:
        raise ConfigError(
            problem=f"run() got gpus_per_worker={count}, gpus_per_evaluator="
            f"{wish.per_evaluator} and a part of the memory of each.",
            advice="A node shares one device. Give 1, or leave gpu_memory_fraction and"
            " gpu_memory_mb out.",
        )
    return wish


def find_amount(wish: DeviceWish, facts: GpuFacts) -> float:
    """How many GPUs a task of the nodes' stage must have; 0 if it needs none of Spark's.

    Tasks of other jobs may share a device (spark.task.resource.gpu.amount=0.25); nodes have
    theirs alone, unless sharing was asked for.
    """
    if not facts.per_executor or (wish.per_worker == 0 and not wish.per_evaluator):
        return facts.per_task
    if wish.is_shared:
        # How many megabytes a device has is not known here: the session's own amount counts.
        return wish.memory_fraction or facts.per_task or 1.0
    if wish.per_worker is None:
        return max(facts.per_task, 1.0, float(wish.per_evaluator))
    return float(max(wish.per_worker, wish.per_evaluator))


def find_facts(spark: SparkSession, resource: str) -> GpuFacts:
    def read(who: str) -> float:
        return float(spark_facts.get_conf(spark, f"spark.{who}.resource.{resource}.amount") or 0)

    return GpuFacts(int(read("executor")), read("task"))


def plan_gpus(spark: SparkSession, settings: Settings) -> GpuPlan:
    """Decides where GPUs come from; refuses what no executor can give."""
    wish = make_wish(settings)
    facts = find_facts(spark, wish.resource)
    amount = find_amount(wish, facts)
    if not facts.per_executor:
        return GpuPlan(wish)
    if amount > facts.per_executor:
        raise DeviceError(
            problem=f"Each node that trains shall have {amount:g} GPUs, and an executor has"
            f" spark.executor.resource.{wish.resource}.amount={facts.per_executor}.",
            needed=int(amount),
            found=facts.per_executor,
            advice="Lower gpus_per_worker, or give the executors more GPUs.",
        )
    is_own = amount == facts.per_task
    return GpuPlan(wish, amount, None if is_own else make_profile(spark, wish.resource, amount))


def make_profile(spark: SparkSession, resource: str, amount: float) -> Any:
    """A profile of tasks for the executors that are there: each has its GPUs for itself."""
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    requests = TaskResourceRequests().cpus(spark_facts.get_task_cpus(spark))
    requests.resource(resource, int(amount) if amount >= 1 else amount)
    return ResourceProfileBuilder().require(requests).build


def check_gpus(
    spark: SparkSession,
    plan: GpuPlan,
    num_tasks: int,
    num_workers: int,
    wait_s: float,
    has_evaluator: bool = False,
    env: Mapping[str, str] | None = None,
) -> None:
    """Refuses to start where executors do not have as many GPUs as the nodes shall have.

    Args:
        num_tasks: Tasks that must run at the same time.
        env: Of the nodes: a list of devices in it is their choice, whoever else has them.
    """
    if plan.amount:
        slots, _ = spark_facts.wait_for_slots(spark, num_tasks, wait_s, plan.profile)
        if slots is not None and slots < num_tasks:
            raise DeviceError(
                problem=f"{num_tasks} tasks with {plan.amount:g} GPUs each shall run at the same"
                f" time, and the executors have room for {slots}.",
                needed=_count(plan.amount, num_tasks),
                found=_count(plan.amount, slots),
                advice=f"{_LESS} the session more executors.",
            )
        return
    if VISIBLE in (env or {}):
        return
    wish = plan.wish
    evaluator_gpus = wish.per_evaluator if has_evaluator else 0
    if wish.per_worker or evaluator_gpus or (wish.is_shared and wish.per_worker is None):
        slots = spark_facts.count_slots(spark)
        survey = ask_hosts(spark, slots or num_tasks, wait_s, wish.claims_dir)
        check_hosts(survey.hosts, wish, num_workers, evaluator_gpus, survey.is_complete)
    elif wish.per_worker is None and (
        (machine := describe_machine(spark, wish.claims_dir)) is not None
    ):
        # Elsewhere nodes find out themselves: nobody has said that they shall have GPUs, and a
        # job before every run would be too much for those that never had any.
        check_hosts([machine], wish, num_workers, 0)


def check_hosts(
    hosts: Sequence[HostGpus],
    wish: DeviceWish,
    num_workers: int,
    evaluator_gpus: int,
    is_complete: bool = True,
) -> None:
    """Refuses what the hosts' own devices are not enough for.

    Args:
        is_complete: Whether these are all devices; else nodes find out whether there are enough.
    """
    for one in hosts:
        if one.problem:
            raise DeviceError(
                problem=f"{one.host}: {one.problem.rstrip('.')}.",
                needed=num_workers,
                found=0,
                advice="See to that host first, or leave it out.",
            )
    gpus = [gpu for one in hosts for gpu in one.gpus]
    if not is_complete or (not gpus and not wish.per_worker and not evaluator_gpus):
        return  # there may be more; or they train without
    if gpus and not any(count_shares(wish, gpu.total_mb) for gpu in gpus):
        raise make_memory_error(wish, max(gpu.total_mb for gpu in gpus))
    # Without a number, each worker takes one or more; those of a host without GPUs take none.
    has_all = all(one.gpus for one in hosts)
    per_worker = int(has_all) if wish.per_worker is None else wish.per_worker
    room = count_room(hosts, wish, evaluator_gpus)
    if room < (num_workers if per_worker else 0):
        parts = ", with parts of GPUs (MIG), of which CUDA gives a process one"
        listed = ", ".join(
            f"{one.host} has {one.free} of {one.total} free{parts if one.is_split else ''}"
            for one in hosts
        )
        beside = f" and an evaluator with {evaluator_gpus}" if evaluator_gpus else ""
        needed = num_workers * per_worker + evaluator_gpus
        found = sum(one.free for one in hosts if not (one.is_split and per_worker > 1))
        share = ""
        if wish.is_shared:
            found = max(room, 0) + evaluator_gpus  # shares, not devices
            share = f", gpu_memory_mb={wish.memory_mb}"
            if wish.memory_fraction:
                share = f", gpu_memory_fraction={wish.memory_fraction:g}"
        raise DeviceError(
            problem=f"{num_workers} workers with gpus_per_worker={per_worker}{share}{beside} do"
            f" not fit: {listed}.",
            needed=needed,
            found=found,
            is_taken=_count_all(hosts, wish, evaluator_gpus) >= num_workers,
            advice=f"{_LESS} the session executors on more hosts with GPUs.",
        )


def _count_all(hosts: Sequence[HostGpus], wish: DeviceWish, evaluator_gpus: int) -> int:
    """For how many workers there is room when nobody else is there."""
    return count_room([one.emptied() for one in hosts], wish, evaluator_gpus)


def _count(amount: float, num_tasks: int) -> int:
    """Devices of so many tasks."""
    return int(amount * num_tasks) if amount >= 1 else -int(-amount * num_tasks // 1)


def count_room(hosts: Sequence[HostGpus], wish: DeviceWish, evaluator_gpus: int = 0) -> int:
    """For how many workers the hosts' own devices are enough; -1 if not even for an evaluator."""
    if wish.is_shared:
        # A share is of one device: what is left of two is none.
        shares = [(gpu, count_shares(wish, gpu.total_mb)) for one in hosts for gpu in one.gpus]
        return sum(int(gpu.share * count) for gpu, count in shares) - evaluator_gpus
    per_worker = wish.per_worker or 1

    def fit(one: HostGpus, beside: int = 0) -> int:
        return 0 if per_worker > 1 and one.is_split else (one.free - beside) // per_worker

    if not evaluator_gpus:
        return sum(map(fit, hosts))
    # An evaluator is where it leaves most for the others.
    places = [
        one
        for one in hosts
        if one.free >= evaluator_gpus and not (evaluator_gpus > 1 and one.is_split)
    ]
    if not places:
        return -1
    return sum(map(fit, hosts)) - min(fit(one) - fit(one, evaluator_gpus) for one in places)
