"""Nodes that take GPUs of their host: an nvidia-smi of our own, and real claims."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

import pytest

from gpu_host import HERE, NODES, OTHER, RUN, count_free, see
from sparktrain.agent import node_devices, nvidia
from sparktrain.agent.claims import Claims
from sparktrain.agent.devices import HIDDEN, count_shares
from sparktrain.agent.given import Given
from sparktrain.agent.node_devices import Devices, NodeDevices, choose_variables
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish, NodeSpec


def test_nodes_do_not_share(gpus: list[str]) -> None:
    wish = DeviceWish(per_worker=1)
    with ExitStack() as stack:
        found = [stack.enter_context(NodeDevices(wish, node, HERE, {}, RUN)) for node in NODES[:3]]
        assert [see(one) for one in found] == [[gpus[0]], [gpus[2]], [gpus[3]]]
        with pytest.raises(DeviceError, match=r"the host's 4.* 1 are needed, 0 are there"):
            NodeDevices(wish, NODES[3], HERE, {}, RUN).__enter__()
    with NodeDevices(DeviceWish(per_worker=3), NODES[0], HERE, {}, RUN) as all_free:
        assert see(all_free) == [gpus[0], *gpus[2:]] and all_free.count == 3
    with (
        pytest.raises(DeviceError, match="4 are needed, 3 are there"),
        NodeDevices(DeviceWish(per_worker=4), NODES[0], HERE, {}, RUN),
    ):
        pass
    assert [count_free(one) for one in gpus] == [1] * 4


def test_nodes_that_share(gpus: list[str]) -> None:
    wish = DeviceWish(memory_fraction=0.2)
    with ExitStack() as stack:
        found = [stack.enter_context(NodeDevices(wish, node, HERE, {}, RUN)) for node in NODES]
        assert {one.limit_mb for one in found} == {200}
        seen = [see(one)[0] for one in found]
        assert {one: seen.count(one) for one in gpus} == dict.fromkeys(gpus, 5)
        with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
            NodeDevices(wish, NODES[0], HERE, {}, RUN).__enter__()
        with pytest.raises(DeviceError):  # alone, beside those that share
            NodeDevices(DeviceWish(per_worker=1), NODES[0], HERE, {}, RUN).__enter__()
    with NodeDevices(DeviceWish(memory_mb=300), NODES[0], HERE, {}, RUN) as one:
        assert one.limit_mb == 300 and sum(count_free(gpu) for gpu in gpus) == 4 - Fraction(1, 3)


def test_processes_do_not_race(gpus: list[str]) -> None:
    """Three at a time, for the three that are free: each gets another one."""
    code = (
        "import sys; from sparktrain.agent.node_devices import *; from sparktrain.spec import *\n"
        "node, wish = NodeSpec('chief', 0), DeviceWish(per_worker=1)\n"
        "with NodeDevices(wish, node, Given(), {}, 'run') as found:\n"
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
        assert count_free(lines[0]) == 1 and count_free(lines[1]) == 0
    finally:
        for process in started:
            process.communicate()


def test_a_choice_among_visible_ones(gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,0")
    with NodeDevices(DeviceWish(per_worker=2), NODES[0], HERE, {}, RUN) as found:
        assert see(found) == ["3", "0"]
    with NodeDevices(DeviceWish(), NODES[0], Given(("1",), 1), {}, RUN) as found:
        assert see(found) == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
        assert found.variables == {}
    with pytest.raises(DeviceError, match="finds no GPU"):
        NodeDevices(DeviceWish(per_worker=1), NODES[0], HERE, {}, RUN).__enter__()


def test_what_spark_gave_is_claimed(gpus: list[str]) -> None:
    """A cluster's tasks have ended; its nodes still have their devices."""
    with NodeDevices(DeviceWish(), NODES[0], Given(("2", "3"), 1), {}, RUN) as found:
        assert (see(found), found.count) == (["2", "3"], 2)
        assert count_free(gpus[2]) == 0
        with pytest.raises(
            DeviceError, match=r"another run have: GPU.* needed, 0 are there"
        ) as one:
            NodeDevices(DeviceWish(), NODES[1], Given(("2",), 1), {}, OTHER).__enter__()
        assert one.value.is_taken
    with NodeDevices(DeviceWish(), NODES[0], Given((), 1), {}, RUN) as found:
        assert found.variables == HIDDEN


def test_roles_and_wishes(gpus: list[str]) -> None:
    ps, evaluator = NodeSpec("ps", 0), NodeSpec("evaluator", 0)
    for wish, node in (
        (DeviceWish(), ps),
        (DeviceWish(), evaluator),
        (DeviceWish(per_worker=0), NODES[0]),
    ):
        with NodeDevices(wish, node, HERE, {}, RUN) as found:
            assert found.variables == HIDDEN
    with NodeDevices(DeviceWish(per_evaluator=1), evaluator, HERE, {}, RUN) as found:
        assert see(found) == [gpus[0]]
    with NodeDevices(DeviceWish(), NODES[0], HERE, {"CUDA_VISIBLE_DEVICES": "1,2"}, RUN) as found:
        assert (dict(found.variables), found.count) == ({}, 2)


