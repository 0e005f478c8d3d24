"""Which GPUs of this host nodes have: claims that end with the process that made them.

nvidia-smi sees a node only once it computes, which is too late for the next one that looks. A
claim is a name in Linux' abstract namespace of sockets: it is seen by all users, leaves no
file, and is gone with its process, however that ends.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack

from sparktrain.errors import DeviceError

#: A device is claimed in twentieths, so that nodes may share one.
UNITS = 20
_PREFIX = "\0sparktrain-gpu"
#: How long to wait while another node of this host looks for devices.
LOOK_WAIT_S = 60.0
TICK_S = 0.05


def count_units(fraction: float) -> int:
    """The units of a share of a device; at least one, and all for 0: the device alone."""
    return min(UNITS, max(1, math.ceil(fraction * UNITS - 1e-9))) if fraction > 0 else UNITS


class Claims:
    """The devices that this process has claimed. Use as a context manager."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def looking(self) -> socket.socket:
        """Held while somebody looks and claims: one at a time on a host.

        Raises:
            DeviceError: Another one takes too long.
        """
        deadline = time.monotonic() + LOOK_WAIT_S
        while (held := _bind(f"{_PREFIX}-looking")) is None:
            if time.monotonic() > deadline:
                raise DeviceError(
                    problem=f"Another node looks for GPUs since {LOOK_WAIT_S:g} s.",
                    needed=1,
                    found=0,
                    advice="See whether nvidia-smi answers on this host.",
                )
            time.sleep(TICK_S)
        return held

    def claim(self, devices: Sequence[tuple[str, int]], count: int) -> tuple[str, ...]:
        """Claims some devices; all of them or none. To be called while looking().

        Args:
            devices: Ids, the wanted ones first, and how many units to take of each.
            count: How many devices.

        Returns:
            Their ids; fewer than count if there are not so many.
        """
        found: list[str] = []
        with ExitStack() as stack:
            for uuid, units in devices:
                if len(found) == count:
                    break
                held = _claim_units(uuid, units)
                if held is not None:
                    stack.enter_context(held)
                    found.append(uuid)
            if len(found) == count:
                self._held.enter_context(stack.pop_all())
        return tuple(found)


def count_free(uuid: str) -> int:
    """How many units of a device nobody has claimed."""
    free = 0
    for number in range(UNITS):
        if (held := _bind(f"{_PREFIX}-{uuid}-{number}")) is not None:
            held.close()
            free += 1
    return free


def _claim_units(uuid: str, units: int) -> ExitStack | None:
    with ExitStack() as stack:
        taken = 0
        for number in range(UNITS):
            if taken < units and (held := _bind(f"{_PREFIX}-{uuid}-{number}")) is not None:
                stack.enter_context(held)
                taken += 1
        return stack.pop_all() if taken == units else None


def _bind(name: str) -> socket.socket | None:
    """A socket that has this name; None if another one has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(name)
    except OSError:
        held.close()
        return None
    return held
