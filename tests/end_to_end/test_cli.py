"""The command as a user types it: demo, run, doctor."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("sparktrain")
ROOT = Path(__file__).parents[2]


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *words], cwd=folder, capture_output=True, text=True, timeout=500
    )


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    answer = call(tmp_path, "demo", "--run-dir", "run")
    assert answer.returncode == 0, answer.stderr[-3000:]
    accuracy = float(re.search(r"unseen digits +([0-9.]+)", answer.stdout)[1])  # type: ignore[index]
    assert accuracy >= 0.95
    result = json.loads((tmp_path / "run/result.json").read_text())
    # Every one of the 1,437 images once in each of 12 epochs.
    assert sum(node["rows"] for node in result["nodes"]) == 12 * 1437
    assert Path(result["model_path"]).exists()
    assert "chief:0 epoch 12/12" in answer.stderr and "worker:0 epoch 12/12" in answer.stderr
    # Nothing but the run directory is left where the user stands.
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_run_a_script(tmp_path: Path) -> None:
    target = f"{ROOT / 'examples/custom_loop.py'}:train"
    words = ["run", target, "--num-workers", "2", "--run-dir", "run", "--setting", "progress=plain"]
    answer = call(tmp_path, *words)
    assert answer.returncode == 0, answer.stderr[-3000:]
    losses = json.loads(re.search(r"returned: (\[.*\])", answer.stdout)[1])  # type: ignore[index]
    assert len(losses) == 5 and losses[-1] < 0.01 * losses[0]
    assert f"model: {tmp_path / 'run/model.keras'}" in answer.stdout


def test_errors_are_text_not_stacks(tmp_path: Path) -> None:
    answer = call(tmp_path, "run", "missing.py:train")
    assert answer.returncode == 1
    assert "ConfigError: There is no file 'missing.py'." in answer.stderr
    assert "Traceback" not in answer.stderr


def test_doctor(tmp_path: Path) -> None:
    answer = call(tmp_path, "doctor")
    assert answer.returncode == 0, answer.stdout
    subjects = [line.split()[1] for line in answer.stdout.splitlines()]
    wanted = "python java memory pyspark tensorflow keras port spark slots executor versions"
    assert set(wanted.split()) <= set(subjects)
    assert all(line.startswith("ok") for line in answer.stdout.splitlines())
    assert "2 task slots" in answer.stdout and sys.executable in answer.stdout


@pytest.mark.slow
def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    """A Python on the executors that has nothing installed."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    answer = subprocess.run(
        [str(COMMAND), "doctor"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYSPARK_PYTHON": str(bare / "bin/python")},
    )
    assert answer.returncode == 1
    line = next(line for line in answer.stdout.splitlines() if line.startswith("DO"))
    assert "executors" in line and "No module named" in line and "PYSPARK_PYTHON" in line
