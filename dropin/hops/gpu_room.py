"""GPUs of trials where Spark gives out none: how many run at a time, with how many each.

Each trial is a run of its own, which sees the others of its host only by what they have taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hops import util
from sparktrain.driver import spark_facts
from sparktrain.driver.gpu_plan import check_hosts, count_room, plan_gpus
from sparktrain.driver.gpu_survey import HostGpus, ask_hosts
from sparktrain.errors import DeviceError, DevicesTakenError
from sparktrain.settings import Settings
from sparktrain.spec import DeviceWish

#: A trial may wait so long for what other trials, or strangers, compute on.
WAIT_S = 24 * 3600.0
#: How long it waits before it tries again; the next time Spark may choose another host.
PAUSE_S = 5.0
TICK_S = 0.2


@dataclass(frozen=True)
class GpuRoom:
    """What the hosts' GPUs are enough for.

    Attributes:
        settings: Of each trial.
        idle: Slots for which there is no GPU.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    idle: int = 0


def find_room(spark: Any, settings: Settings, num_trials: int) -> GpuRoom:
    """Asks the hosts, unless there is nothing to share.

    Raises:
        DeviceError: A host where trials can be started has not what each shall have.
    """
    if num_trials < 2:
        return GpuRoom()
    plan = plan_gpus(spark, settings)
    slots, _ = spark_facts.wait_for_slots(spark, 1, settings.slot_wait_s)
    if plan.amount or plan.wish.per_worker == 0 or slots == 0:
        return GpuRoom()
    slots = slots or util.count_executors(spark)
    survey = ask_hosts(spark, slots, settings.slot_wait_s, plan.wish.claims_dir)
    return plan_room(survey.hosts, plan.wish, slots, num_trials, survey.is_complete)


def plan_room(
    hosts: Sequence[HostGpus],
    wish: DeviceWish,
    slots: int,
    num_trials: int,
    is_complete: bool = True,
) -> GpuRoom:
    """Shares out what is free, or all of it where others have everything: they may be done soon.

    Args:
        is_complete: Whether these are all hosts; else there may be a GPU for every slot.
    """
    check_hosts(hosts, wish, 0, 0)
    for one in hosts:
        if one.total < (wish.per_worker or 0):
            # Trials would fail there one after the other, while the rest of them wait elsewhere.
            raise DeviceError(
                problem=f"Trials are started on all hosts of the executors, each with"
                f" gpus_per_worker={wish.per_worker}, and {one.host} has {one.total} GPUs.",
                needed=wish.per_worker or 0,
                found=one.total,
                advice="Leave that host out, lower gpus_per_worker or leave it to be found, or let"
                " Spark give out GPUs (spark.executor.resource.gpu.amount).",
            )
    if not any(one.gpus for one in hosts):
        return GpuRoom()
    known = hosts if count_room(hosts, wish) > 0 else [one.emptied() for one in hosts]
    settings: dict[str, Any] = {}
    room = count_room(known, wish)
    if wish.per_worker is None and not wish.is_shared:
        here = math.ceil(min(slots, num_trials) / len(hosts))
        share = max(1, max(one.free for one in known) // here)
        share = min(share, wish.at_most or share)
        settings["gpus_at_most"] = share
        # A host with less than a share has room for one, which takes what there is.
        room = sum(max(one.free // share, min(one.free, 1)) for one in known)
    if not is_complete:
        return GpuRoom(settings)
    if wish.per_worker is None and not all(one.gpus for one in hosts):
        return GpuRoom(settings)  # on hosts without GPUs any number trains without
    return GpuRoom(settings, max(0, slots - room))


def is_taken(error: Exception) -> bool:
    """Whether a run failed because others have the GPUs."""
    return isinstance(error, DevicesTakenError) or (
        isinstance(error, DeviceError) and error.is_taken
    )


def run_patiently(run: Callable[[], Any], tell: Callable[[Exception], None]) -> Any:
    """What run() gives; it is called again as long as others have the GPUs.

    Args:
        tell: Called once, with the error, if there is a need to wait.
    """
    until = time.monotonic() + WAIT_S
    has_told = False
    while True:
        try:
            return run()
        except (DeviceError, DevicesTakenError) as error:
            if not is_taken(error) or time.monotonic() > until:
                raise
            if not has_told:
                tell(error)
            has_told = True
        again = time.monotonic() + PAUSE_S
        while time.monotonic() < again:  # an interrupt of this thread comes between two calls
            time.sleep(TICK_S)
