"""Several devices of a worker, with Keras 3."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def test_two_devices_train_as_one() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(FOLDER / "mirrored_cases.py")],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)
    assert answer["replicas"] == 2
    assert answer["two"] == pytest.approx(answer["one"], rel=1e-5)
    assert answer["odd"] == {
        "is finite": True,
        "steps": 9,
        "counts": [33] * 3,
        "waited": True,
        "apart": [],
    }
    # 6 steps, a meeting after each second.
    assert answer["met"] == {"syncs": 3, "moved": True, "taken": True, "apart": []}
    assert (answer["server"], answer["free server"]) == ([[300], [300]], 0)


def test_two_workers_train_together_on_two_devices_each() -> None:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        ports = [str(each.getsockname()[1]) for each in (one, two)]
    script = str(FOLDER / "many_devices_cases.py")
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", script, str(rank), *ports],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [worker.communicate(timeout=200) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert not any(worker.returncode for worker in workers), outputs
    first, second = (json.loads(output) for output, _ in outputs)
    assert first["replicas"] == 4
    assert (first.pop("counts"), second.pop("counts")) == ([37] * 3, [13] * 3)
    assert first["apart"] == []
    assert first == second
