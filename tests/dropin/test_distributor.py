"""MirroredStrategyRunner: every argument, what it refuses, and Keras 3 on two workers."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distributor_cases as cases
import sparktrain as st
from spark_tensorflow_distributor import MirroredStrategyRunner, session_facts
from spark_tensorflow_distributor.node import count_gpus, cut_visible, make_tf_config
from spark_tensorflow_distributor.session_facts import IGNORE_SSL, find_driver_gpus

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKTRAIN_SLOT_WAIT_S", "0.1")


@pytest.fixture
def conf(spark: Any) -> Iterator[Callable[[str, str], None]]:
    """Sets configuration of the session for one test; spark.conf.set() refuses Spark's own."""
    java = spark._jsparkSession.sessionState().conf()
    changed: list[str] = []

    def change(key: str, value: str) -> None:
        changed.append(key)
        java.setConfString(key, value)

    yield change
    for key in changed:
        java.unsetConf(key)


def test_arguments() -> None:
    parameters = inspect.signature(MirroredStrategyRunner).parameters
    assert {name: one.default for name, one in parameters.items()} == {
        "num_slots": inspect.Parameter.empty,
        "local_mode": False,
        "use_gpu": True,
        "gpu_resource_name": "gpu",
        "use_custom_strategy": False,
    }
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(ValueError, match="num_slots"):
            MirroredStrategyRunner(num_slots=wrong)  # type: ignore[arg-type]
    assert MirroredStrategyRunner(num_slots=np.int64(2), use_gpu=False).get_num_tasks() == 2  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one function"):
        MirroredStrategyRunner(num_slots=1).run()


@pytest.mark.parametrize(
    ("num_slots", "num_tasks", "expected"),
    [(4, 2, [2, 2]), (5, 2, [3, 2]), (5, 3, [2, 2, 1]), (1, 1, [1]), (2, 2, [1, 1])],
)
def test_gpus_of_each_task(num_slots: int, num_tasks: int, expected: list[int]) -> None:
    assert [count_gpus(num_slots, num_tasks, index) for index in range(num_tasks)] == expected


def test_gpus_that_a_node_uses() -> None:
    assert cut_visible({"CUDA_VISIBLE_DEVICES": "4,5,6"}, 2) == "4,5"
    for environ in ({}, {"CUDA_VISIBLE_DEVICES": "-1"}):
        with pytest.raises(RuntimeError, match="has 0 GPUs, expected 1"):
            cut_visible(environ, 1)


def test_all_are_workers() -> None:
    found = make_tf_config({"chief": ["a:1"], "worker": ["b:2"]}, 1)
    assert (
        found == '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    )


@pytest.mark.parametrize(
    ("amount", "num_slots", "expected"),
    [("1", 4, 4), ("2", 4, 2), ("2", 5, 3), ("0.5", 4, 4), ("0.25", 1, 1)],
)
def test_tasks_with_gpus(conf: Any, amount: str, num_slots: int, expected: int) -> None:
    conf("spark.task.resource.own.amount", amount)
    runner = MirroredStrategyRunner(num_slots=num_slots, gpu_resource_name="own")
    assert runner.get_num_tasks() == expected


def test_gpus_that_are_not_there(spark: Any, conf: Any) -> None:
    with pytest.raises(st.ResourceError, match="needs 9 task slots"):
        MirroredStrategyRunner(num_slots=9, use_gpu=False).run(cases.look)
    with pytest.raises(Exception, match="GPU-aware scheduling"):
        MirroredStrategyRunner(num_slots=1).run(cases.look)
    for wrong in ("0", "-1", "x"):
        conf("spark.task.resource.gpu.amount", wrong)
        with pytest.raises(ValueError, match="Expected a number above 0"):
            MirroredStrategyRunner(num_slots=1).get_num_tasks()
    with pytest.raises(Exception, match="driver has no resource 'gpu'"):
        MirroredStrategyRunner(num_slots=1, local_mode=True).run(cases.look)


def test_encryption(conf: Any) -> None:
    runner = MirroredStrategyRunner(num_slots=9, use_gpu=False)
    conf("spark.ssl.enabled", "TRUE")
    with pytest.raises(Exception, match=r"not encrypted.*ignoreSsl"):
        runner.run(cases.look)
    conf(IGNORE_SSL, "True")
    with pytest.warns(UserWarning, match="not encrypted"), pytest.raises(st.ResourceError):
        runner.run(cases.look)
    conf(IGNORE_SSL, "yes")
    with pytest.raises(Exception, match=r"'yes'\. Expected true or false"):
        runner.run(cases.look)


def test_two_workers(spark: Any) -> None:
    """Names of arguments may be any, and Keras 3 trains, as in one process."""
    runner = MirroredStrategyRunner(num_slots=2, use_gpu=False)
    kwargs = {"train_fn": 1, "use_custom_strategy": 2, "self": 3}
    found = runner.run(cases.look, **kwargs)
    assert found["kwargs"] == kwargs and found["visible"] == ""
    assert (found["replicas"], found["is_default"]) == (2, False)
    config = found["config"]
    assert config["task"] == {"type": "worker", "index": 0}
    assert list(config["cluster"]) == ["worker"] and len(config["cluster"]["worker"]) == 2
    own = MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True)
    assert own.run(train_fn=cases.fit, is_own=True) == pytest.approx(found["losses"])
    assert found["losses"] == pytest.approx(run_alone(), rel=1e-4)


