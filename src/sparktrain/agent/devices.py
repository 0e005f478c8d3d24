"""Which GPUs a node may use: who gets which of those that there are. Decides; asks nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktrain.errors import DeviceError
from sparktrain.spec import EVALUATOR, PS, DeviceWish, NodeSpec

#: What the drivers of NVIDIA and AMD look at. With this value they see no device at all.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_VARIABLES = (VISIBLE, "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_NONE = "-1"
#: Into how many shares a device may be divided.
MOST_SHARES = 50

#: A ps holds variables, and no GPU.
HIDDEN: Mapping[str, str] = dict.fromkeys(_VARIABLES, _NONE)


def split_devices(
    nodes: Sequence[NodeSpec], addresses: Sequence[str], wish: DeviceWish
) -> dict[str, tuple[str, ...]]:
    """The addresses of each node of a task, by name.

    Nobody has one that another has, unless devices are shared: then all have them all.
    """
    if wish.is_shared:
        return {
            node.name: tuple(addresses[: count if count is not None else 1])
            for node in nodes
            if (count := wish.count_for(node)) != 0
        }
    shares = {}
    start = 0
    # Those for whom nobody said a number share what the others leave.
    fixed = sum(wish.count_for(node) or 0 for node in nodes)
    open_nodes = [node for node in nodes if wish.count_for(node) is None]
    left = max(len(addresses) - fixed, 0)
    # Nodes that train come first: they are named first, and must not miss one.
    for node in sorted(nodes, key=lambda node: node.rank is None):
        count = wish.count_for(node)
        if count == 0:
            continue
        if count is None:
            number = open_nodes.index(node)
            count = (left - number + len(open_nodes) - 1) // len(open_nodes)
        shares[node.name] = tuple(addresses[start : start + count])
        start += count
    return shares


def make_device_variables(addresses: Sequence[str]) -> dict[str, str]:
    """The environment of a node that may use these devices and no others."""
    if not addresses:
        return dict(HIDDEN)
    # Spark's scripts and nvidia-smi count in the order of the bus; CUDA's own is by speed.
    return {VISIBLE: ",".join(addresses), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def read_visible(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """What CUDA_VISIBLE_DEVICES leaves; None if it is not set.

    As for CUDA itself, what is behind an entry that is none is not seen.
    """
    text = environ.get(VISIBLE)
    if text is None:
        return None
    found: list[str] = []
    for part in text.split(","):
        token = part.strip()
        if not (token.isdecimal() or token.startswith(("GPU-", "MIG-"))):
            break
        if token not in found:
            found.append(token)
    return tuple(found)


def find_own(addresses: Sequence[str], visible: Sequence[str] | None) -> tuple[str, ...]:
    """The devices that Spark's addresses mean, where some of the host's are visible only.

    They are entries of CUDA_VISIBLE_DEVICES, else places in it, counted from 0. Only places
    where an address could be one device as an entry, and another one as a place: each task
    decides for itself, and two must not end up with the same device.

    Raises:
        DeviceError: They are neither.
    """
    if visible is None:
        return tuple(addresses)
    places = [str(place) for place in range(len(visible))]
    is_clear = all(entry not in places or visible[int(entry)] == entry for entry in visible)
    if is_clear and all(address in visible for address in addresses):
        return tuple(addresses)
    if all(address.isdecimal() and int(address) < len(visible) for address in addresses):
        return tuple(visible[int(address)] for address in addresses)
    raise DeviceError(
        problem=f"Spark gave the GPUs {', '.join(addresses)}, and CUDA_VISIBLE_DEVICES has"
        f" {','.join(visible) or 'none'}.",
        needed=len(addresses),
        found=len(visible),
        advice="Let spark.executor.resource.gpu.discoveryScript list what executors see, or number"
        " them from 0 in the order of CUDA_VISIBLE_DEVICES.",
    )


def count_shares(wish: DeviceWish, total_mb: int) -> int:
    """Into how many equal shares nodes divide a device, as many as Spark schedules on it.

    1 is the device alone; 0 if it has not the memory for one.

    Args:
        total_mb: Its memory; 0 if that is not known.
    """
    if wish.memory_fraction:
        return min(MOST_SHARES, int(1 / wish.memory_fraction + 1e-9))
    if not wish.memory_mb:
        return 1
    return min(MOST_SHARES, total_mb // wish.memory_mb) if total_mb else MOST_SHARES


def make_memory_error(wish: DeviceWish, largest_mb: int) -> DeviceError:
    """Of megabytes that no device has."""
    return DeviceError(
        problem=f"gpu_memory_mb={wish.memory_mb} is more than the GPUs have: {largest_mb} MB.",
        needed=1,
        found=0,
        advice=f"Give at most gpu_memory_mb={largest_mb}, or leave it out for a device alone.",
    )


def count_share(
    wish: DeviceWish, node: NodeSpec, num_here: int, num_devices: int, aside: int = 0
) -> int:
    """How many of a host's own devices a node takes where Spark does not give them out.

    Args:
        num_here: How many nodes of the host train.
        num_devices: How many devices may be used, by this node or by others of ours.
        aside: How many of them are for nodes that do not train.

    Raises:
        DeviceError: There is not one for each.
    """
    count = wish.count_for(node)
    if count is not None:
        return count
    if not num_devices:
        return 0
    if wish.is_shared:
        return 1
    left = max(num_devices - aside, 0)
    if left < num_here:
        raise DeviceError(
            problem="This host has fewer free GPUs than nodes that train.",
            needed=num_here,
            found=left,
            advice="Share them with gpu_memory_fraction, use fewer workers, or none of the GPUs"
            " with gpus_per_worker=0.",
        )
    share = left // max(num_here, 1)
    return min(share, wish.at_most) if wish.at_most else share


def count_training(nodes: Sequence[NodeSpec], hosts: Sequence[str], host: str) -> int:
    """How many nodes of a host train, where they are dealt out to tasks on these hosts."""
    return sum(
        node.rank is not None and node.role != PS and hosts[place % len(hosts)] == host
        for place, node in enumerate(nodes)
    )


def count_aside(
    wish: DeviceWish, nodes: Sequence[NodeSpec], hosts: Sequence[str], host: str
) -> int:
    """How many devices of a host are for evaluators, which have a number of their own."""
    return sum(
        wish.per_evaluator
        for place, node in enumerate(nodes)
        if node.role == EVALUATOR and hosts[place % len(hosts)] == host
    )
