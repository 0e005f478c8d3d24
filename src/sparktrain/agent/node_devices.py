"""The GPUs of one node, from before its trainer starts until it is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktrain.agent import nvidia
from sparktrain.agent.claims import Claims
from sparktrain.agent.devices import (
    HIDDEN,
    VISIBLE,
    count_share,
    count_shares,
    find_own,
    make_device_variables,
    make_memory_error,
    read_visible,
)
from sparktrain.errors import DeviceError
from sparktrain.spec import PS, DeviceWish, NodeSpec

#: A node whose executor was lost may outlive it for a moment, and Spark gives out its devices.
GONE_WAIT_S = 5.0
TICK_S = 0.2


@dataclass(frozen=True)
class Given:
    """What the task that starts a node was given.

    Attributes:
        addresses: The node's share of what Spark gave to the task; None if Spark gives out none.
        num_here: How many nodes of the host train.
        aside: How many of the host's own devices are for nodes that do not.
        is_restart: Whether an earlier attempt of the run was on these hosts.
    """

    addresses: tuple[str, ...] | None = None
    num_here: int = 1
    aside: int = 0
    is_restart: bool = False


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


def choose_variables(node: NodeSpec, devices: Devices, wished: Mapping[str, str]) -> dict[str, str]:
    """What a trainer's environment gets: the user's wishes count more, but a ps sees no device."""
    if node.role == PS:
        return {**wished, **devices.variables}
    return {**devices.variables, **wished}


class NodeDevices:
    """Finds and claims a node's devices. Use as a context manager.

    Args:
        wished: Environment variables of the user: a list of devices among them is the choice.
        run_id: Of the run or cluster, whose nodes share a host's devices evenly.
    """

    def __init__(
        self,
        wish: DeviceWish,
        node: NodeSpec,
        given: Given,
        wished: Mapping[str, str],
        run_id: str,
    ) -> None:
        self._wish = wish
        self._node = node
        self._given = given
        self._wished = wished
        self._claims = Claims(run_id, wish.claims_dir)

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
            chosen = read_visible(self._wished) or ()
            gpus = nvidia.find_gpus(chosen) if self._wish.memory_fraction else ()
            limit_mb = self._find_limit(chosen, nvidia.find_named(gpus, chosen))
            return Devices({}, len(chosen), limit_mb)
        visible = read_visible(os.environ)
        if self._given.addresses is None:
            return self._take_free(visible)
        own = find_own(self._given.addresses, visible)
        if not own:
            return Devices(HIDDEN)
        known = nvidia.find_named(nvidia.find_gpus(own), own)
        self._claim_given(known)
        return self._make(own, known)

    def _claim_given(self, known: Sequence[nvidia.Gpu]) -> None:
        """What Spark gave may be in use by a cluster, whose tasks have ended."""
        for gpu in known:
            self._check_memory([gpu])
        wanted = [(gpu.uuid, self._count_shares(gpu)) for gpu in known]
        deadline = time.monotonic() + GONE_WAIT_S
        while True:
            with self._claims.looking():
                if len(self._claims.claim(wanted, len(wanted))) == len(wanted):
                    return
                free = sum(self._claims.count_free(uuid) * shares >= 1 for uuid, shares in wanted)
            if time.monotonic() > deadline:
                break
            time.sleep(TICK_S)
        raise DeviceError(
            problem="Spark gave GPUs that nodes of another run have:"
            f" {', '.join(gpu.uuid for gpu in known)}.",
            needed=len(known),
            found=free,
            is_taken=True,
            advice="Stop the other cluster first.",
        )

    def _take_free(self, visible: Sequence[str] | None) -> Devices:
        """Spark gives out none: takes free ones of the host, while nobody else looks.

        A trainer whose executor was lost has no claim any more, and computes until it is gone.
        """
        if visible is not None and not visible:
            return self._without()
        deadline = time.monotonic() + GONE_WAIT_S
        while True:
            # Before the others wait for us: nvidia-smi can take seconds.
            usable = nvidia.choose_visible(nvidia.find_gpus(visible), visible)
            if not usable:
                return self._without()
            gpus = [gpu for _, gpu in usable]
            self._check_memory(gpus)
            is_last = time.monotonic() >= deadline or not self._has_enough(gpus)
            try:
                chosen = self._claim_free(gpus, is_last)
                break
            except DeviceError:
                if is_last:
                    raise
            time.sleep(TICK_S)
        names = {gpu.uuid: token for token, gpu in usable}
        known = [gpu for gpu in gpus if gpu.uuid in chosen]
        return self._make([names[uuid] for uuid in chosen], known)

    def _has_enough(self, gpus: Sequence[nvidia.Gpu]) -> bool:
        """Whether the host would have as many as are needed if nobody else was on any."""
        try:
            return len(gpus) >= self._count(gpus)
        except DeviceError:
            return False

    def _claim_free(self, gpus: Sequence[nvidia.Gpu], is_last: bool) -> tuple[str, ...]:
        with self._claims.looking():
            wanted = self._sort(gpus)
            count = self._count(wanted)
            chosen: tuple[str, ...] = ()
            if is_last or not self._is_unsettled(gpus):
                shares = [(gpu.uuid, self._count_shares(gpu)) for gpu in wanted]
                chosen = self._claims.claim(shares, count)
        if len(chosen) < count:
            raise DeviceError(
                problem=f"{self._node.name} does not find enough free GPUs: of the host's"
                f" {len(gpus)}, the others compute or are given to other nodes.",
                needed=count,
                found=len(chosen),
                is_taken=count <= len(gpus),
                advice="Lower gpus_per_worker, share them with gpu_memory_fraction, or end what"
                " computes on them.",
            )
        return chosen

    def _is_unsettled(self, gpus: Sequence[nvidia.Gpu]) -> bool:
        """Whether trainers of a lost executor may still be on devices that shall be shared out:
        what is free now is not all there is.
        """
        is_open = self._wish.is_shared or self._wish.count_for(self._node) is None
        if not (self._given.is_restart and is_open):
            return False
        return any(gpu.is_busy and self._claims.count_free(gpu.uuid) == 1 for gpu in gpus)

    def _count(self, usable: Sequence[nvidia.Gpu]) -> int:
        """How many to take of these, which are free or given to nodes of this run."""
        # Where others compute on all of them, one is missing.
        num_here, aside = self._given.num_here, self._given.aside
        count = count_share(self._wish, self._node, num_here, len(usable), aside) or 1
        if count > 1 and any(gpu.parent for gpu in usable):
            if self._wish.count_for(self._node) is None:
                return 1  # an even share would be more than CUDA takes
            raise DeviceError(
                problem="The GPUs of this host are split (MIG), and CUDA gives a process one"
                " part only.",
                needed=count,
                found=1,
                advice="Give gpus_per_worker=1.",
            )
        return count

    def _sort(self, gpus: Sequence[nvidia.Gpu]) -> list[nvidia.Gpu]:
        """Those to try or to count, the best first: not what others have or compute on, which is
        the last choice of nodes that share; and of shared ones those with most room.
        """
        if self._wish.is_shared:
            rooms = [
                (gpu, self._claims.count_free(gpu.uuid)) for gpu in gpus if self._count_shares(gpu)
            ]
            # Who computes on one that no node has is a stranger, whose part is not known.
            rooms.sort(key=lambda one: (one[0].is_busy and one[1] == 1, -one[1]))
            return [gpu for gpu, _ in rooms]
        return [
            gpu
            for gpu in gpus
            if self._claims.count_own(gpu.uuid)
            or (not gpu.is_busy and self._claims.count_free(gpu.uuid) == 1)
        ]

    def _without(self) -> Devices:
        count = self._wish.count_for(self._node) or 0
        if count:
            raise DeviceError(
                problem=f"{self._node.name} finds no GPU on its host, neither among Spark's"
                " resources nor with nvidia-smi.",
                needed=count,
                found=0,
                advice="Give gpus_per_worker=0, or use executors with GPUs.",
            )
        return Devices({})

    def _check_memory(self, gpus: Sequence[nvidia.Gpu]) -> None:
        """Refuses megabytes that no device has."""
        if gpus and not any(self._count_shares(gpu) for gpu in gpus):
            largest = max(gpu.total_mb for gpu in gpus)
            raise make_memory_error(self._wish, largest)

    def _count_shares(self, gpu: nvidia.Gpu) -> int:
        return count_shares(self._wish, gpu.total_mb)

    def _make(self, addresses: Sequence[str], known: Sequence[nvidia.Gpu]) -> Devices:
        limit_mb = self._find_limit(addresses, known)
        return Devices(make_device_variables(addresses), len(addresses), limit_mb)

    def _find_limit(self, addresses: Sequence[str], known: Sequence[nvidia.Gpu]) -> int:
        """The memory to take of each of some devices."""
        if not self._wish.memory_fraction or not addresses:
            return self._wish.memory_mb
        sizes = [gpu.total_mb for gpu in known if gpu.total_mb]
        if len(sizes) < len(addresses):
            raise DeviceError(
                problem=f"nvidia-smi does not tell the memory of {', '.join(addresses)}, of"
                f" which gpu_memory_fraction={self._wish.memory_fraction:g} is a part.",
                needed=len(addresses),
                found=len(sizes),
                advice="Give gpu_memory_mb instead.",
            )
        return int(min(sizes) * self._wish.memory_fraction)
