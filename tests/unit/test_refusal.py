"""A node that cannot start meets the others nevertheless: Spark ends nobody inside allGather."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.agent import task
from sparktrain.agent.failure import NodeFailureError, find_failure
from sparktrain.agent.rendezvous import find_echo, make_card
from sparktrain.agent.task import Agent
from sparktrain.spec import DeviceWish, RunSpec, make_nodes

NODES = make_nodes(2)


class Context:
    """The first task of two."""

    def __init__(self) -> None:
        self.cards: list[dict[str, Any]] = []

    def getTaskInfos(self) -> list[Any]:  # noqa: N802 (Spark's name)
        return [SimpleNamespace(address="127.0.0.1:1")] * 2

    def partitionId(self) -> int:  # noqa: N802 (Spark's name)
        return 0

    def resources(self) -> dict[str, Any]:
        return {}

    def allGather(self, message: str = "") -> list[str]:  # noqa: N802 (Spark's name)
        self.cards.append(json.loads(message))
        other = make_card(NODES[1], "127.0.0.1", 1, sees_run_dir=True)
        return [message, json.dumps(asdict(other))]


def test_a_node_without_its_devices_meets_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(task, "MEETING_WAIT_S", 0.1)
    wish = DeviceWish(per_worker=1)
    spec = RunSpec("r1", 0, NODES, 2, os.fspath(tmp_path), b"", {}, devices=wish)
    context: Any = Context()
    started = time.monotonic()
    with pytest.raises(NodeFailureError) as caught:
        list(Agent(spec, NODES[0], context, iter(())).run())
    (card,) = context.cards
    assert card["node"] == "chief:0" and "finds no GPU" in card["problem"]
    assert time.monotonic() - started >= 0.1  # Spark must have told the others of the meeting
    failure = find_failure(str(caught.value))
    assert failure is not None
    assert (failure.kind, failure.is_echo) == ("devices", False)


def test_the_others_end_as_an_echo() -> None:
    good = [make_card(node, "h", 1, sees_run_dir=True) for node in NODES]
    bad = make_card(NODES[0], "h", 0, sees_run_dir=False, problem="no GPU")
    assert find_echo(NODES[1], "h", good) is None
    assert find_echo(NODES[0], "h", [bad, good[1]]) is None
    echo = find_echo(NODES[1], "h", [bad, good[1]])
    assert echo is not None and echo.is_echo
    assert "chief:0 could not start: no GPU" in echo.what
