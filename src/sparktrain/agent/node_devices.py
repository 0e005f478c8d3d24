"""The GPUs of one node, from before its trainer starts until it is gone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktrain.agent import nvidia
from sparktrain.agent.claims import Claims, count_free, count_units
from sparktrain.agent.devices import (
    HIDDEN,
    VISIBLE,
    count_share,
    find_own,
    make_device_variables,
    read_visible,
)
from sparktrain.errors import DeviceError
from sparktrain.spec import PS, DeviceWish, NodeSpec


@dataclass(frozen=True)
class Given:
    """What the task that starts a node was given.

    Attributes:
        addresses: The node's share of what Spark gave to the task; None if Spark gives out none.
        num_here: How many nodes of the host train.
    """

    addresses: tuple[str, ...] | None = None
    num_here: int = 1


@dataclass(frozen=True)
class Devices:
    """What a node's trainer is told.

    Attributes:
        variables: Of its environment; those that the user sets count more.
        count: How many devices it sees, where that is known.
        limit_mb: The memory to take of each; 0 for as much as is needed.
    """

    variables: Mapping[str, str]
    count: int = 0
    limit_mb: int = 0


class NodeDevices:
    """Finds and claims a node's devices. Use as a context manager.

    Args:
        wished: Environment variables of the user: a list of devices among them is the choice.
    """

    def __init__(
        self, wish: DeviceWish, node: NodeSpec, given: Given, wished: Mapping[str, str]
    ) -> None:
        self._wish = wish
        self._node = node
        self._given = given
        self._wished = wished
        self._claims = Claims()

    def __enter__(self) -> Devices:
        """
        Raises:
            DeviceError: There are not as many as the node shall have.
        """
        try:
            return self._find()
        except BaseException:
            self._claims.__exit__(None, None, None)
            raise

    def __exit__(self, *exc: object) -> None:
        self._claims.__exit__(*exc)

    def _find(self) -> Devices:
        if self._node.role == PS or self._wish.count_for(self._node) == 0:
            return Devices(HIDDEN)
        if VISIBLE in self._wished:
            chosen = [one for one in self._wished[VISIBLE].split(",") if one.strip()]
            return Devices({}, len(chosen), self._wish.memory_mb)
        visible = read_visible(os.environ)
        if self._given.addresses is None:
            return self._take_free(visible)
        own = find_own(self._given.addresses, visible)
        if not own:
            return Devices(HIDDEN)
        gpus = nvidia.find_gpus()
        known = [gpu for token in own for gpu in gpus if gpu.answers_to(token)]
        if known:
            self._claim_given(known)
        return self._make(own, known)

    def _claim_given(self, known: Sequence[nvidia.Gpu]) -> None:
        """What Spark gave may be in use by a cluster, whose tasks have ended."""
        with self._claims.looking():
            wanted = [(gpu.uuid, self._units(gpu)) for gpu in known]
            if len(self._claims.claim(wanted, len(wanted))) < len(wanted):
                free = sum(count_free(gpu.uuid) >= self._units(gpu) for gpu in known)
                raise DeviceError(
                    problem="Spark gave GPUs that nodes of another run have:"
                    f" {', '.join(gpu.uuid for gpu in known)}.",
                    needed=len(known),
                    found=free,
                    advice="Stop the other cluster first.",
                )

    def _take_free(self, visible: Sequence[str] | None) -> Devices:
        """Spark gives out none: takes free ones of the host, while nobody else looks."""
        if visible is not None and not visible:
            return self._without(0)
        with self._claims.looking():
            usable = nvidia.choose_visible(nvidia.find_gpus(), visible)
            count = count_share(self._wish, self._node, self._given.num_here, len(usable))
            if not count:
                return self._without(len(usable))
            if count > 1 and any(gpu.parent for _, gpu in usable):
                raise DeviceError(
                    problem="The GPUs of this host are split (MIG), and CUDA gives a process one"
                    " part only.",
                    needed=count,
                    found=1,
                    advice="Give gpus_per_worker=1.",
                )
            wanted = self._sort(usable)
            chosen = self._claims.claim([(gpu.uuid, self._units(gpu)) for gpu in wanted], count)
        if len(chosen) < count:
            raise DeviceError(
                problem=f"{self._node.name} does not find enough free GPUs: of the host's"
                f" {len(usable)}, the others compute or are given to other nodes.",
                needed=count,
                found=len(chosen),
                advice="Lower gpus_per_worker, share them with gpu_memory_fraction, or end what"
                " computes on them.",
            )
        names = {gpu.uuid: token for token, gpu in usable}
        known = [gpu for gpu in wanted if gpu.uuid in chosen]
        return self._make([names[uuid] for uuid in chosen], known)

    def _sort(self, usable: Sequence[tuple[str, nvidia.Gpu]]) -> list[nvidia.Gpu]:
        """Those to try, the best first: idle ones, and of shared ones those with most room."""
        gpus = [gpu for _, gpu in usable]
        if not self._wish.is_shared:
            return [gpu for gpu in gpus if not gpu.is_busy]
        return sorted(gpus, key=lambda gpu: -count_free(gpu.uuid))

    def _without(self, num_devices: int) -> Devices:
        count = self._wish.count_for(self._node) or 0
        if count:
            raise DeviceError(
                problem=f"{self._node.name} finds no GPU on its host, neither among Spark's"
                " resources nor with nvidia-smi.",
                needed=count,
                found=num_devices,
                advice="Give gpus_per_worker=0, or use executors with GPUs.",
            )
        return Devices({})

    def _units(self, gpu: nvidia.Gpu) -> int:
        if self._wish.memory_fraction:
            return count_units(self._wish.memory_fraction)
        if self._wish.memory_mb and gpu.total_mb:
            return count_units(min(1.0, self._wish.memory_mb / gpu.total_mb))
        return 1 if self._wish.memory_mb else count_units(0)

    def _make(self, addresses: Sequence[str], known: Sequence[nvidia.Gpu]) -> Devices:
        limit_mb = self._wish.memory_mb
        if self._wish.memory_fraction:
            sizes = [gpu.total_mb for gpu in known if gpu.total_mb]
            if len(sizes) < len(addresses):
                raise DeviceError(
                    problem=f"nvidia-smi does not tell the memory of {', '.join(addresses)}, of"
                    f" which gpu_memory_fraction={self._wish.memory_fraction:g} is a part.",
                    needed=len(addresses),
                    found=len(sizes),
                    advice="Give gpu_memory_mb instead.",
                )
            limit_mb = int(min(sizes) * self._wish.memory_fraction)
        return Devices(make_device_variables(addresses), len(addresses), limit_mb)
