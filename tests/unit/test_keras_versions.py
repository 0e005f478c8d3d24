"""Which Keras is warned about: any outside the range that was tried."""

from __future__ import annotations

import subprocess
import sys

import pytest
from packaging.version import Version

from sparktrain.trainer import keras_versions
from sparktrain.trainer.keras_versions import TESTED_FIRST, TESTED_LAST, check_version


@pytest.fixture
def _range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras_versions, "TESTED_FIRST", "3.10.0")
    monkeypatch.setattr(keras_versions, "TESTED_LAST", "3.15.1")


@pytest.mark.usefixtures("_range")
@pytest.mark.parametrize(
    "found", ["3.10.0", "3.12.1", "3.15.1", "3.15.9", "3.10.0rc0", "3.13.0.dev2025", "3.11"]
)
def test_a_version_inside_the_range_is_no_warning(found: str) -> None:
    assert check_version(found) is None


@pytest.mark.usefixtures("_range")
@pytest.mark.parametrize(
    "found", ["3.9.2", "3.1.0", "2.15.0", "3.16.0", "3.16.0rc0", "3.100.0", "4"]
)
def test_a_version_outside_is_named_with_the_range(found: str) -> None:
    message = check_version(found)
    assert message is not None
    assert f"Keras {found} has not been tried" in message
    assert "the tested range is 3.10.0 to 3.15.1." in message


def test_the_range_is_one_of_keras_3_and_holds_its_own_ends() -> None:
    assert Version("3") <= Version(TESTED_FIRST) <= Version(TESTED_LAST) < Version("4")
    assert check_version(TESTED_FIRST) is None
    assert check_version(TESTED_LAST) is None


def test_the_check_itself_loads_no_keras() -> None:
    code = (
        "import sys, sparktrain.trainer.keras_versions as k; k.check_version('3.12.0');"
        "print([name for name in ('keras', 'tf_keras', 'tensorflow') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert answer.stdout.strip() == "[]"
