"""The same cases on every minor version of Keras in the tested range; the warning outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import keras_cases as cases
import keras_checks as checks
import sparktrain as st
from sparktrain.trainer.keras_versions import TESTED_FIRST, TESTED_LAST

cloudpickle.register_pickle_by_value(cases)

#: The last release of each minor version; the installed one is tested by test_keras.py.
VERSIONS = [TESTED_FIRST, "3.11.3", "3.12.4", "3.13.2", "3.14.1"]


def install(version: str, folder: Path) -> dict[str, str]:
    """Installs a Keras beside the environment; returns the variables that make nodes use it."""
    target = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--target", str(target), f"keras=={version}"], check=True)
    return {"PYTHONPATH": str(target)}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_cases(spark: Any, tmp_path: Path, version: str) -> None:
    results = checks.collect(spark, tmp_path, install(version, tmp_path))
    problems = []
    for check, names in (
        (checks.check_equal, checks.EQUAL),
        (checks.check_agreement, checks.SOUND),
        (checks.check_rows, checks.WITH_ROWS),
    ):
        for name in names:
            try:
                check(results, name)
            except AssertionError as error:
                problems.append(f"{check.__name__} {name}: {str(error)[:300]}")
    assert not problems, "\n".join(problems)


@pytest.mark.slow
def test_warning_outside_the_range(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> str:
        import keras

        return str(keras.__version__)

    env = install("3.5.0", tmp_path)
    result = st.run(
        train, num_workers=2, spark=spark, run_dir=tmp_path / "run", env=env, progress=False
    )
    assert result.value == "3.5.0"
    log = (tmp_path / "run/logs/chief-0.log").read_text()
    assert "Keras 3.5.0 has not been tried" in log
    assert f"{TESTED_FIRST} to {TESTED_LAST}" in log
