"""Programs as users of TensorFlowOnSpark wrote them, run as they ran them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "tensorflowonspark"
#: What each program is given, and what it must say.
PROGRAMS = {
    "mnist_spark.py": (["--limit", "3000", "--epochs", "2"], r"accuracy (0\.\d+)"),
    "mnist_tf.py": ([], r"accuracy (0\.\d+)"),
    "mnist_pipeline.py": ([], r"accuracy (0\.\d+)"),
    "streaming_ps.py": ([], r"stopped after (\d+)"),
}


def test_all_programs_are_run() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(PROGRAMS)


@pytest.mark.parametrize(
    "name",
    ["mnist_spark.py", *(pytest.param(p, marks=pytest.mark.slow) for p in list(PROGRAMS)[1:])],
)
def test_program(name: str, tmp_path: Path, fashion_mnist: str | None) -> None:
    arguments, pattern = PROGRAMS[name]
    if name == "mnist_spark.py" and fashion_mnist is not None:
        arguments = [*arguments, "--images", fashion_mnist]
    # As spark-submit with --master would have it; sparktrain's own folder is not on the path.
    submit = "--master local-cluster[2,1,1024] --conf spark.ui.enabled=false pyspark-shell"
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit, "PYSPARK_PYTHON": sys.executable}
    env["SPARKTRAIN_RUNS_DIR"] = str(tmp_path / "runs")
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), *arguments],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    found = re.findall(pattern, done.stdout)
    assert found, done.stdout[-4000:]
    if name == "mnist_spark.py" and fashion_mnist is not None:
        assert "784 pixels" in done.stdout
    if "accuracy" in pattern:
        assert float(found[-1]) > 0.6
        assert [path for path in tmp_path.glob("*export") if (path / "saved_model.pb").exists()]
    else:
        losses = [float(value) for value in re.findall(r"loss ([\d.e-]+)", done.stdout)]
        assert losses[-1] < losses[0] / 5
