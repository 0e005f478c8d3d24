"""What is asked of a Spark session, classic or Connect: configuration, slots, addresses."""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local\[(\d+)(?:,\s*\d+)?\]$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]$")
LOOPBACK = "127.0.0.1"


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def get_conf(spark: SparkSession, key: str) -> str | None:
    value: Any = spark.conf.get(key, None)
    return None if value is None else str(value)


def get_task_cpus(spark: SparkSession) -> int:
    return int(float(get_conf(spark, "spark.task.cpus") or 1)) or 1


def slots_from_master(master: str, task_cpus: int) -> int | None:
    """The slots a master URL promises; None where it does not tell."""
    if master == "local":
        return 1
    if found := _LOCAL.match(master):
        return int(found[1]) // task_cpus
    if found := _LOCAL_CLUSTER.match(master):
        return int(found[1]) * (int(found[2]) // task_cpus)
    return None


def slots_promised(spark: SparkSession) -> int | None:
    """The slots there will be when all executors that were asked for are up; None if unknown."""
    task_cpus = get_task_cpus(spark)
    instances, cores = (
        get_conf(spark, f"spark.executor.{what}") for what in ("instances", "cores")
    )
    if instances is not None and cores is not None:
        return int(instances) * (int(cores) // task_cpus)
    return slots_from_master(get_conf(spark, "spark.master") or "", task_cpus)


def count_slots(spark: SparkSession, profile: Any = None) -> int | None:
    """How many tasks can run at the same time now; None if the session cannot tell.

    Args:
        profile: Of the tasks, if they have one of their own.
    """
    if is_connect(spark):
        return slots_from_master(get_conf(spark, "spark.master") or "", get_task_cpus(spark))
    # Spark's own check for barrier stages asks the same.
    context = spark.sparkContext._jsc.sc()
    manager = context.resourceProfileManager()
    if profile is None:
        return int(context.maxNumConcurrentTasks(manager.defaultResourceProfile()))
    manager.addResourceProfile(profile._java_resource_profile)
    return int(context.maxNumConcurrentTasks(profile._java_resource_profile))


def count_executors(spark: SparkSession) -> int | None:
    """How many executors there are now; None if the session cannot tell."""
    if not is_connect(spark):
        known = int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size())
        return max(known - 1, 1)  # the driver is there too, and in local mode it is the executor
    master = get_conf(spark, "spark.master") or ""
    if found := _LOCAL_CLUSTER.match(master):
        return int(found[1])
    return 1 if master.startswith("local") else None


def wait_for_slots(
    spark: SparkSession, needed: int, wait_s: float, profile: Any = None
) -> tuple[int | None, float]:
    """Looks until there are enough slots or the time is over: (slots, seconds it took)."""
    started = time.monotonic()
    while True:
        slots = count_slots(spark, profile)
        waited = time.monotonic() - started
        if slots is None or slots >= needed or waited >= wait_s:
            return slots, waited
        time.sleep(0.1)


def find_driver_address(spark: SparkSession) -> tuple[str, str]:
    """Where to listen for the nodes: (address to bind, address to tell them)."""
    is_one_machine = (get_conf(spark, "spark.master") or "").startswith("local")
    if is_connect(spark):
        server = str(spark.client.host)
        if not _is_this_machine(server):
            own = _own_address_towards(server)
            return own, own
    if is_one_machine:
        return LOOPBACK, LOOPBACK
    told = get_conf(spark, "spark.driver.host") or socket.gethostname()
    return get_conf(spark, "spark.driver.bindAddress") or told, told


def _is_this_machine(host: str) -> bool:
    if host in ("localhost", "::1") or host.startswith("127."):
        return True
    return host == _own_address_towards(host)


def _own_address_towards(host: str) -> str:
    """The address of the interface that packets to host would leave by; sends nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return LOOPBACK
