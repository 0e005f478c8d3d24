"""The old API where driver and executor are one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("tfos_local.py")


@pytest.mark.slow
def test_clusters_on_one_process(tmp_path: Path) -> None:
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    env["SPARKTRAIN_RUNS_DIR"] = str(tmp_path / "runs")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["train"] == [["chief-0", "worker-0", "worker-1"], sorted([*range(100)] * 2)]
    assert answer["infer"] == [number * number for number in range(50)]
    assert "this worker has had enough" in answer["fail"]
    assert answer["terminate"] is True
    assert answer["alone"] == ["0 of 2", "1 of 2"]
    assert answer["estimate"] == [[number, number] for number in range(6)]
