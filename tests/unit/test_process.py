"""What the trainer process inherits: its environment and its import path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sparktrain
from sparktrain.agent.process import find_python_path, is_sparks_own, make_environment

HOME = str(Path(sparktrain.__file__).parent.parent)


@pytest.mark.parametrize(
    "name",
    [
        "SPARK_HOME",
        "SPARK_LOCAL_DIRS",
        "SPARK_AUTH_SOCKET_TIMEOUT",
        "_SPARK_AUTH_SECRET",
        "_SPARK_SSL_RPC_KEY_PASSWORD",
        "PYSPARK_PYTHON",
        "PYSPARK_GATEWAY_SECRET",
        "_PYSPARK_DRIVER_CONN_INFO_PATH",
        "PYTHON_WORKER_FACTORY_SECRET",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE",
    ],
)
def test_spark_and_its_secrets_are_hidden_from_the_trainer(name: str) -> None:
    env = make_environment({name: "hidden", "HOME": "/root"}, {}, [])
    assert name not in env
    assert "hidden" not in env.values()
    assert env["HOME"] == "/root"


def test_the_users_variables_win_over_everything() -> None:
    wished = {
        "HOME": "/mine",
        "PYTHONUNBUFFERED": "0",
        "PYTHONPATH": "/my/modules",
        "TF_GRPC_REUSE_PORT": "0",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "SPARK_HOME": "/my/spark",
    }
    inherited = {"HOME": "/root", "SPARK_HOME": "/spark", "TF_CPP_MIN_LOG_LEVEL": "1"}
    env = make_environment(inherited, wished, ["/path"])
    assert {name: env[name] for name in wished} == wished


def test_ours_come_before_those_of_the_executor() -> None:
    env = make_environment({"PYTHONUNBUFFERED": "", "TF_GRPC_REUSE_PORT": "0"}, {}, [])
    assert env["PYTHONUNBUFFERED"] == "1"
    assert env["TF_GRPC_REUSE_PORT"] == "1"


def test_tensorflow_is_quiet_unless_the_executor_says_otherwise() -> None:
    assert make_environment({}, {}, [])["TF_CPP_MIN_LOG_LEVEL"] == "2"
    inherited = {"TF_CPP_MIN_LOG_LEVEL": "0"}
    assert make_environment(inherited, {}, [])["TF_CPP_MIN_LOG_LEVEL"] == "0"


def test_memory_of_gpus_is_taken_as_it_is_needed_unless_somebody_says_otherwise() -> None:
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    assert make_environment({}, {}, [])[name] == "true"
    assert make_environment({name: "false"}, {}, [])[name] == "false"
    assert make_environment({name: "true"}, {name: "0"}, [])[name] == "0"


def test_the_import_path_is_the_given_one_not_the_executors() -> None:
    inherited = {"PYTHONPATH": "/spark/python"}
    assert "PYTHONPATH" not in make_environment(inherited, {}, [])
    env = make_environment(inherited, {}, ["/a", "/b"])
    assert env["PYTHONPATH"] == os.pathsep.join(["/a", "/b"])


def test_what_is_given_is_not_changed() -> None:
    inherited, wished = {"SPARK_HOME": "/s", "A": "1"}, {"B": "2"}
    make_environment(inherited, wished, [])
    assert (inherited, wished) == ({"SPARK_HOME": "/s", "A": "1"}, {"B": "2"})


@pytest.mark.parametrize(
    ("entry", "own"),
    [
        ("/opt/spark/python/lib/pyspark.zip", True),
        ("/opt/spark/python/lib/py4j-0.10.9.9-src.zip", True),
        ("/opt/spark/jars/spark-core_2.13-4.0.0.jar", True),
        ("/opt/anything.jar", True),
        ("/opt/spark/python", False),
        ("/tmp/spark-123/userFiles-456/mymodules.zip", False),
        ("/home/me/project", False),
        ("/home/pyspark/project", False),
    ],
)
def test_sparks_own_entries_of_the_path_are_known(entry: str, own: bool) -> None:
    assert is_sparks_own(entry) is own


def test_import_path_keeps_the_users_entries_in_order_and_adds_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = ["/b", "/opt/pyspark.zip", "", "/a", "/opt/py4j-0.10-src.zip"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entries))
    assert find_python_path() == ["/b", "/a", HOME]


def test_import_path_has_ours_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", HOME)
    assert find_python_path() == [HOME]
    monkeypatch.delenv("PYTHONPATH")
    assert find_python_path() == [HOME]


def test_an_installed_sparktrain_is_not_moved_to_the_front_of_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    installed = "/usr/lib/python3/site-packages/sparktrain/__init__.py"
    monkeypatch.setattr(sparktrain, "__file__", installed)
    assert find_python_path() == []
