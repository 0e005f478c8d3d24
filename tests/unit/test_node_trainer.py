"""Trainers of a node, one after the other: what each is told, and when it is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sparktrain.agent.node_trainer import NodeTrainer

JOB = {"kind": "job"}


class Process:
    """What stands for a trainer process: it notes what happens to it."""

    def __init__(self, on_send: Callable[[dict[str, Any]], None] = lambda frame: None) -> None:
        self.frames: list[dict[str, Any]] = []
        self.is_open = False
        self._on_send = on_send

    def __enter__(self) -> Process:
        self.is_open = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.is_open = False

    def send(self, frame: dict[str, Any], body: bytes = b"") -> None:
        self._on_send(frame)
        self.frames.append(frame)


def start(trainer: NodeTrainer, *processes: Process) -> None:
    coming = iter(processes)
    trainer.start(lambda: next(coming), JOB, b"")  # type: ignore[arg-type, return-value]


def test_a_lost_one_is_closed_before_the_next_one_begins() -> None:
    lost, following = Process(), Process()
    with NodeTrainer(1) as trainer:
        start(trainer, lost, following)
        trainer.tell({"kind": "block", "tray": 3})
        trainer.stop()
        trainer.replace()
        # Held open to the end of the node, it would be killed once more by a number that is free.
        assert (lost.is_open, following.is_open) == (False, True)
        assert following.frames == [JOB, {"kind": "block"}, {"kind": "stop"}]
    assert not following.is_open


def test_a_stop_before_there_is_a_trainer_is_not_lost() -> None:
    process = Process()
    with NodeTrainer(0) as trainer:
        trainer.stop()
        start(trainer, process)
    assert process.frames == [JOB, {"kind": "stop"}]


def test_a_stop_comes_behind_the_job_also_while_the_trainer_starts() -> None:
    with NodeTrainer(0) as trainer:
        stopping = threading.Thread(target=trainer.stop)

        def on_send(frame: dict[str, Any]) -> None:
            if frame == JOB:
                stopping.start()
                stopping.join(0.3)  # it must wait for the job

        process = Process(on_send)
        start(trainer, process)
        stopping.join()
    assert process.frames == [JOB, {"kind": "stop"}]
