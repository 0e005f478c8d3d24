"""A parameter server in a Spark task: its door, and how long it is kept open."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from sparktrain.agent.doors import make_door
from sparktrain.agent.process import TrainerProcess
from sparktrain.spec import PERIODIC, PS, NodeSpec, RunSpec

#: How long the server's process may take to open its door.
OPEN_TIMEOUT_S = 60.0
TICK_S = 0.1


def is_holder(spec: RunSpec, node: NodeSpec) -> bool:
    """Whether a node holds parameters and does not run the function."""
    return node.role == PS and spec.distribution == PERIODIC


class Holding:
    """The door of one parameter server, seen from its agent; use as a context manager."""

    def __init__(self, spec: RunSpec, node: NodeSpec, host: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sparktrain-door-"))
        self._door, self.secret = make_door(node, host, self._folder, spec.feed_token)
        self._port = 0
        self._is_open = threading.Event()

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def note_port(self, port: int) -> None:
        """The trainer has told at which port it listens."""
        self._port = port
        self._is_open.set()

    def wait(self, trainer: TrainerProcess) -> dict[str, Any] | None:
        """The open door; None if the trainer is gone instead."""
        waited = 0.0
        while not self._is_open.wait(TICK_S):
            waited += TICK_S
            if trainer.exit_code is not None:
                return None
            if waited > OPEN_TIMEOUT_S:
                trainer.fail("exit", f"it has not opened its door within {OPEN_TIMEOUT_S:g} s")
                return None
        return {**self._door.to_dict(), "port": self._port}
