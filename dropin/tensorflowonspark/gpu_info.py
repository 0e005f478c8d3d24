"""Which GPUs of this host are free."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import Any

#: Kept: nobody looks again, as a GPU that is busy stays so for longer than anybody waits.
MAX_RETRIES = 3
AS_STRING = "string"
AS_LIST = "list"


def is_gpu_available() -> bool:
    """Whether there is an NVIDIA GPU."""
    return shutil.which("nvidia-smi") is not None and bool(_ask("--list-gpus"))


def get_gpus(num_gpu: int = 1, worker_index: int = -1, format: str = AS_STRING) -> Any:
    """The numbers of free GPUs: none of their processes computes.

    Args:
        num_gpu: How many.
        worker_index: The number of this worker on this host, which tells which ones; -1 takes
            any.
        format: As text with commas, or as a list.
    """
    if format not in (AS_STRING, AS_LIST):
        raise ValueError(f"get_gpus() got format={format!r}; expected AS_STRING or AS_LIST")
    chosen: list[str] = []
    if num_gpu > 0:
        gpus = _query("gpu", "index,uuid")
        free = find_free(gpus, _query("compute-apps", "gpu_uuid"))
        chosen = choose(free, num_gpu, worker_index)
        if not chosen:
            has_tool = shutil.which("nvidia-smi") is not None
            raise Exception(
                f"Unable to find {num_gpu} free GPU(s): this host has {len(gpus)}, of which"
                f" {len(free)} are free"
                f"{'' if has_tool else ', as far as can be told without nvidia-smi on PATH'}."
                " Ask for fewer with num_gpus, or end what computes on the others."
            )
    return ",".join(chosen) if format == AS_STRING else chosen


def find_free(gpus: list[list[str]], busy: list[list[str]]) -> list[str]:
    """The numbers of GPUs that no process of the list is on."""
    used = {row[0] for row in busy}
    return [index for index, uuid in gpus if uuid not in used]


def choose(free: list[str], num_gpu: int, worker_index: int) -> list[str]:
    """Some of the free ones; none if there are too few."""
    if len(free) < num_gpu:
        return []
    if worker_index < 0:
        return random.sample(free, num_gpu)
    start = worker_index * num_gpu % (len(free) // num_gpu * num_gpu)
    return free[start : start + num_gpu]


def _query(what: str, fields: str) -> list[list[str]]:
    # By named fields: names of GPUs have any number of words.
    lines = _ask(f"--query-{what}={fields}", "--format=csv,noheader").splitlines()
    return [[part.strip() for part in line.split(",")] for line in lines if line.strip()]


def _ask(*options: str) -> str:
    try:
        answer = subprocess.run(
            ["nvidia-smi", *options], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout
