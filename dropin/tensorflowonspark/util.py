"""Small things that programs import."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Where an executor's number is kept, in its working folder.
_FILE = "executor_id"


def get_ip_address() -> str:
    """An address of this host that others may reach."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("10.255.255.255", 9))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def find_in_path(path: str, file: str) -> Any:
    """The first file of that name in a list of folders; False if there is none."""
    for folder in path.split(os.pathsep):
        candidate = Path(folder) / file
        if candidate.exists() and candidate.is_file():
            return str(candidate)
    return False


def write_executor_id(num: int) -> None:
    Path(_FILE).write_text(str(num))


def read_executor_id() -> int:
    if not Path(_FILE).is_file():
        raise Exception(f"No {_FILE} file in {Path.cwd()}: write_executor_id() writes one.")
    return int(Path(_FILE).read_text())


def single_node_env(
    num_gpus: int = 1,
    worker_index: int = -1,
    nodes: Sequence[str] = [],
) -> None:
    """Makes a node that trains alone see the GPUs that it may use, if there are any.

    Args:
        worker_index: The number of this node.
        nodes: The hosts of all nodes by number; those of one host share its GPUs.
    """
    from tensorflowonspark import gpu_info, node_env

    node_env.expand_classpath()
    if worker_index >= 0 and nodes:
        mine = _host_of(nodes[worker_index])
        worker_index = [_host_of(node) for node in nodes[:worker_index]].count(mine)
    found = ""
    if num_gpus > 0 and gpu_info.is_gpu_available():
        found = str(gpu_info.get_gpus(num_gpus, worker_index))
    os.environ["CUDA_VISIBLE_DEVICES"] = found


def _host_of(address: str) -> str:
    """Whole, so that 10.0.0.1 is not taken for 10.0.0.10."""
    return address.rpartition(":")[0] or address
