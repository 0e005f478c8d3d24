"""The GPUs of one node, from before its trainer starts until it is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktrain.agent import nvidia
from sparktrain.agent.claims import Claims
from sparktrain.agent.device_refusals import (
    make_empty_error,
    make_free_error,
    make_given_error,
    make_none_error,
    make_part_error,
)
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
from sparktrain.agent.given import Given
from sparktrain.agent.gpus import Gpu, choose_visible, find_meant, find_named
from sparktrain.errors import DeviceError
from sparktrain.spec import PS, DeviceWish, NodeSpec

#: A node whose executor was lost may outlive it for a moment, and Spark gives out its devices.
GONE_WAIT_S = 5.0
TICK_S = 0.2


@dataclass(frozen=True)
class Devices:
    """What a node's trainer is told.

    Attributes:
        variables: Of its environment; those that the user sets count more.
        count: How many devices it sees, where that is known.
        limit_mb: The memory to take of each; 0 for as much as is needed.
        ids: Of those that are the node's alone.
    """

    variables: Mapping[str, str]
    count: int = 0
    limit_mb: int = 0
    ids: tuple[str, ...] = ()


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
            limit_mb = self._find_limit(chosen, find_named(gpus, chosen))
            return Devices({}, len(chosen), limit_mb)
        visible = read_visible(os.environ)
        if self._given.addresses is None:
            return self._take_free(visible)
        own = find_own(self._given.addresses, visible)
        if not own:
            return Devices(HIDDEN)
        return self._take_given(own)

    def _take_given(self, own: Sequence[str]) -> Devices:
        """What Spark gave may be in use by a cluster, whose tasks have ended."""
        gpus = nvidia.find_gpus(own)
        meant = [(token, find_meant(gpus, token)) for token in own]
        if empty := [gpu for _, found in meant for gpu in found if gpu.is_empty]:
            raise make_empty_error(empty, len(own))
        if len(own) > 1 and any(found[0].is_part_of(token) for token, found in meant):
            raise make_part_error(len(own))
        for _, found in meant:
            self._check_memory(found)
        # As many as there are addresses: each is one device, or the only one means some parts.
        known = {gpu.key: gpu for _, found in meant for gpu in found if self._count_shares(gpu)}
        wanted = [(key, self._count_shares(gpu)) for key, gpu in known.items()]
        deadline = time.monotonic() + GONE_WAIT_S
        while True:
            with self._claims.looking():
                chosen = self._claims.claim(wanted, len(own))
                if len(chosen) == len(own):
                    break
                free = sum(self._claims.count_free(key) * shares >= 1 for key, shares in wanted)
                is_taken = self._is_taken(list(known.values()), len(own))
            if time.monotonic() > deadline:
                raise make_given_error(
                    self._wish, list(known.values()), wanted[0][1], len(own), free, is_taken
                )
            time.sleep(TICK_S)
        names = {
            gpu.key: gpu.uuid if gpu.is_part_of(token) else token
            for token, found in meant
            for gpu in found
        }
        return self._make([names[key] for key in chosen], [known[key] for key in chosen])

    def _is_taken(self, gpus: Sequence[Gpu], count: int) -> bool:
        """Whether there were enough without others; not if nodes of this run alone have them."""
        shares = ((gpu.key, self._count_shares(gpu)) for gpu in gpus)
        return sum(self._claims.count_own(key, of) < of for key, of in shares) >= count

    def _take_free(self, visible: Sequence[str] | None) -> Devices:
        """Spark gives out none: takes free ones of the host, while nobody else looks.

        A trainer whose executor was lost has no claim any more, and computes until it is gone.
        """
        if visible is not None and not visible:
            return self._without((), visible)
        deadline = time.monotonic() + GONE_WAIT_S
        while True:
            # Before the others wait for us: nvidia-smi can take seconds.
            there = nvidia.find_gpus(visible)
            usable = choose_visible(there, visible)
            if not usable:
                return self._without(there, visible)
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
        known = {gpu.key: (token, gpu) for token, gpu in usable}
        return self._make([known[key][0] for key in chosen], [known[key][1] for key in chosen])

    def _has_enough(self, gpus: Sequence[Gpu]) -> bool:
        """Whether the host would have as many as are needed if nobody else was on any."""
        try:
            return len(gpus) >= self._count(gpus)
        except DeviceError:
            return False

    def _claim_free(self, gpus: Sequence[Gpu], is_last: bool) -> tuple[str, ...]:
        with self._claims.looking():
            wanted = self._sort(gpus)
            count = self._count(wanted)
            chosen: tuple[str, ...] = ()
            if is_last or not self._is_unsettled(gpus):
                shares = [(gpu.key, self._count_shares(gpu)) for gpu in wanted]
                chosen = self._claims.claim(shares, count)
            is_taken = len(chosen) < count and self._is_taken(gpus, count)
        if len(chosen) < count:
            if not is_taken:  # tells it, if the nodes of this run are too many
                self._count_share(wanted, self._given.num_here, self._given.aside)
            raise make_free_error(self._node.name, len(gpus), count, len(chosen), is_taken)
        return chosen

    def _is_unsettled(self, gpus: Sequence[Gpu]) -> bool:
        """Whether trainers of a lost executor may still be on devices that shall be shared out:
        what is free now is not all there is.
        """
        is_open = self._wish.is_shared or self._wish.count_for(self._node) is None
        if not (self._given.is_restart and is_open):
            return False
        return any(gpu.is_busy and self._claims.count_free(gpu.key) == 1 for gpu in gpus)

    def _count(self, usable: Sequence[Gpu]) -> int:
        """How many to take of these, which are free or given to nodes of this run."""
        given = self._given
        try:
            count = self._count_share(usable, given.num_here, given.aside)
        except DeviceError:
            # Executors that were given a choice may see different devices of the host.
            if VISIBLE not in os.environ:
                raise
            count = self._count_share(usable, *given.of_executor)
        count = count or 1  # where others compute on all of them, one is missing
        if count > 1 and any(gpu.parent for gpu in usable):
            if self._wish.count_for(self._node) is None:
                return 1  # an even share would be more than CUDA takes
            raise make_part_error(count)
        return count

    def _count_share(self, usable: Sequence[Gpu], num_here: int, aside: int) -> int:
        return count_share(self._wish, self._node, num_here, len(usable), aside)

    def _sort(self, gpus: Sequence[Gpu]) -> list[Gpu]:
        """Those to try or to count, the best first: not what others have or compute on, which is
        the last choice of nodes that share; and of shared ones those with most room.
        """
        if self._wish.is_shared:
            rooms = [
                (gpu, self._claims.count_free(gpu.key)) for gpu in gpus if self._count_shares(gpu)
            ]
            # Who computes on one that no node has is a stranger, whose part is not known.
            rooms.sort(key=lambda one: (one[0].is_busy and one[1] == 1, -one[1]))
            return [gpu for gpu, _ in rooms]
        return [
            gpu
            for gpu in gpus
            if self._claims.count_own(gpu.key)
            or (not gpu.is_busy and self._claims.count_free(gpu.key) == 1)
        ]

    def _without(self, there: Sequence[Gpu], visible: Sequence[str] | None) -> Devices:
        if count := self._wish.count_for(self._node) or 0:
            raise make_none_error(self._node.name, there, visible, count)
        # A choice of none of them may be something to CUDA, and nobody has claimed it.
        return Devices(HIDDEN if there else {})

    def _check_memory(self, gpus: Sequence[Gpu]) -> None:
        """Refuses megabytes that no device has."""
        if gpus and not any(self._count_shares(gpu) for gpu in gpus):
            largest = max(gpu.total_mb for gpu in gpus)
            raise make_memory_error(self._wish, largest)

    def _count_shares(self, gpu: Gpu) -> int:
        return count_shares(self._wish, gpu.total_mb)

    def _make(self, addresses: Sequence[str], known: Sequence[Gpu]) -> Devices:
        limit_mb = self._find_limit(addresses, known)
        ids = () if self._wish.is_shared else tuple(gpu.uuid for gpu in known)
        return Devices(make_device_variables(addresses), len(addresses), limit_mb, ids)

    def _find_limit(self, addresses: Sequence[str], known: Sequence[Gpu]) -> int:
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
