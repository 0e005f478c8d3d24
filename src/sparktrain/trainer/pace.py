"""Where a worker is among the steps that workers take together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sparktrain.wire.pace import STEP_BITS

#: How often a worker tells where it is, if that has changed.
PACE_S = 0.05


class Pace:
    """This worker's place in one table, told to the driver while it changes.

    Args:
        tell: Sends a frame to the driver.
        table: Whose steps are counted.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None], table: str) -> None:
        self._tell = tell
        self._table = table
        self._position = 0
        self._target = 0
        self._is_waiting = False
        self._told: tuple[int, bool] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="sparktrain-pace", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """A new iteration: all workers begin it, one after the other."""
        self._position = ((self._position >> STEP_BITS) + 1) << STEP_BITS

    def add(self, steps: int) -> None:
        self._position += steps

    def wait(self, is_waiting: bool) -> None:
        self._is_waiting = is_waiting

    def catch(self, target: int) -> None:
        self._target = max(self._target, target)

    @property
    def is_behind(self) -> bool:
        is_same = self._position >> STEP_BITS == self._target >> STEP_BITS
        return is_same and self._position < self._target

    def _work(self) -> None:
        pause = threading.Event()
        while True:
            now = (self._position, self._is_waiting)
            if now != self._told:
                self._told = now
                steps, is_waiting = now
                self._tell(
                    {
                        "kind": "pace",
                        "table": self._table,
                        "steps": steps,
                        "is_waiting": is_waiting,
                    }
                )
            pause.wait(PACE_S)
