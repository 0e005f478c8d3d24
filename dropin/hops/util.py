"""What a program asks about its application."""

from __future__ import annotations

import os
import time
from typing import Any

from hops.session import find_session, find_settings

#: Set on nodes, which have no session to ask.
EXECUTORS = "HOPS_NUM_EXECUTORS"
#: As Hopsworks sets it.
SERVERS = "NUM_TF_PS"
#: Executors register one after the other; when none has come for so long, all are there.
QUIET_S = 3.0
TICK_S = 0.2

#: How many an application had when none came any more.
_settled: dict[str, int] = {}


def num_executors(spark: Any = None) -> int:
    """How many executors the session has, or may have with dynamic allocation.

    Args:
        spark: A SparkSession. Defaults to the active one.
    """
    if spark is None and EXECUTORS in os.environ:
        return int(os.environ[EXECUTORS])
    return count_executors(find_session(spark))


def count_executors(spark: Any) -> int:
    from sparktrain.driver.spark_facts import get_conf, is_connect
    from sparktrain.errors import ConfigError

    is_dynamic = (get_conf(spark, "spark.dynamicAllocation.enabled") or "").lower() == "true"
    wished = get_conf(spark, "spark.dynamicAllocation.maxExecutors") if is_dynamic else None
    # Hadoop's and Spark's own word for "no limit", which is not a number of nodes to start.
    if wished is not None and int(wished) < 2**31 - 1:
        return int(wished)
    wished = get_conf(spark, "spark.executor.instances")
    if wished is not None and int(wished) > 0:
        return int(wished)
    if found := count_in_master(get_conf(spark, "spark.master") or ""):
        return found
    if not is_connect(spark):
        # In local mode the driver is the executor, and no other will come.
        is_local = (get_conf(spark, "spark.master") or "").startswith("local")
        if found := count_registered(spark) if is_local else wait_for_executors(spark):
            return found
    raise ConfigError(
        problem="The number of executors is not known: neither spark.executor.instances nor"
        " spark.dynamicAllocation.maxExecutors is set, and none is there yet.",
        advice="Set spark.executor.instances.",
    )


def wait_for_executors(spark: Any) -> int:
    """The executors that have registered, when no more of them come; 0 if there are none.

    A session is there before its executors are.
    """
    app, wait_s = spark.sparkContext.applicationId, find_settings(spark).slot_wait_s
    count, changed = count_registered(spark), time.monotonic()
    while count == 0 or count != _settled.get(app):
        time.sleep(TICK_S)
        if (now := count_registered(spark)) != count:
            count, changed = now, time.monotonic()
        elif time.monotonic() - changed >= (min(QUIET_S, wait_s) if count else wait_s):
            break
    if count:
        _settled[app] = count
    return count


def count_registered(spark: Any) -> int:
    from sparktrain.driver.spark_facts import count_slots

    known = int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver
    return known or count_slots(spark) or 0


def count_in_master(master: str) -> int | None:
    """The executors that a master's address tells; of one process, its threads."""
    from sparktrain.driver.spark_facts import slots_from_master

    # One core each: a count of slots is one of executors.
    if master.startswith("local-cluster["):
        return int(master.removeprefix("local-cluster[").split(",")[0])
    return slots_from_master(master, 1)


def num_param_servers(spark: Any = None) -> int:
    """How many parameter servers the program asks for: NUM_TF_PS, else
    spark.tensorflow.num.ps, else 0.

    Args:
        spark: A SparkSession. Defaults to the active one.
    """
    from sparktrain.driver.spark_facts import get_conf
    from sparktrain.errors import ConfigError

    wished, source = os.environ.get(SERVERS), SERVERS
    if wished is None and not (spark is None and EXECUTORS in os.environ):
        source = "spark.tensorflow.num.ps"
        wished = get_conf(find_session(spark), source)
    if wished is None:
        return 0
    if not wished.strip().isdigit():
        raise ConfigError(
            problem=f"{source} is {wished!r}.",
            advice="Expected how many parameter servers there are, 0 for none.",
        )
    return int(wished)
