"""The parts of the drop-in that need no cluster: paths, GPUs, namespaces, Params, managers."""

from __future__ import annotations

import argparse
import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest

from tensorflowonspark import TFManager, TFNode, TFSparkNode, gpu_info, marker, util
from tensorflowonspark.namespace import Namespace

HDFS = {"defaultFS": "hdfs://nn:8020", "working_dir": "/home/me"}
LOCAL = {"defaultFS": "file://", "working_dir": "/home/me"}


@pytest.mark.parametrize(
    ("where", "path", "expected"),
    [
        (HDFS, "gs://b/x", "gs://b/x"),
        (HDFS, "abfss://c@a.dfs/x", "abfss://c@a.dfs/x"),
        (HDFS, "dbfs:/x", "dbfs:/x"),
        (HDFS, "wasbs://x", "wasbs://x"),
        (HDFS, "/x/y", "hdfs://nn:8020/x/y"),
        ({**HDFS, "defaultFS": "hdfs://nn:8020/"}, "/x", "hdfs://nn:8020/x"),
        (LOCAL, "/x", "file:///x"),
        (LOCAL, "x", "file:///home/me/x"),
        ({**LOCAL, "working_dir": "."}, "x", "x"),
        ({**LOCAL, "defaultFS": "s3a://bucket"}, "x", "s3a://bucket/x"),
        ({**LOCAL, "defaultFS": "viewfs:///"}, "/x", "viewfs:///x"),
        ({**LOCAL, "defaultFS": "viewfs://"}, "/x", "viewfs:///x"),
        ({**LOCAL, "defaultFS": "viewfs://c/"}, "/x", "viewfs://c/x"),
    ],
)
def test_paths(where: dict[str, str], path: str, expected: str) -> None:
    assert TFNode.hdfs_path(SimpleNamespace(**where), path) == expected


def test_relative_paths_of_hdfs_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    context = TFSparkNode.TFNodeContext(defaultFS="hdfs://nn:8020", working_dir="/home/me")
    assert context.absolute_path("x") == "hdfs://nn:8020/user/ann/x"


def test_free_gpus_are_found_by_their_ids_whatever_they_are_called() -> None:
    gpus = [[str(number), f"GPU-{number}"] for number in range(4)]
    assert gpu_info.find_free(gpus, [["GPU-1"]]) == ["0", "2", "3"]


@pytest.mark.parametrize(
    ("free", "count", "worker", "expected"),
    [
        ("0123", 1, 0, "0"),
        ("0123", 1, 5, "1"),
        ("0123", 2, 1, "23"),
        ("0123", 2, 3, "23"),
        ("0123", 2, 5, "23"),
        ("01", 3, 0, ""),
    ],
)
def test_workers_of_a_host_get_gpus_of_their_own(
    free: str, count: int, worker: int, expected: str
) -> None:
    assert gpu_info.choose(list(free), count, worker) == list(expected)


def test_namespaces() -> None:
    argv = Namespace(["a", "b"])
    assert argv.argv == ["a", "b"] == list(argv) and repr(argv) == "['a', 'b']"
    assert "a" in argv and "argv" not in argv and argv == ["a", "b"] == Namespace(argv)
    one = Namespace({"x": 1})
    assert one == Namespace(argparse.Namespace(x=1)) == Namespace(one) != Namespace({"x": 2})
    assert "x" in one and list(one) == ["x"] and repr(one) == "Namespace(x=1)"
    with pytest.raises(TypeError, match="got 3 of type int"):
        Namespace(3)


def test_params() -> None:
    from tensorflowonspark.pipeline import TFEstimator, TFModel

    estimator: Any = TFEstimator(print, {"steps": 5, "own": "kept"})
    estimator.setBatchSize(7).setInputMapping({"b": "y", "a": "x"})
    assert estimator.getBatchSize() == 7 and estimator.getEpochs() == 1
    merged: Any = estimator.merge_args_params()
    assert (merged.batch_size, merged.steps, merged.own) == (7, 1000, "kept")
    with pytest.raises(TypeError):
        estimator.setInputMapping([("a", "x")])
    with pytest.raises(Exception, match=r"InputMode\.TENSORFLOW is deprecated"):
        estimator.setInputMode(0)
    assert estimator.setDriverPSNodes(False).setNumPS(2).getNumPS() == 2
    assert TFModel({}).getBatchSize() == 100


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_managers_start_whichever_way_processes_do(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = multiprocessing.get_context(method)
    monkeypatch.setattr("multiprocessing.managers.get_context", lambda *_: context, raising=False)
    manager: Any = TFManager.start(b"secret", ["input"], "local")
    try:
        manager.set("state", "running")
        other: Any = TFManager.connect(manager.address, b"secret")
        assert str(other.get("state")) == "'running'"
        other.get_queue("input").put(3)
        assert manager.get_queue("input").get() == 3
    finally:
        manager.shutdown()


def test_small_things(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="No executor_id file"):
        util.read_executor_id()
    util.write_executor_id(3)
    assert util.read_executor_id() == 3
    assert util.find_in_path(str(tmp_path), "executor_id") == str(tmp_path / "executor_id")
    assert util.find_in_path(str(tmp_path), "other") is False
    assert util.get_ip_address().count(".") == 3
    assert issubclass(marker.EndPartition, marker.Marker)


def test_the_same_node_twice_is_noticed() -> None:
    nodes = [
        {"executor_id": 0, "job_name": "ps", "host": "a", "port": 1},
        {"executor_id": 1, "job_name": "worker", "host": "b", "port": 2},
    ]
    assert TFSparkNode._get_cluster_spec(nodes) == {"ps": ["a:1"], "worker": ["b:2"]}
    with pytest.raises(Exception, match="Duplicate"):
        TFSparkNode._get_cluster_spec([nodes[0], nodes[0]])
