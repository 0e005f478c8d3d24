from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_no_rows_give_no_gradient_and_change_nothing() -> None:
    script = str(Path(__file__).with_name("no_rows_cases.py"))
    found = subprocess.run(
        [sys.executable, "-W", "ignore", script], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert json.loads(found.stdout.splitlines()[-1]) == {}
