"""Workers that train alone and meet at parameter servers: on real digits, with losses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st

SCRIPT = Path(__file__).with_name("parameter_session.py")


def run_cases(folder: Path, *cases: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *cases],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def test_a_worker_that_is_killed_catches_up(tmp_path: Path) -> None:
    found = run_cases(tmp_path, "restart")["restart"]
    chief, worker = found["notes"]
    # The first weights are the chief's, and the restarted worker took what had been learnt.
    assert chief["first"] == pytest.approx(chief["own"])
    assert worker["first"] != pytest.approx(worker["own"])
    assert worker["first_accuracy"] > 0.6 > chief["first_accuracy"]
    assert found["log"].count("worker:0 is started again") == 1
    # Nobody else was: each has done its own epochs, on its own half of the rows.
    assert found["num_restarts"] == 0
    assert chief["epochs"] == 8
    assert worker["epochs"] == 4  # the others were done before
    assert chief["steps"] == 8 * 24
    assert chief["num_syncs"] >= 8 * 24 // 5
    assert chief["accuracy"] > 0.9
    # The worker ended with what the servers had then, or has now.
    assert worker["accuracy"] > 0.9
    assert [node["exit"] for node in found["nodes"]] == [0, 0, 0]


@pytest.mark.slow
def test_losses_and_late_workers(tmp_path: Path) -> None:
    found = run_cases(tmp_path, "lost", "late", "ps", "cluster")
    lost = found["lost"]
    assert [node["exit"] for node in lost["nodes"]] == [0, -9, 0]
    assert len(lost["notes"]) == 1
    assert "the others go on without worker:0" in lost["log"]
    assert lost["value"]["accuracy"] > 0.88
    late = found["late"]
    assert [note["epochs"] for note in late["notes"]] == [8, 8]
    assert late["value"]["accuracy"] > 0.88
    # The chief has waited for the late one, so both end with the same weights.
    assert late["notes"][0]["last"] == pytest.approx(late["notes"][1]["last"], rel=1e-3)
    assert found["ps"]["node"] == "ps:0"
    assert found["ps"]["error"] == "NodeLostError"
    assert all(note["accuracy"] > 0.85 for note in found["cluster"]["notes"])


def test_refusals(spark: Any) -> None:
    run: dict[str, Any] = {"num_workers": 1, "spark": spark, "progress": False}
    with pytest.raises(st.ConfigError, match="num_ps=-1"):
        st.run(print, num_ps=-1, **run)
    with pytest.raises(st.ConfigError, match="no parameter servers"):
        st.run(print, distribution="periodic", **run)
    with pytest.raises(st.ConfigError, match="num_ps=1 and distribution='none'"):
        st.run(print, num_ps=1, distribution="none", **run)
    with pytest.raises(st.ResourceError, match="Lower num_workers or num_ps"):
        st.run(print, num_ps=2, slot_wait_s=0, **run)
    with pytest.raises(st.ConfigError, match="no parameter servers"):
        st.cluster(print, num_ps=0, distribution="periodic", **run)
