"""Importing sparktrain is quick and loads nothing large; names appear when they are used."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from typing import Any

import pytest

import sparktrain

LARGE = ("pyspark", "py4j", "tensorflow", "keras", "pyarrow", "rich", "typer", "cryptography")
LIMIT_S = 0.2

MEASURE = """
import json, sys, time
start = time.perf_counter()
import sparktrain
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


def run_python(code: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    return answer.stdout


def measure() -> dict[str, Any]:
    return dict(json.loads(run_python(MEASURE)))


def test_import_loads_no_large_package() -> None:
    modules = measure()["modules"]
    assert "sparktrain" in modules
    assert sorted(set(LARGE) & set(modules)) == []


def test_import_takes_a_fraction_of_a_second() -> None:
    assert min(measure()["seconds"] for _ in range(5)) < LIMIT_S


def test_using_an_error_loads_only_the_errors() -> None:
    code = "import sparktrain, sys; sparktrain.ConfigError; print(*sorted(sys.modules))"
    modules = run_python(code).split()
    assert "sparktrain.errors" in modules
    assert "sparktrain.training" not in modules
    assert sorted(set(LARGE) & set(modules)) == []


def test_asking_for_run_loads_no_spark() -> None:
    modules = run_python("from sparktrain import run; import sys; print(*sys.modules)").split()
    assert "sparktrain.training" in modules
    assert sorted(set(LARGE) & set(modules)) == []


def test_run_is_a_function_even_after_its_module_was_imported() -> None:
    code = "import sparktrain.training; from sparktrain import run; print(type(run).__name__)"
    assert run_python(code).strip() == "function"


def test_session_is_a_function_even_after_its_module_was_imported() -> None:
    code = "import sparktrain.embedded; from sparktrain import session; print(callable(session))"
    assert run_python(code).strip() == "True"


def test_dir_lists_the_public_names() -> None:
    assert dir(sparktrain) == sorted(sparktrain.__all__)


def test_unknown_attribute_is_an_attribute_error_with_its_name() -> None:
    with pytest.raises(AttributeError, match="'sparktrain' has no attribute 'nosuch'"):
        _ = sparktrain.nosuch
    assert not hasattr(sparktrain, "nosuch")


def test_looked_up_names_are_kept() -> None:
    assert isinstance(sparktrain.run, types.FunctionType)
    assert vars(sparktrain)["run"] is sparktrain.run
