"""Which GPUs of this host nodes have: claims that end with the process that made them.

nvidia-smi sees a node only once it computes, which is too late for the next one that looks. A
claim is a name that one process has at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction

from sparktrain.agent.devices import MOST_SHARES
from sparktrain.agent.names import Names
from sparktrain.errors import DeviceError

_PREFIX = "sparktrain-gpu"
#: How long to wait while another node of this host looks for devices.
LOOK_WAIT_S = 60.0
TICK_S = 0.05


class Claims:
    """The devices that this process has claimed. Use as a context manager.

    Args:
        run_id: By which other nodes of the run know that a device is one of theirs.
        folder: That containers of the host share, for claims that all of them see.
    """

    def __init__(self, run_id: str = "", folder: str = "") -> None:
        self._run_id = run_id
        self._names = Names(folder)
        self._held = ExitStack()

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def looking(self) -> ExitStack:
        """Held while somebody looks and claims: one at a time on a host.

        Raises:
            DeviceError: Another one takes too long, or nothing can be claimed here.
        """
        deadline = time.monotonic() + LOOK_WAIT_S
        while (held := self._names.hold(f"{_PREFIX}-looking")) is None:
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
            devices: Their keys, the wanted ones first, and into how many shares each is divided,
                of which one is claimed; 1 for the device alone.
            count: How many devices.

        Returns:
            Their keys; fewer than count if there are not so many.
        """
        found: list[str] = []
        with ExitStack() as stack:
            for key, shares in devices:
                if len(found) == count:
                    break
                held = self._claim_share(key, shares)
                if held is None:
                    continue
                stack.enter_context(held)
                found.append(key)
            if len(found) == count:
                self._held.enter_context(stack.pop_all())
        return tuple(found)

    def count_free(self, key: str) -> Fraction:
        """How much of a device nobody has claimed: 1 for all of it.

        Every way to divide a device has names of its own, so that nodes with the same wish fit
        exactly, and those with different ones as far as there is room.
        """
        free = Fraction(1)
        for shares in range(1, MOST_SHARES + 1):
            names = (_name_share(key, shares, number) for number in range(shares))
            free -= Fraction(sum(map(self._names.is_held, names)), shares)
        return free

    def count_own(self, key: str, shares: int = 1) -> int:
        """How many nodes of this run have such a share of a device."""
        marks = (_name_mark(key, shares, number, self._run_id) for number in range(shares))
        return sum(map(self._names.is_held, marks))

    def _claim_share(self, key: str, shares: int) -> ExitStack | None:
        if self.count_free(key) < Fraction(1, shares):
            return None
        for number in range(shares):
            held = self._names.hold(_name_share(key, shares, number))
            if held is None:
                continue
            mark = self._names.hold(_name_mark(key, shares, number, self._run_id))
            if mark is not None:
                held.enter_context(mark)
            return held
        return None


def _name_share(key: str, shares: int, number: int) -> str:
    return f"{_PREFIX}-{key}-{shares}-{number}"


def _name_mark(key: str, shares: int, number: int, run_id: str) -> str:
    return f"{_name_share(key, shares, number)}-of-{run_id}"
