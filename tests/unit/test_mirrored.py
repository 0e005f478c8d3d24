"""Several devices of one worker, with Keras 3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def test_two_devices_train_as_one() -> None:
    script = Path(__file__).with_name("mirrored_cases.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)
    assert answer["replicas"] == 2
    assert answer["two"] == pytest.approx(answer["one"], rel=1e-5)
    assert (answer["server"], answer["free server"]) == ([[300], [300]], 0)
