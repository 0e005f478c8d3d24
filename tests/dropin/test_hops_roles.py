"""Nodes with roles in experiments of hops: an evaluator beside the others, and folders of each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hops.node import add_evaluator

PROGRAM = Path(__file__).parent / "hops_roles.py"


def test_the_evaluator_is_in_the_cluster() -> None:
    config = {"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}
    text = json.dumps(config)
    assert json.loads(add_evaluator(text, {"chief": ["a:1"]})) == config
    found = json.loads(add_evaluator(text, {"chief": ["a:1"], "evaluator": ["b:2"]}))
    assert found == {**config, "cluster": {"chief": ["a:1"], "evaluator": ["b:2"]}}


@pytest.mark.slow
def test_four_executors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    answer: dict[str, Any] = json.loads((tmp_path / "answer.json").read_text())
    mirrored, servers = answer["mirrored"], answer["servers"]
    own = Path(servers["outputs"]["log"]).parent
    roles = {"chief": 1, "worker": 2, "evaluator": 1}
    assert mirrored["outputs"]["roles"] == answer["collective"]["outputs"]["roles"] == roles
    assert answer["collective"]["said"] == "d"
    # Each node's events are copied once, and a returned logdir() is the experiment itself.
    assert mirrored["outputs"]["logdir"] == str(Path(mirrored["outputs"]["log"]).parent)
    assert [name for name in mirrored["files"] if not name.startswith(".")] == [
        "chief_0_output.log",
        "evaluator_0/events-evaluator-0",
        "evaluator_0/late-evaluator-0",
        "evaluator_0_output.log",
        "events-chief-0",
        "worker_0/events-worker-0",
        "worker_0/late-worker-0",
        "worker_0_output.log",
        "worker_1/events-worker-1",
        "worker_1/late-worker-1",
        "worker_1_output.log",
    ]
    assert answer["trained"]["replicas"] == 3 and answer["trained"]["falls"]
    assert servers["outputs"]["roles"] == {"chief": 1, "worker": 1, "ps": 1}
    assert servers["outputs"]["logdir"] == str(own)
    assert {"evaluator_0_output.log", "ps_0_output.log"} <= set(servers["files"])
