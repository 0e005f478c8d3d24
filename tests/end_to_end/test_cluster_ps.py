"""TensorFlow's parameter servers under a cluster: the strategy, and programs of TensorFlow 1."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import cluster_cases
import sparktrain as st


def make_frame(spark: Any, rows: int = 4000) -> Any:
    return spark.range(0, rows, 1, 4).selectExpr(
        "array(cast(id % 5 as float), 1.0f) as x", "cast(2 * (id % 5) + 1 as float) as y"
    )


def test_a_coordinator_with_a_keras_model(spark: Any) -> None:
    with st.cluster(
        cluster_cases.coordinate, num_workers=2, num_ps=1, spark=spark, progress=False
    ) as cluster:
        assert [node.name for node in cluster.nodes] == ["chief:0", "worker:0", "ps:0"]
        result = cluster.feed(make_frame(spark))
        assert result.by_node == {"chief:0": 4000}  # it alone is fed, and hands on
    (row,) = cluster.metrics
    assert row["steps"] == 125 and row["last"] < row["first"] / 10


def kill_when_begun(cluster: st.Cluster, name: str) -> threading.Thread:
    (pid,) = [node.pid for node in cluster.nodes if node.name == name]
    path = Path(cluster.run_dir) / "begun"

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(pid or 0, signal.SIGKILL)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_killed_worker_does_not_stop_training(spark: Any) -> None:
    with st.cluster(
        cluster_cases.coordinate, num_workers=3, num_ps=1, spark=spark, args=0.02, progress=False
    ) as cluster:
        killer = kill_when_begun(cluster, "worker:1")
        cluster.feed(make_frame(spark))
        killer.join()
    (row,) = cluster.metrics
    assert row["steps"] == 125 and row["last"] < row["first"] / 10


def test_a_killed_ps_ends_the_run_with_its_name(spark: Any) -> None:
    with (
        pytest.raises(st.NodeLostError, match="SIGKILL") as caught,
        st.cluster(
            cluster_cases.coordinate,
            num_workers=2,
            num_ps=1,
            spark=spark,
            args=0.02,
            progress=False,
        ) as cluster,
    ):
        killer = kill_when_begun(cluster, "ps:0")
        cluster.feed(make_frame(spark), epochs=50)
    killer.join()
    assert caught.value.node == "ps:0"


@pytest.mark.slow
def test_legacy_keras_fits(spark: Any) -> None:
    with st.cluster(
        cluster_cases.fit_legacy,
        num_workers=2,
        num_ps=1,
        spark=spark,
        env={"TF_USE_LEGACY_KERAS": "1"},
        progress=False,
    ) as cluster:
        cluster.wait(120)
    assert cluster.metrics[0]["last"] < cluster.metrics[0]["first"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["async", "sync"])
def test_between_graph_replication(spark: Any, how: str) -> None:
    with st.cluster(
        cluster_cases.train_between_graphs,
        num_workers=2,
        num_ps=1,
        spark=spark,
        args=how,
        env={"CUDA_VISIBLE_DEVICES": "0"},
        distribution="none",
        progress=False,
    ) as cluster:
        if how == "async":
            cluster.feed(make_frame(spark))
    assert cluster.metrics[0]["last"] < cluster.metrics[0]["first"] / 10
    places = [path.read_text() for path in Path(cluster.run_dir).glob("weights-on-*")]
    assert len(places) == 2 and all("/job:ps" in place for place in places)
    assert "cuda: -1" in (Path(cluster.run_dir) / "logs" / "ps-0.log").read_text()