def run_alone() -> list[float]:
    """The same in a process without Spark, and in local mode."""
    code = (
        "import os, distributor_cases as c; from spark_tensorflow_distributor import *\n"
        "r = MirroredStrategyRunner(num_slots=1, local_mode=True, use_gpu=False)\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = '7'; os.environ['TF_CONFIG'] = '{}'\n"
        "found = r.run(c.look, a=1); assert found['visible'] == '' and found['losses'][0] > 0\n"
        "assert os.environ['CUDA_VISIBLE_DEVICES'] == '7'\n"
        "del os.environ['TF_CONFIG']\n"
        "r._use_custom_strategy = True; print('losses', *r.run(c.fit, is_own=False))\n"
        "try: r.run(c.fail)\n"
        "except KeyError as e: assert e.args == ('on purpose',)\n"
        "del os.environ['CUDA_VISIBLE_DEVICES']; r.run(dict)\n"
        "assert 'CUDA_VISIBLE_DEVICES' not in os.environ\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [float(value) for value in done.stdout.rpartition("losses")[2].split()]


def test_local_mode_refuses(spark: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=r"num_slots is 2\. In local mode without GPUs"):
            MirroredStrategyRunner(num_slots=2, local_mode=True, use_gpu=False).run(cases.look)


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path) -> None:
    submit = "--master local-cluster[2,1,1024] --conf spark.ui.enabled=false pyspark-shell"
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/spark_tensorflow_distributor/mnist.py")],
        cwd=tmp_path,
        env={**env, "SPARKTRAIN_RUNS_DIR": str(tmp_path / "runs")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    found = re.findall(r"^accuracy (0\.\d+)", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and float(found[-1]) > 0.9, done.stdout[-4000:]


def test_the_driver_s_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark counts what the driver's environment shows it."""
    given = {"gpu": SimpleNamespace(addresses=["0", "1"])}
    session = SimpleNamespace(sparkContext=SimpleNamespace(resources=given))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_driver_gpus(session, "gpu") == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    assert find_driver_gpus(session, "gpu") == ["6", "7"]


def test_large_results(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def run(function: Any, **settings: Any) -> Any:
        asked.update(settings)
        return SimpleNamespace(value=1)

    monkeypatch.setattr(st, "run", run)
    monkeypatch.setattr(session_facts, "find_session", lambda: None)
    monkeypatch.setattr(session_facts, "check_encryption", lambda spark: None)
    assert MirroredStrategyRunner(num_slots=2, use_gpu=False).run(lambda: 1) == 1
    assert asked["max_result_bytes"] >= 1 << 30
