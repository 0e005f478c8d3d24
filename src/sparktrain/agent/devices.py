"""Which accelerators a node may use: what Spark gave to the task that starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktrain.spec import EVALUATOR, PS, NodeSpec

#: What the drivers of NVIDIA and AMD look at. With this value they see no device at all.
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_NONE = "-1"

#: A ps holds variables, and no GPU.
HIDDEN: Mapping[str, str] = dict.fromkeys(_VARIABLES, _NONE)


def split_devices(
    nodes: Sequence[NodeSpec], addresses: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The addresses of each node that may have some, by name: even shares, no address twice.

    Nodes that train come first, so that the evaluator gets what is left if it is not enough.
    """
    sharing = [node for node in nodes if node.role != PS]
    sharing.sort(key=lambda node: node.role == EVALUATOR)
    shares = {}
    start = 0
    for number, node in enumerate(sharing):
        count = (len(addresses) - number + len(sharing) - 1) // len(sharing)
        shares[node.name] = tuple(addresses[start : start + count])
        start += count
    return shares


def make_device_variables(addresses: Sequence[str]) -> dict[str, str]:
    """The environment of a node that may use these devices and no others."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(addresses) or _NONE}
