"""A real trainer process as its agent sees it: how its end becomes a failure."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sparktrain.agent import process
from sparktrain.agent.process import TrainerProcess, find_python_path, make_environment
from sparktrain.spec import NodeSpec

NODE = NodeSpec("chief", 0)


class Run:
    """A function in a trainer; no TensorFlow, no Spark."""

    def __init__(self, folder: Path, function: Callable[[Any], Any]) -> None:
        self.lines: list[str] = []
        env = make_environment(os.environ, {}, find_python_path())
        self.trainer = TrainerProcess(NODE, "here", env, self.lines.append, lambda _: None)
        body = cloudpickle.dumps((function, str(folder)))
        data = json.dumps({"fed": [], "files": []}).encode()
        self._job = {
            "kind": "job",
            "role": NODE.role,
            "index": NODE.index,
            "num_workers": 1,
            "run_dir": str(folder),
            "python_path": [],
            "function_bytes": len(body),
            "data_bytes": len(data),
            "max_result_bytes": 1 << 20,
            "needs_strategy": False,
            "num_mirrors": 0,
            "num_gpus": 0,
            "gpu_limit_mb": 0,
            "run_id": "r1",
            "trays": None,
            "distribution": "auto",
            "store_token": "",
        }
        self._body = body + data

    def start(self) -> None:
        self.trainer.send(self._job, self._body)
        self.trainer.send({"kind": "cluster", "cluster": {"chief": ["127.0.0.1:1"]}})


def raise_and_stay(ctx: Any) -> None:
    import threading

    threading.Thread(target=threading.Event().wait).start()
    raise KeyError("with a thread that stays")


raise_and_stay.__module__ = "__main__"  # travels by value


def test_an_exception_is_told_although_a_thread_keeps_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "EXIT_TIMEOUT_S", 1.0)
    run = Run(tmp_path, raise_and_stay)
    with run.trainer as trainer:
        run.start()
        failure = trainer.wait()
        assert trainer.exit_code is not None
    assert failure is not None and failure.kind == "exception"
    assert "with a thread that stays" in failure.what and not failure.is_echo
    assert any("still there 1 s after its function ended" in line for line in run.lines)


def test_what_the_function_raised_counts_even_if_the_end_came_before_its_process_was_gone(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, raise_and_stay)
    with run.trainer as trainer:
        run.start()
        deadline = time.monotonic() + 60
        while trainer._error is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        trainer.end("ended", "another node failed")
        failure = trainer.wait()
    assert failure is not None and failure.kind == "exception" and not failure.is_echo


@pytest.mark.parametrize("kind", ["ended", "cut"])
def test_a_trainer_that_is_ended_is_an_echo(tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, lambda ctx: __import__("time").sleep(600))
    with run.trainer as trainer:
        run.start()
        trainer.end(kind, "somebody said so")
        failure = trainer.wait()
    assert failure is not None
    assert (failure.kind, failure.what, failure.is_echo) == (kind, "somebody said so", True)


def test_a_number_that_may_be_another_process_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    run = Run(tmp_path, raise_and_stay)
    with run.trainer as trainer:
        trainer.end("ended", "it is over")
        assert trainer.wait() is not None
        # From here on the system may give its number to somebody else's process.
        monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
        trainer.kill()
    assert killed == []
