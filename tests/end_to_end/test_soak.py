"""Many clusters in one application: nothing is left of any of them."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import cluster_cases
import sparktrain as st

NUM_CLUSTERS = 50
#: Of conftest.py: every process of this test session has it in its environment.
TAG = "SPARKTRAIN_TEST_SESSION"


def count_all() -> dict[str, int]:
    """What a driver may leak: threads, open files and sockets, child processes."""
    gc.collect()
    me = psutil.Process()
    return {
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "sockets": len(me.net_connections(kind="all")),
        "children": len(me.children(recursive=True)),
    }


def use_cluster(spark: Any, number: int) -> None:
    """Every fifth fails, every seventh is only asked; all others are fed."""
    quiet: dict[str, Any] = {"progress": False, "distribution": "none"}
    if number % 5 == 4:
        with (
            pytest.raises(st.NodeFailedError),
            st.cluster(
                cluster_cases.fail_at, num_workers=2, spark=spark, args="raise", **quiet
            ) as cluster,
        ):
            cluster.feed(spark.range(0, 100_000, 1, 4))
    elif number % 7 == 6:
        with st.cluster(
            cluster_cases.answer_double, num_workers=2, spark=spark, **quiet
        ) as cluster:
            assert cluster.predict(spark.range(100)).where("double != 2 * id").count() == 0
    else:
        with st.cluster(cluster_cases.note_ids, num_workers=2, spark=spark, **quiet) as cluster:
            assert cluster.feed(spark.range(0, 1000, 1, 3)).rows == 1000
        assert cluster_cases.read_ids(cluster.run_dir) == list(range(1000))


def find_ours() -> dict[str, int]:
    """Processes of this test session, orphans too, and folders of doors."""
    lines = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(TAG) == os.environ[TAG]:
                lines.append(" ".join(process.cmdline()))
    return {
        "keepers": sum("sparktrain.agent.keeper" in line for line in lines),
        "trainers": sum("sparktrain.trainer" in line for line in lines),
        "folders": len(list(Path(tempfile.gettempdir()).glob("sparktrain-door-*"))),
    }


def wait_for_nothing() -> None:
    """A keeper's link closes a moment before its process ends."""
    deadline = time.monotonic() + 10
    while any((left := find_ours()).values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(left.values()), left


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_fifty_clusters_leave_nothing(spark: Any) -> None:
    for number in range(3):  # Spark's own pools, and Python's imports
        use_cluster(spark, number)
    wait_for_nothing()
    before = count_all()
    for number in range(NUM_CLUSTERS):
        use_cluster(spark, number)
    wait_for_nothing()
    after = count_all()
    # Spark's context cleaner and its pools come and go; a leak would be one for each cluster.
    grown = {name: after[name] - before[name] for name in before}
    print("grown by", grown, "over", NUM_CLUSTERS, "clusters")
    assert all(growth < NUM_CLUSTERS // 5 for growth in grown.values()), grown
