"""How many GPUs this process may use."""

from __future__ import annotations

import os

from tensorflowonspark import gpu_info


def get_num_gpus() -> int:
    """EXECUTOR_GPUS, else those that CUDA_VISIBLE_DEVICES leaves, else those of the host."""
    wished = os.environ.get("EXECUTOR_GPUS", "").strip()
    if wished.isdigit():
        return int(wished)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return count_visible(visible) if visible is not None else len(gpu_info._query("gpu", "index"))


def count_visible(visible: str) -> int:
    """As CUDA reads it: up to the first one that is none."""
    count = 0
    for part in visible.split(","):
        name = part.strip()
        if not (name.isdigit() or name.startswith(("GPU-", "MIG-"))):
            break
        count += 1
    return count
