"""Clusters on other sessions: one process, executors of two cores, Spark Connect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("cluster_sessions.py")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["connect", "local[2]", "local-cluster[1,2,1024]"])
def test_clusters_on_another_session(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    answer: dict[str, Any] = json.loads((tmp_path / "answer.json").read_text())
    assert answer["feed"] == [2 * 609, 2, 2, True]
    assert answer["predict"] == [True, True]
    name, text, seconds = answer["fail"]
    assert name == "NodeLostError" and "worker:0" in text and "SIGKILL" in text
    assert "the last words of this worker" in text and seconds < 30
    assert answer["stop"] is True
    assert answer["fit"] == 2 * 501
    assert answer["coordinate"] == [63, True]
    assert answer["left"] == []
    if kind == "connect":
        assert "a stream over Spark Connect" in answer["stream"]
    else:
        assert answer["stream"] is True
        rows = [None, (1, "a"), {"k": 2}, b"x", "text"]
        assert answer["feed_rows"] == sorted(map(repr, rows))
