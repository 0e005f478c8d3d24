"""Programs as users of hops wrote them, run as they ran them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "hops"


def run(script: str, folder: Path, *arguments: str) -> str:
    # As spark-submit with --master would have it; sparktrain's own folder is not on the path.
    submit = "--master local-cluster[2,1,1024] --conf spark.ui.enabled=false pyspark-shell"
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit, "PYSPARK_PYTHON": sys.executable}
    env.pop("SPARKTRAIN_RUNS_DIR", None)
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_all_programs_are_run() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == {
        "search.py",
        "mirrored.py",
        "tfcluster.py",
    }


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--evolve"]])
def test_search(options: list[str], tmp_path: Path) -> None:
    shown = run("search.py", tmp_path, *options)
    found = re.search(r"best accuracy (0\.\d+) of (\S+)", shown)
    assert found is not None and float(found[1]) > 0.8, shown[-4000:]
    assert (tmp_path / found[2]).is_file()
    (folder,) = (tmp_path / "Experiments").iterdir()
    summary = json.loads((folder / ".summary.json").read_text())
    assert len(summary["combinations"]) >= (4 if options else 2)
    pattern = "generation.0/*" if options else "*"
    for trial in folder.glob(f"{pattern}&*"):
        assert list(trial.rglob("events.out.tfevents*")), trial
        assert "accuracy" in (trial / "output.log").read_text()


@pytest.mark.slow
def test_mirrored(tmp_path: Path) -> None:
    shown = run("mirrored.py", tmp_path)
    found = re.search(r"2 replicas, accuracy (0\.\d+) in (\S+)", shown)
    assert found is not None and float(found[1]) > 0.8, shown[-4000:]
    assert Path(found[2], "worker_0_output.log").exists()
    assert list(Path(found[2]).rglob("events.out.tfevents*"))


@pytest.mark.slow
def test_tfcluster(tmp_path: Path) -> None:
    shown = run("tfcluster.py", tmp_path)
    assert "ran on 2 executors with 0 parameter servers" in shown
    (logdir,) = set(re.findall(r"logdir (\S+)", shown))
    assert len(list(Path(logdir).glob("events.out.tfevents*"))) == 2
