"""What a trainer is told first: the same for one in a task and one that outlives it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from sparktrain.agent.node_devices import Devices
from sparktrain.agent.process import is_sparks_own
from sparktrain.spec import PERIODIC, NodeSpec, RunSpec


def describe_data(spec: RunSpec, node: NodeSpec) -> bytes:
    """The tables as the trainer gets them: not in a frame, which lists of files may exceed."""
    fed = [table.to_dict() for table in spec.tables]
    files = [table.to_dict(node.rank) for table in spec.file_tables]
    return json.dumps({"fed": fed, "files": files}).encode()


def make_job(
    spec: RunSpec,
    node: NodeSpec,
    data_bytes: int,
    devices: Devices,
    trays: dict[str, Any] | None = None,
    door: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The first frame; the function and the data follow it.

    Args:
        trays: By which fresh rows come, in a task.
        door: At which rows come, outside of one; or parameters, on a parameter server.
    """
    mine = [entry for entry in sys.path if entry and not is_sparks_own(entry)]
    return {
        "kind": "job",
        "role": node.role,
        "index": node.index,
        "first_rank": node.first_rank,
        "num_workers": spec.num_workers,
        "num_ps": spec.num_ps,
        "distribution": spec.distribution,
        "store_token": spec.feed_token if spec.distribution == PERIODIC else "",
        "run_id": spec.run_id,
        "run_dir": spec.run_dir,
        "needs_strategy": spec.needs_strategy,
        # Several GPUs of a worker that trains alone are used together, unless nothing shall be.
        "num_mirrors": devices.count if spec.distribution in ("auto", PERIODIC) else 0,
        "num_gpus": devices.count,
        "gpu_limit_mb": devices.limit_mb,
        "max_result_bytes": spec.max_result_bytes,
        "python_path": list(dict.fromkeys([*mine, *spec.python_path])),
        "function_bytes": len(spec.function),
        "data_bytes": data_bytes,
        "events": asdict(spec.events) if spec.events is not None else {},
        "trays": trays,
        "door": door,
    }
