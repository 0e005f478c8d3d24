"""Which GPUs of this host nodes have: claims that end with the process that made them.

nvidia-smi sees a node only once it computes, which is too late for the next one that looks. A
claim is a name in Linux' abstract namespace of sockets: it is seen by all users, leaves no
file, and is gone with its process, however that ends.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from fractions import Fraction

from sparktrain.agent.devices import MOST_SHARES
from sparktrain.errors import DeviceError

_PREFIX = "\0sparktrain-gpu"
#: How long to wait while another node of this host looks for devices.
LOOK_WAIT_S = 60.0
TICK_S = 0.05


class Claims:
    """The devices that this process has claimed. Use as a context manager.

    Args:
        run_id: By which other nodes of the run know that a device is one of theirs.
    """

    def __init__(self, run_id: str = "") -> None:
        self._run_id = run_id
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
            devices: Ids, the wanted ones first, and into how many shares each is divided, of
                which one is claimed; 1 for the device alone.
            count: How many devices.

        Returns:
            Their ids; fewer than count if there are not so many.
        """
        found: list[str] = []
        with ExitStack() as stack:
            for uuid, shares in devices:
                if len(found) == count:
                    break
                held = _claim_share(uuid, shares)
                if held is None:
                    continue
                stack.enter_context(held)
                found.append(uuid)
                if shares == 1 and self._run_id:  # whose a shared one is, nobody asks
                    stack.enter_context(_bind(_name_mark(uuid, self._run_id)) or nullcontext())
            if len(found) == count:
                self._held.enter_context(stack.pop_all())
        return tuple(found)


def count_free(uuid: str) -> Fraction:
    """How much of a device nobody has claimed: 1 for all of it.

    Every way to divide a device has names of its own, so that nodes with the same wish fit
    exactly, and those with different ones as far as there is room.
    """
    free = Fraction(1)
    for shares in range(1, MOST_SHARES + 1):
        for number in range(shares):
            if (held := _bind(_name_share(uuid, shares, number))) is not None:
                held.close()
            else:
                free -= Fraction(1, shares)
    return free


def is_claimed_by(uuid: str, run_id: str) -> bool:
    """Whether a node of this run has all of a device."""
    if (mark := _bind(_name_mark(uuid, run_id))) is None:
        return True
    mark.close()
    return False


def _claim_share(uuid: str, shares: int) -> socket.socket | None:
    if count_free(uuid) < Fraction(1, shares):
        return None
    names = (_name_share(uuid, shares, number) for number in range(shares))
    return next((held for name in names if (held := _bind(name)) is not None), None)


def _name_share(uuid: str, shares: int, number: int) -> str:
    return f"{_PREFIX}-{uuid}-{shares}-{number}"


def _name_mark(uuid: str, run_id: str) -> str:
    return f"{_PREFIX}-{uuid}-of-{run_id}"


def _bind(name: str) -> socket.socket | None:
    """A socket that has this name; None if another one has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(name)
    except OSError:
        held.close()
        return None
    return held
