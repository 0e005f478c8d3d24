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
        #: What is open on account of the trainer that is there.
        self._open = ExitStack()
        self._process: TrainerProcess | None = None
        #: What the next one must know: the job, and all that was told since.
        self._begin: Callable[[], TrainerProcess] | None = None
        self._told: list[dict[str, Any]] = []
        #: Held from a trainer's start until it knows its job, which must come first.
        self._telling = threading.Lock()
        self._should_stop = False
        #: The kind and the reason, if it was ended.
        self.ended: tuple[str, str] | None = None

    def __enter__(self) -> NodeTrainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    @property
    def process(self) -> TrainerProcess | None:
        """The one that is there, or was the last."""
        return self._process

    def start(
        self, make: Callable[[], TrainerProcess], job: dict[str, Any], body: bytes
    ) -> TrainerProcess:
        """The first trainer; it is told its job at once."""

        def begin() -> TrainerProcess:
            process = self._open.enter_context(make())
            self._process = process
            if self.ended is not None:  # before there was a trainer to end
                process.end(*self.ended)
            process.send(job, body)
            for frame in self._told:  # to one that is gone
                process.send(frame)
            if self._should_stop:
                process.send({"kind": "stop"})
            return process

        self._begin = begin
        with self._telling:
            return begin()

    def replace(self) -> TrainerProcess:
        """Another one, which is told all that the lost one was."""
        if self._begin is None:
            raise RuntimeError("No trainer was started yet.")
        self._open.close()  # the lost one
        with self._telling:
            self.restarts_left -= 1
            return self._begin()

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
        with self._telling:
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
