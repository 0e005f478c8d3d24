"""A node's trainer, and those that come after one that was lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from sparktrain.agent.process import TrainerProcess


class NodeTrainer:
    """Starts trainers, one after the other. Use as a context manager: then all are gone.

    What is said to it before there is a trainer, or while one takes the place of another, is
    not lost.

    Args:
        restarts: How many may come after the first.
    """

    def __init__(self, restarts: int) -> None:
        self.restarts_left = restarts
        self._processes = ExitStack()
        self._process: TrainerProcess | None = None
        #: What the next one must know: the job, and all that was told since.
        self._begin: Callable[[], TrainerProcess] | None = None
        self._told: list[dict[str, Any]] = []
        self._telling = threading.Lock()
        self._should_stop = False
        #: The kind and the reason, if it was ended.
        self.ended: tuple[str, str] | None = None

    def __enter__(self) -> NodeTrainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._processes.close()

    @property
    def process(self) -> TrainerProcess | None:
        """The one that is there, or was the last."""
        return self._process

    def start(
        self, make: Callable[[], TrainerProcess], job: dict[str, Any], body: bytes
    ) -> TrainerProcess:
        """The first trainer; it is told its job at once."""

        def begin() -> TrainerProcess:
            process = self._processes.enter_context(make())
            self._process = process
            if self.ended is not None:  # before there was a trainer to end
                process.end(*self.ended)
            process.send(job, body)
            return process

        self._begin = begin
        return begin()

    def replace(self) -> TrainerProcess:
        """Another one, which is told all that the lost one was."""
        if self._begin is None:
            raise RuntimeError("No trainer was started yet.")
        with self._telling:
            self.restarts_left -= 1
            process = self._begin()
            for frame in self._told:
                process.send(frame)
        if self._should_stop:  # said to one that is gone
            process.send({"kind": "stop"})
        return process

    def tell(self, frame: dict[str, Any]) -> None:
        """Tells the trainer, and those that may come after it."""
        with self._telling:
            if self.restarts_left:
                # What was on a tray is in the spill as well.
                self._told.append({name: frame[name] for name in frame if name != "tray"})
            if self._process is not None:
                self._process.send(frame)

    def stop(self) -> None:
        """The function may end."""
        self._should_stop = True
        if self._process is not None:
            self._process.send({"kind": "stop"})

    def end(self, kind: str, reason: str) -> None:
        """Ends the process; what came first is the cause."""
        if self.ended is None:
            self.ended = (kind, reason)
        if self._process is not None:
            self._process.end(*self.ended)

    def fail(self, kind: str, what: str) -> None:
        if self._process is not None:
            self._process.fail(kind, what)