def test_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia, "DRIVER_FOLDER", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
        assert found == Devices({})
    with NodeDevices(DeviceWish(), NODES[0], Given(("0",), 1), {}, RUN) as found:
        assert see(found) == ["0"]
    with pytest.raises(DeviceError, match=r"gpu_memory_fraction=0\.1 .* gpu_memory_mb"):
        NodeDevices(
            DeviceWish(memory_fraction=0.1), NODES[0], Given(("0",), 1), {}, RUN
        ).__enter__()


@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.33, 0.16, 0.12, 0.1, 0.03, 0.02])
def test_as_many_nodes_as_spark_schedules(fraction: float) -> None:
    shares, name = count_shares(DeviceWish(memory_fraction=fraction), 0), f"GPU-{uuid.uuid4()}"
    with Claims() as claims:
        fit = 0
        while claims.claim([(name, shares)], 1):
            fit += 1
    assert fit == int(1 / fraction)
    assert count_free(name) == 1


def test_all_or_none() -> None:
    name = f"GPU-{uuid.uuid4()}"
    with Claims() as claims, Claims() as others:
        assert claims.claim([(name, 2)], 1) == (name,)
        assert others.claim([(name, 1)], 1) == ()
        assert others.claim([(name, 3)], 1) == (name,)
        assert others.claim([(name, 5)], 1) == ()  # a sixth is left
        assert others.claim([(name, 6)], 1) == (name,)
        assert count_free(name) == 0


def test_what_a_lost_node_had_is_waited_for(
    gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_devices, "GONE_WAIT_S", 20.0)
    lost = Claims()
    assert lost.claim([(gpus[2], 1)], 1)
    timer = threading.Timer(0.5, lost.__exit__)
    timer.start()
    with NodeDevices(DeviceWish(), NODES[0], Given(("2",), 1), {}, RUN) as found:
        assert see(found) == ["2"] and not timer.is_alive()


def test_devices_that_nobody_else_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an nvidia-smi, by the name that Spark or the environment gives them."""
    monkeypatch.setattr(node_devices, "GONE_WAIT_S", 0.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia, "DRIVER_FOLDER", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    one, other = (str(10**6 + uuid.uuid4().int % 10**9) for _ in range(2))
    with NodeDevices(DeviceWish(), NODES[0], Given((one,)), {}, RUN) as found:
        assert see(found) == [one]
        with pytest.raises(DeviceError, match=f"another run have: gpu-{one}"):
            NodeDevices(DeviceWish(), NODES[1], Given((one,)), {}, OTHER).__enter__()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{one},{other}")
        with NodeDevices(DeviceWish(per_worker=1), NODES[1], HERE, {}, RUN) as second:
            assert see(second) == [other]
    wish = DeviceWish(memory_mb=100)
    with (
        NodeDevices(wish, NODES[0], Given((one,)), {}, RUN) as found,
        NodeDevices(wish, NODES[1], Given((one,)), {}, RUN) as second,
    ):
        assert see(second) == see(found)


def test_an_nvidia_smi_that_fails(
    gpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "nvidia-smi"
    good = script.read_text()
    script.write_text("#!/bin/sh\necho Unable to determine the device handle; exit 15\n")
    with pytest.raises(DeviceError, match="exit code 15, and it said: Unable to determine"):
        NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN).__enter__()
    script.write_text("#!/bin/sh\nexec sleep 20\n")
    monkeypatch.setattr(nvidia, "TIMEOUT_S", 0.1)
    with pytest.raises(DeviceError, match="timed out"):
        NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN).__enter__()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    # A host without its driver has no device; one that does not list processes has.
    script.write_text("#!/bin/sh\nexit 9\n")
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
        assert found == Devices({})
    script.write_text(good.replace("--query-comp*) echo", "--query-comp*) exit 3; echo"))
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
        assert see(found) == gpus


def test_more_memory_than_there_is(gpus: list[str]) -> None:
    wish = DeviceWish(memory_mb=1001)
    for given in (HERE, Given(("0",))):
        with pytest.raises(DeviceError, match=r"gpu_memory_mb=1001 .*have: 1000 MB"):
            NodeDevices(wish, NODES[0], given, {}, RUN).__enter__()


def test_a_fraction_of_chosen_devices(gpus: list[str]) -> None:
    wish, chosen = DeviceWish(memory_fraction=0.1), {"CUDA_VISIBLE_DEVICES": "1,2"}
    with NodeDevices(wish, NODES[0], HERE, chosen, RUN) as found:
        assert (dict(found.variables), found.count, found.limit_mb) == ({}, 2, 100)
    with NodeDevices(wish, NODES[0], HERE, {"CUDA_VISIBLE_DEVICES": "-1"}, RUN) as found:
        assert found.count == 0


def test_a_ps_sees_no_device_whatever_is_wished() -> None:
    wished = {"CUDA_VISIBLE_DEVICES": "1", "A": "b"}
    ps = choose_variables(NodeSpec("ps", 0), Devices(HIDDEN), wished)
    assert ps == {"A": "b", **HIDDEN}
    worker = choose_variables(NODES[0], Devices({"CUDA_VISIBLE_DEVICES": "0"}), wished)
    assert worker == wished
