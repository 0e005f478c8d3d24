"""Other sessions than the embedded one, and a driver that is killed: each in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

SCRIPT = Path(__file__).with_name("other_sessions.py")


def start(kind: str, folder: Path) -> subprocess.Popen[str]:
    # The driver runs in the folder, so that whatever Spark writes beside it is seen there.
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), kind, str(folder)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=500)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, output[-3000:]
    return output


@pytest.mark.parametrize("kind", [pytest.param("local[2]", marks=pytest.mark.slow), "connect"])
def test_training_on_another_session(kind: str, tmp_path: Path) -> None:
    process = start(kind, tmp_path)
    output = finish(process)
    answer: dict[str, Any] = json.loads((tmp_path / "answer.json").read_text())
    assert answer["value"]["workers"] == 2
    assert answer["value"]["loss"][1] < answer["value"]["loss"][0]
    assert [row["epoch"] for row in answer["metrics"]] == [1, 2]
    assert answer["nodes"] == ["chief:0", "worker:0"] and answer["model"] == "model.keras"
    assert "trained" in (tmp_path / "run/logs/worker-0.log").read_text()
    assert "chief:0 trained" in output  # live, on the driver
    assert answer["slots"][0] == "ResourceError" and "has 2" in answer["slots"][1]
    assert answer["failure"][0] == "NodeFailedError"
    assert "worker:0" in answer["failure"][1] and "on purpose" in answer["failure"][1]
    assert answer["left"] == []
    types, total, problem = answer["tfrecord"]
    assert types == {"id": "bigint", "x": "array<float>", "part": "int"} and total == 390
    assert problem == f"{tmp_path}/records has files already."


def test_dynamic_allocation_is_refused(tmp_path: Path) -> None:
    process = start("dynamic-allocation", tmp_path)
    finish(process)
    text = json.loads((tmp_path / "answer.json").read_text())
    assert "spark.dynamicAllocation.enabled=false" in text
    assert "spark.executor.instances" in text


def test_no_java_is_said_at_once(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "import sparktrain; sparktrain.session()"],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert answer.returncode == 1
    assert "SessionError: No Java was found" in answer.stderr and "JAVA_HOME" in answer.stderr


def test_killed_driver_takes_all_with_it(tmp_path: Path) -> None:
    process = start("killed-driver", tmp_path)
    try:
        pids = [wait_for_pid(tmp_path / f"pid-{rank}", process) for rank in (0, 1)]
        family = psutil.Process(process.pid).children(recursive=True)
        assert set(pids) <= {member.pid for member in family}
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    # Trainers, agents and Spark's Java processes.
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive, [member.cmdline() for member in alive]


def wait_for_pid(path: Path, process: subprocess.Popen[str]) -> int:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.1)
    pytest.fail("the node did not come up")
