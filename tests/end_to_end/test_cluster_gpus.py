"""Nodes see the GPUs that Spark gave to the tasks that started them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("gpu_session.py")


@pytest.mark.slow
def test_nodes_share_the_gpus_of_their_tasks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    answer = json.loads((tmp_path / "answer.json").read_text())
    given = answer["given"]
    assert given.pop("ps-0") == "-1"
    assert set(given) == {"chief-0", "worker-0", "evaluator-0"}
    # Two tasks with two GPUs each: nobody shares one, and none is left over.
    shares = [share.split(",") for share in given.values()]
    assert sorted(address for share in shares for address in share) == ["4", "5", "6", "7"]
    assert answer["wished"] == {**dict.fromkeys(given, "9"), "ps-0": "-1"}
