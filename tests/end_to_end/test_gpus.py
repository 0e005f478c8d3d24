"""Nodes see the GPUs that Spark gave to the tasks that started them, or free ones, alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("gpu_session.py")


def run(kind: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(folder)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def split(seen: dict[str, str], *names: str) -> list[str]:
    """All devices of some nodes, sorted; those that two nodes have are there twice."""
    return sorted(one for name in names for one in seen[name].split(","))


def test_gpus_of_spark(tmp_path: Path) -> None:
    answer = run("embedded", tmp_path)
    # Other tasks share a GPU; nodes do not.
    auto = answer["auto"]
    assert set(auto) == {"chief-0", "worker-0"} and len(set(auto.values())) == 2
    assert split(answer["two"], "chief-0", "worker-0") == ["4", "5", "6", "7"]
    assert set(answer["none"].values()) == {"-1"}
    assert set(answer["shared"].values()) == {"4"}  # both on one device
    assert answer["evaluator"].pop("evaluator-0") == "-1"
    assert len(split(answer["evaluator"], "chief-0")) == 2
    kind, text, was_begun = answer["too many"]
    assert (kind, was_begun) == ("DeviceError", False)
    assert "2 tasks with 3 GPUs each" in text and "6 are needed, 3 are there" in text
    assert "amount=4. 5 are needed, 4 are there" in answer["beyond"][1]
    cluster = answer["cluster"]
    assert split(cluster, "chief-0", "worker-0") == ["4", "5", "6", "7"]
    assert cluster["ps-0"] == cluster["evaluator-0"] == "-1"
    assert answer["wished"] == {"chief-0": "9", "worker-0": "9", "ps-0": "-1"}
    assert (answer["mirrors"], answer["mirrors beside a server"]) == (3, 2)
    runner = answer["runner"]
    assert set(runner) == {"worker-0", "worker-1"} and len(set(runner.values())) == 2
    assert answer["local"] == ["8,9", True, "num_slots is 4, and the driver has 3 GPUs.", None]
    assert len(answer["doctor"]) == 2
    assert "Spark gives its task 4; a worker here gets 4" in answer["doctor"][0]


def test_gpus_of_tasks_that_score(tmp_path: Path) -> None:
    """Each puts the model on the first device that Spark gave it, not on the first there is."""
    answer = run("scoring", tmp_path)
    first, second = answer["told"]
    assert sorted([*first[0].split(","), *second[0].split(",")]) == ["4", "5", "6", "7"]
    for given, device in answer["told"]:
        assert device == f"/GPU:{given.split(',')[0]}"
    assert answer["scored"] == 64
    assert answer["built"]
    for given, device in answer["built"]:
        assert len(given) == 2 and set(given) <= set("4567")
        assert device == f"GPU:{given[0]}"


@pytest.mark.slow
def test_gpus_of_a_standalone_cluster(tmp_path: Path) -> None:
    answer = run("standalone", tmp_path)
    for name in ("run", "cluster"):
        found = answer[name]
        shares = sorted(split(found, node) for node in ("chief-0", "worker-0"))
        assert shares == [["0", "1"], ["2", "3"]], name
    assert answer["cluster"]["ps-0"] == "-1"
    assert sorted(answer["four"].values()) == ["0", "1", "2", "3"]
    assert "6 are needed, 4 are there" in answer["too many"][1]


@pytest.mark.slow
def test_gpus_of_one_machine_are_counted_before_any_job(tmp_path: Path) -> None:
    answer = run("machine", tmp_path)
    for name in ("too many", "cluster"):
        kind, text, was_begun = answer[name]
        assert (kind, was_begun) == ("DeviceError", False), name
        assert "has 2 of 2 free. 3 are needed, 2 are there" in text
    assert set(answer["chosen"].values()) == {"0"} and len(answer["chosen"]) == 3
    assert len(set(answer["two"].values())) == 2


@pytest.mark.slow
def test_gpus_that_spark_does_not_know(tmp_path: Path) -> None:
    answer = run("nvidia", tmp_path)
    free = sorted(answer["ids"][1:])
    for name in ("auto", "one", "cluster"):
        assert split(answer[name], "chief-0", "worker-0") == free, name
    assert answer["cluster"]["ps-0"] == "-1"
    (left,) = split(answer["beside a cluster"], "chief-0")
    assert left in free  # an even share of the free ones: the cluster has the other
    assert split(answer["again"], "chief-0") == free
    kind, text, was_begun = answer["too many"]
    assert (kind, was_begun) == ("DeviceError", False)
    assert "has 2 of 3 free" in text and "4 are needed, 2 are there" in text
    assert len(answer["doctor"]) == 2 and "the host has 3, 2 of them free" in answer["doctor"][0]
    assert "4 are needed, 3 are there" in answer["too large"][1]
    assert "an evaluator with 1 do not fit" in answer["beside"][1]
    assert "3 are needed, 2 are there" in answer["beside"][1]
    # One node has no GPUs: the other's executor does not die in Spark's meeting of the nodes.
    kind, text, was_begun = answer["broken"]
    assert (kind, was_begun) == ("NodeFailedError", True)
    assert "nvidia-smi fails on this host" in text and "exit code 15" in text
    assert answer["cached"] == [2, 2]


@pytest.mark.slow
def test_containers_that_share_a_host(tmp_path: Path) -> None:
    answer = run("apart", tmp_path)
    for name in ("run", "cluster"):
        kind, text, was_begun = answer[name]
        assert (kind, was_begun) == ("NodeFailedError", True), name
        assert f"took the same GPU, {answer['ids'][0]}: " in text and "gpu_claims_dir" in text
        found = answer[f"{name} with claims"]
        assert split(found, "chief-0", "worker-0") == sorted(answer["ids"]), name
    (told,) = answer["doctor"]
    assert f"took the same GPU, {answer['ids'][0]}: " in told and "gpu_claims_dir" in told
    kind, text, was_begun = answer["beside"]
    assert (kind, was_begun) == ("DevicesTakenError", True)
    assert "are needed" in text and "doctor" not in text
