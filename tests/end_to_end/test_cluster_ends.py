"""How clusters end when nobody stops them: drivers and executors that are gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import cluster_cases
import sparktrain as st
from sparktrain.agent.executor import _look_up

QUIET: dict[str, Any] = {"progress": False, "distribution": "none"}


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_nothing_outlives_the_driver(tmp_path: Path, how: signal.Signals) -> None:
    """Killed, it takes Spark with it; stopped, Spark is there and only the driver is not heard."""
    script = Path(__file__).parent / "killed_driver.py"
    driver = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert driver.stdout is not None
        trainers = [psutil.Process(pid) for pid in json.loads(driver.stdout.readline())]
        keepers = [parent for one in trainers if (parent := one.parent()) is not None]
        assert len(keepers) == 2 and all("keeper" in " ".join(k.cmdline()) for k in keepers)
        time.sleep(1)
        os.kill(driver.pid, how)
        gone, alive = psutil.wait_procs([*trainers, *keepers], timeout=20)
        assert not alive and len(gone) == 4
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        if driver.stdout is not None:
            driver.stdout.close()


def test_trainers_end_with_their_executor(spark: Any) -> None:
    started = 0.0
    with (
        pytest.raises(st.NodeLostError, match="its Spark executor ended") as caught,
        st.cluster(
            cluster_cases.note_ids, num_workers=2, spark=spark, args=0.001, **QUIET
        ) as cluster,
    ):
        executors = find_executors()
        assert len(executors) == 2
        started = time.monotonic()
        os.kill(executors[0], signal.SIGKILL)
        cluster.feed(spark.range(0, 1_000_000, 1, 8))
    assert time.monotonic() - started < 30
    assert caught.value.node in ("chief:0", "worker:0")
    # The next one in the same application works.
    from sparktrain.driver.spark_facts import wait_for_slots

    assert wait_for_slots(spark, 2, 60)[0] == 2
    with st.cluster(cluster_cases.note_ids, num_workers=2, spark=spark, **QUIET) as cluster:
        cluster.feed(spark.range(10))
    assert cluster_cases.read_ids(cluster.run_dir) == list(range(10))


def find_executors() -> list[int]:
    """The executors of this process' embedded Spark: Java processes of its Java process."""
    children = psutil.Process().children(recursive=True)
    return [
        child.pid
        for child in children
        if _look_up(child.pid)[0] == "java" and "CoarseGrainedExecutor" in " ".join(child.cmdline())
    ]
