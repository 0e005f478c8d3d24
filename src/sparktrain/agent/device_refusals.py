"""Why a node does not get its GPUs: errors of what was found. Asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktrain.agent.devices import VISIBLE
from sparktrain.agent.gpus import Gpu
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish

_SCRIPT = (
    "let the discovery script of each executor (spark.executor.resource.gpu.discoveryScript, or"
    " spark.worker.resource.gpu.discoveryScript) list GPUs that no other one lists"
)


def make_given_error(
    wish: DeviceWish, gpus: Sequence[Gpu], shares: int, needed: int, found: int, is_taken: bool
) -> DeviceError:
    """Of what Spark gave, and others have.

    Args:
        shares: Into how many the first of them is divided.
        is_taken: Whether nodes of other runs have them; else it is this run alone.
    """
    listed = ", ".join(gpu.uuid for gpu in gpus)
    advice = "Stop the other cluster first."
    problem = f"Spark gave GPUs that nodes of another run have: {listed}."
    if not is_taken and not wish.is_shared:
        problem = f"Spark gave the same GPUs to two nodes of this run: {listed}."
        advice = f"Each node has its own: {_SCRIPT}."
    elif not is_taken:
        part = f"gpu_memory_fraction={wish.memory_fraction:g}"
        if wish.memory_mb:
            total = next((f" of its {gpu.total_mb} MB" for gpu in gpus if gpu.total_mb), "")
            part = f"gpu_memory_mb={wish.memory_mb}{total}"
        problem = (
            f"Spark gave {listed} to more nodes of this run than share it: {part} leaves room for"
            f" {shares}."
        )
        advice = (
            f"Give spark.task.resource.{wish.resource}.amount={_round_down(1 / shares):g} to have"
            f" {shares} on each device, or less memory to each node; where executors of a host"
            f" were given the same address, {_SCRIPT}."
        )
    return DeviceError(
        problem=problem, needed=needed, found=found, is_taken=is_taken, advice=advice
    )


def _round_down(amount: float) -> float:
    """To as many digits as one writes; not up, for which Spark would schedule one less."""
    return amount * 10_000 // 1 / 10_000


def make_free_error(
    name: str, num_gpus: int, needed: int, found: int, is_taken: bool
) -> DeviceError:
    """Of a host's own GPUs, of which too few are free.

    Args:
        is_taken: Whether there were enough without the nodes of other runs and strangers.
    """
    return DeviceError(
        problem=f"{name} does not find enough free GPUs: of the host's {num_gpus} that it may use,"
        " the others compute or are given to other nodes.",
        needed=needed,
        found=found,
        is_taken=is_taken,
        advice="Lower gpus_per_worker, share them with gpu_memory_fraction, or end what"
        " computes on them.",
    )


def make_none_error(
    name: str, gpus: Sequence[Gpu], visible: Sequence[str] | None, needed: int
) -> DeviceError:
    """Of a host without a GPU that the node may use."""
    problem = (
        f"{name} finds no GPU on its host, neither among Spark's resources nor with nvidia-smi"
    )
    empty = [gpu.uuid for gpu in gpus if gpu.is_empty]
    if empty:
        problem += f"; in MIG mode and without a part is {', '.join(empty)}"
    if visible and gpus:
        listed = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        problem += f"; {VISIBLE}={','.join(visible)}, and there are {listed}"
    return DeviceError(
        problem=f"{problem}.",
        needed=needed,
        found=0,
        advice="Give gpus_per_worker=0, or use executors with GPUs.",
    )


def make_part_error(needed: int) -> DeviceError:
    """Of several parts for a process."""
    return DeviceError(
        problem="The GPUs of this host are split (MIG), and CUDA gives a process one part only.",
        needed=needed,
        found=1,
        advice="Give gpus_per_worker=1.",
    )


def make_empty_error(empty: Sequence[Gpu], needed: int) -> DeviceError:
    """Of GPUs that Spark gave, and CUDA cannot use."""
    return DeviceError(
        problem=f"Spark gave {', '.join(gpu.uuid for gpu in empty)}, in MIG mode and without a"
        " part.",
        needed=needed,
        found=needed - len(empty),
        advice="Make parts (nvidia-smi mig -cgi ... -C) or turn the mode off (nvidia-smi -mig 0).",
    )


def find_doubled(taken: Iterable[tuple[str, Sequence[str]]]) -> str:
    """What is wrong where several have one device, each for itself alone; empty if nothing is.

    Args:
        taken: Who has which devices.
    """
    owners: dict[str, list[str]] = {}
    for who, devices in taken:
        for one in devices:
            owners.setdefault(one, []).append(who)
    for one, found in owners.items():
        # What has no id of its own has a number, which every host has.
        if len(found) > 1 and one.startswith(("GPU-", "MIG-")):
            return (
                f"{' and '.join(found)} took the same GPU, {one}: they are in containers of one"
                " host that do not see each other's claims; mount a folder of the host into all of"
                " them, and give it as gpu_claims_dir"
            )
    return ""
