"""Nodes that take GPUs of their host: an nvidia-smi of our own, and real claims."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparktrain.agent.claims import UNITS, Claims, count_free, count_units
from sparktrain.agent.devices import HIDDEN
from sparktrain.agent.node_devices import Devices, Given, NodeDevices
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish, NodeSpec

NODES = [NodeSpec("worker", index) for index in range(20)]
HERE = Given(None, 1)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Four GPUs of 1000 MB, of which the second computes for somebody."""
    # Claims are seen by the whole host: other tests must not have the same devices.
    ids = [f"GPU-{uuid.uuid4()}" for _ in range(4)]
    rows = "".join(f"echo '{n}, {one}, 1000, 1, NVIDIA H100'\n" for n, one in enumerate(ids))
    script = tmp_path / "nvidia-smi"
    script.write_text(
        f"#!/bin/sh\ncase $1 in --query-gpu=*)\n{rows};;\n--query-comp*) echo {ids[1]};;\nesac\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return ids


def see(devices: Devices) -> list[str]:
    return devices.variables["CUDA_VISIBLE_DEVICES"].split(",")


def test_nodes_do_not_share(gpus: list[str]) -> None:
    wish = DeviceWish(per_worker=1)
    with ExitStack() as stack:
        found = [stack.enter_context(NodeDevices(wish, node, HERE, {})) for node in NODES[:3]]
        assert [see(one) for one in found] == [[gpus[0]], [gpus[2]], [gpus[3]]]
        with pytest.raises(DeviceError, match=r"the host's 4.* 1 are needed, 0 are there"):
            NodeDevices(wish, NODES[3], HERE, {}).__enter__()
    with NodeDevices(DeviceWish(per_worker=3), NODES[0], HERE, {}) as all_free:
        assert see(all_free) == [gpus[0], *gpus[2:]] and all_free.count == 3
    with (
        pytest.raises(DeviceError, match="4 are needed, 3 are there"),
        NodeDevices(DeviceWish(per_worker=4), NODES[0], HERE, {}),
    ):
        pass
    assert [count_free(one) for one in gpus] == [UNITS] * 4


def test_nodes_that_share(gpus: list[str]) -> None:
    wish = DeviceWish(memory_fraction=0.2)
    with ExitStack() as stack:
        found = [stack.enter_context(NodeDevices(wish, node, HERE, {})) for node in NODES]
        assert {one.limit_mb for one in found} == {200}
        seen = [see(one)[0] for one in found]
        assert {one: seen.count(one) for one in gpus} == dict.fromkeys(gpus, 5)
        with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
            NodeDevices(wish, NODES[0], HERE, {}).__enter__()
        with pytest.raises(DeviceError):  # alone, beside those that share
            NodeDevices(DeviceWish(per_worker=1), NODES[0], HERE, {}).__enter__()
    with NodeDevices(DeviceWish(memory_mb=300), NODES[0], HERE, {}) as one:
        assert one.limit_mb == 300 and sum(count_free(gpu) for gpu in gpus) == 4 * UNITS - 6


def test_processes_do_not_race(gpus: list[str]) -> None:
    """Three at a time, for the three that are free: each gets another one."""
    code = (
        "import sys; from sparktrain.agent.node_devices import *; from sparktrain.spec import *\n"
        "with NodeDevices(DeviceWish(per_worker=1), NodeSpec('chief', 0), Given(), {}) as found:\n"
        "    print(found.variables['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.read()"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        lines = [process.stdout.readline().strip() for process in started if process.stdout]
        assert sorted(lines) == sorted([gpus[0], *gpus[2:]])
        started[0].kill()  # however it ends, its claim is gone
        started[0].wait()
        assert count_free(lines[0]) == UNITS and count_free(lines[1]) == 0
    finally:
        for process in started:
            process.communicate()


def test_a_choice_among_visible_ones(gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,0")
    with NodeDevices(DeviceWish(per_worker=2), NODES[0], HERE, {}) as found:
        assert see(found) == ["3", "0"]
    with NodeDevices(DeviceWish(), NODES[0], Given(("1",), 1), {}) as found:
        assert see(found) == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}) as found:
        assert found.variables == {}
    with pytest.raises(DeviceError, match="finds no GPU"):
        NodeDevices(DeviceWish(per_worker=1), NODES[0], HERE, {}).__enter__()


def test_what_spark_gave_is_claimed(gpus: list[str]) -> None:
    """A cluster's tasks have ended; its nodes still have their devices."""
    with NodeDevices(DeviceWish(), NODES[0], Given(("2", "3"), 1), {}) as found:
        assert (see(found), found.count) == (["2", "3"], 2)
        assert count_free(gpus[2]) == 0
        with pytest.raises(DeviceError, match=r"another run have: GPU.* needed, 0 are there"):
            NodeDevices(DeviceWish(), NODES[1], Given(("2",), 1), {}).__enter__()
    with NodeDevices(DeviceWish(), NODES[0], Given((), 1), {}) as found:
        assert found.variables == HIDDEN


def test_roles_and_wishes(gpus: list[str]) -> None:
    ps, evaluator = NodeSpec("ps", 0), NodeSpec("evaluator", 0)
    for wish, node in (
        (DeviceWish(), ps),
        (DeviceWish(), evaluator),
        (DeviceWish(per_worker=0), NODES[0]),
    ):
        with NodeDevices(wish, node, HERE, {}) as found:
            assert found.variables == HIDDEN
    with NodeDevices(DeviceWish(per_evaluator=1), evaluator, HERE, {}) as found:
        assert see(found) == [gpus[0]]
    with NodeDevices(DeviceWish(), NODES[0], HERE, {"CUDA_VISIBLE_DEVICES": "1,2"}) as found:
        assert (dict(found.variables), found.count) == ({}, 2)


def test_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}) as found:
        assert found == Devices({})
    with NodeDevices(DeviceWish(), NODES[0], Given(("0",), 1), {}) as found:
        assert see(found) == ["0"]
    with pytest.raises(DeviceError, match=r"gpu_memory_fraction=0\.1 .* gpu_memory_mb"):
        NodeDevices(DeviceWish(memory_fraction=0.1), NODES[0], Given(("0",), 1), {}).__enter__()


def test_parts_of_gpus(gpus: list[str], tmp_path: Path) -> None:
    script = tmp_path / "nvidia-smi"
    part = f"MIG-{uuid.uuid4()}"
    listing = f"GPU 0: H100 (UUID: {gpus[0]})\\n  MIG 1g.5gb Device 0: (UUID: {part})"
    script.write_text(script.read_text().replace("esac", f"--list*) printf '{listing}\\n';;\nesac"))
    with NodeDevices(DeviceWish(per_worker=1), NODES[0], HERE, {}) as found:
        assert see(found) == [part]
    with pytest.raises(DeviceError, match="one part only"):
        NodeDevices(DeviceWish(per_worker=2), NODES[0], HERE, {}).__enter__()


@pytest.mark.parametrize(
    ("fraction", "units"), [(0.0, 20), (0.1, 2), (0.2, 4), (0.03, 1), (0.12, 3), (1.0, 20)]
)
def test_units(fraction: float, units: int) -> None:
    assert count_units(fraction) == units


def test_all_or_none() -> None:
    name = f"GPU-{uuid.uuid4()}"
    with Claims() as claims, Claims() as others:
        assert claims.claim([(name, 15)], 1) == (name,)
        assert others.claim([(name, 6)], 1) == ()
        assert others.claim([(name, 5)], 1) == (name,)
        assert count_free(name) == 0
