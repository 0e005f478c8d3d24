"""GPUs and the environment of nodes, with an nvidia-smi and a Hadoop of our own."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tensorflowonspark import gpu_info, node_env, pipeline, util

#: Four GPUs, of which the second computes for somebody.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
  --list-gpus) echo "GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-0)" ;;
  --query-gpu=*) for n in 0 1 2 3; do echo "$n, GPU-$n"; done ;;
  --query-compute-apps=*) echo "GPU-1" ;;
esac
"""
SPEC = {"chief": ["h1:1"], "ps": ["h1:2"], "worker": ["h10:3", "h1:4", "h1:5"]}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the functions set is taken back: they write to the environment itself."""
    kept = ("CLASSPATH", "HADOOP_PREFIX", "TFOS_CLASSPATH_UPDATED", "TF_CONFIG")
    for name in ("CUDA_VISIBLE_DEVICES", "SPARK_EXECUTOR_POD_IP", *kept):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(tmp_path / "nvidia-smi", NVIDIA_SMI)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_free_gpus(gpus: None) -> None:
    assert gpu_info.is_gpu_available()
    assert gpu_info.get_gpus(3, 0) == "0,2,3"
    assert gpu_info.get_gpus(1, 1, gpu_info.AS_LIST) == ["2"]
    assert gpu_info.get_gpus(1) in ("0", "2", "3")
    assert gpu_info.get_gpus(0) == "" and gpu_info.get_gpus(0, format=gpu_info.AS_LIST) == []
    with pytest.raises(Exception, match=r"4 free GPU.*this host has 4, of which 3 are free"):
        gpu_info.get_gpus(4)
    with pytest.raises(ValueError, match="got format='text'"):
        gpu_info.get_gpus(1, format="text")


def test_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not gpu_info.is_gpu_available() and gpu_info.get_gpus(0) == ""
    with pytest.raises(Exception, match="without nvidia-smi on PATH"):
        gpu_info.get_gpus(1)
    util.single_node_env(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"num_gpus": 2}, 2),
        ({}, None),
        (Namespace(num_gpus="3"), 3),
        (Namespace(), None),
        (["program", "--num_gpus", "2"], 2),
        (["program", "--num_gpus=0", "x"], 0),
        (["program", "--num_gpus"], None),
        (["program"], None),
        (None, None),
    ],
)
def test_how_many_gpus_a_program_asks_for(args: Any, expected: int | None) -> None:
    assert node_env.find_num_gpus(args) == expected


@pytest.mark.parametrize(
    ("args", "role", "index", "expected"),
    [
        ({}, "chief", 0, "0"),
        ({}, "worker", 0, "0"),  # alone on h10, which is not h1
        ({}, "worker", 1, "2"),
        (["program", "--num_gpus=1"], "worker", 2, "3"),
        ({"num_gpus": 3}, "chief", 0, "0,2,3"),
        ({"num_gpus": 0}, "chief", 0, ""),
        ({"num_gpus": 1}, "ps", 0, ""),
    ],
)
def test_nodes_of_a_host_get_gpus_of_their_own(
    gpus: None, args: Any, role: str, index: int, expected: str
) -> None:
    node_env.choose_gpus(args, role, index, SPEC)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_more_gpus_than_there_are(gpus: None) -> None:
    with pytest.raises(Exception, match="Unable to find 5 free"):
        node_env.choose_gpus({"num_gpus": 5}, "chief", 0, SPEC)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "SPARK_EXECUTOR_POD_IP"])
def test_who_has_chosen_already_is_right(
    gpus: None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "7")
    node_env.choose_gpus({"num_gpus": 1}, "chief", 0, SPEC)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == ("7" if name.startswith("CUDA") else None)


def test_nodes_alone(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = ["10.0.0.1", "10.0.0.10", "10.0.0.1"]
    found = []
    for index in range(3):
        util.single_node_env(1, index, nodes)
        found.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert found == ["0", "0", "2"]
    monkeypatch.setattr(sys, "argv", ["pytest"])
    for args in ({"num_gpus": 0}, ["program", "--num_gpus=0"]):
        os.environ["CUDA_VISIBLE_DEVICES"] = "9"
        pipeline.single_node_env(args)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert sys.argv == ["program", "--num_gpus=0"]


@pytest.mark.parametrize("before", [None, "mine.jar"])
def test_the_jars_of_hadoop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    write_script(tmp_path / "bin" / "hadoop", '#!/bin/sh\necho "$1,$2:a.jar"\n')
    if before is not None:
        monkeypatch.setenv("CLASSPATH", before)
    monkeypatch.setenv("HADOOP_PREFIX", str(tmp_path))
    for _ in range(2):  # the second time there is nothing to add
        node_env.expand_classpath()
        expected = "classpath,--glob:a.jar"
        assert os.environ["CLASSPATH"] == (f"{before}:{expected}" if before else expected)


def test_a_hadoop_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node_env.expand_classpath()  # without HADOOP_PREFIX nothing happens
    assert "CLASSPATH" not in os.environ
    monkeypatch.setenv("HADOOP_PREFIX", str(tmp_path))
    with pytest.raises(Exception, match=r"HADOOP_PREFIX is .* failed"):
        node_env.expand_classpath()


def test_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"task": {"type": "chief", "index": 0}}))
    node_env.complete_tf_config({"chief": ["h:1"]})
    config = json.loads(os.environ["TF_CONFIG"])
    assert config == {"task": {"type": "chief", "index": 0}, "environment": "cloud"}
    node_env.complete_tf_config({"worker": ["h:1"]})
    assert "TF_CONFIG" not in os.environ
