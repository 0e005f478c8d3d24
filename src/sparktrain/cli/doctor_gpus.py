"""What `sparktrain doctor` tells of GPUs: what a worker on each executor would get."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.agent.devices import VISIBLE, split_devices
from sparktrain.agent.given import Given
from sparktrain.agent.node_devices import NodeDevices
from sparktrain.driver.gpu_survey import describe_host
from sparktrain.errors import DeviceError
from sparktrain.spec import WORKER, DeviceWish, NodeSpec

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext


def tell_gpus(row: dict[str, Any]) -> str:
    """What a worker in this slot would get."""
    found = row["gpus"]
    if "error" in found:
        return str(found["error"])
    there = f"the host has {found['total']}, {found['free']} of them free"
    if found["given"] is not None:
        there = f"Spark gives its task {', '.join(found['given']) or 'none'}"
    limit = f", {found['limit_mb']:,} MB of each" if found["limit_mb"] else ""
    seen = "sees all that there are" if found["seen"] is None else f"gets {found['seen']}{limit}"
    return f"{there}; a worker here {seen}"


def find_gpus(wish: DeviceWish, context: BarrierTaskContext, run_id: str) -> dict[str, Any] | None:
    """What a worker in this slot would get; None where there are no GPUs, or another slot is
    the worker's.
    """
    index, known = context.partitionId(), describe_host(os.environ, wish.claims_dir)
    executors = [info.address for info in context.getTaskInfos()]
    node = NodeSpec(WORKER, index)
    given = None
    if (resource := context.resources().get(wish.resource)) is not None:
        given = split_devices([node], resource.addresses, wish).get(node.name, ())
    # All have looked before the first one claims.
    free = json.dumps([gpu.uuid for gpu in known.gpus if gpu.is_free])
    workers = find_workers(executors, context.allGather(free), index, wish)
    if given is None and index not in workers:
        context.barrier()
        return None
    try:
        with NodeDevices(wish, node, Given(given, len(workers)), {}, run_id) as seen:
            context.barrier()  # nobody lets go before all have theirs
    except DeviceError as error:
        context.barrier()
        return {"error": str(error)}
    if given is None and not known.total and not seen.variables:
        return None
    told = {"given": given, "seen": seen.variables.get(VISIBLE), "limit_mb": seen.limit_mb}
    told["ids"] = seen.ids
    return {"total": known.total, "free": known.free, **told}


def find_workers(
    executors: Sequence[str], free: Sequence[str], index: int, wish: DeviceWish
) -> tuple[int, ...]:
    """The slots of a host that a run with one worker for each executor would use.

    A run does not need all slots, and where devices are few, it has fewer workers.

    Args:
        executors: The address of each slot's executor: a host and a port.
        free: The free devices that each slot sees, as JSON: executors may see different ones.
        index: Of a slot of the host.
    """
    host = executors[index].rsplit(":", 1)[0]
    found: list[int] = []
    for slot, executor in enumerate(executors):
        if executor.rsplit(":", 1)[0] != host or executors.index(executor) != slot:
            continue
        num_free = len(json.loads(free[slot]))
        room = max(1, num_free // (wish.per_worker or 1))
        beside = sum(free[other] == free[slot] for other in found)
        if wish.is_shared or not num_free or beside < room:
            found.append(slot)
    return tuple(found)
