"""Nodes on hosts whose GPUs are split (MIG): each takes one part, whatever it is called."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from gpu_host import HERE, NODES, OTHER, RUN, answer, count_free, see, split_first
from sparktrain.agent.devices import HIDDEN
from sparktrain.agent.given import Given
from sparktrain.agent.node_devices import NodeDevices
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish

ONE = DeviceWish(per_worker=1)


@pytest.mark.parametrize("num_parts", [1, 2, 7])
def test_each_node_takes_one(gpus: list[str], tmp_path: Path, num_parts: int) -> None:
    parts = split_first(tmp_path, gpus, num_parts)
    for wish in (ONE, DeviceWish()):  # by itself, one and not all of them
        with NodeDevices(wish, NODES[0], HERE, {}, RUN) as found:
            assert see(found) == parts[:1] and found.count == 1
    with ExitStack() as stack:
        here = Given(None, num_parts)
        for node, part in zip(NODES, parts, strict=False):
            devices = NodeDevices(DeviceWish(), node, here, {}, RUN)
            assert see(stack.enter_context(devices)) == [part]
    with pytest.raises(DeviceError, match="one part only"):
        NodeDevices(DeviceWish(per_worker=2), NODES[0], HERE, {}, RUN).__enter__()


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("wish", [DeviceWish(), ONE])
def test_a_choice_of_the_gpu_is_one_of_its_parts(
    gpus: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_id: bool,
    wish: DeviceWish,
) -> None:
    parts = split_first(tmp_path, gpus, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus[0] if by_id else "0")
    two = Given(None, 2)
    with (
        NodeDevices(wish, NODES[0], two, {}, RUN) as found,
        NodeDevices(wish, NODES[1], two, {}, RUN) as second,
    ):
        assert [see(found), see(second)] == [[part] for part in parts]
        with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
            NodeDevices(ONE, NODES[2], HERE, {}, OTHER).__enter__()


def test_spark_gives_a_gpu_that_is_split(gpus: list[str], tmp_path: Path) -> None:
    parts = split_first(tmp_path, gpus, 2)
    given = Given(("0",))
    with (
        NodeDevices(DeviceWish(), NODES[0], given, {}, RUN) as found,
        NodeDevices(DeviceWish(), NODES[1], given, {}, RUN) as second,
    ):
        assert [see(found), see(second)] == [[part] for part in parts]
        with pytest.raises(DeviceError, match="to two nodes of this run"):
            NodeDevices(DeviceWish(), NODES[2], given, {}, RUN).__enter__()
    with NodeDevices(DeviceWish(), NODES[0], Given((parts[1],)), {}, RUN) as found:
        assert see(found) == [parts[1]]
    with pytest.raises(DeviceError, match="one part only"):
        NodeDevices(DeviceWish(), NODES[0], Given(("0", "1")), {}, RUN).__enter__()


def test_a_choice_of_nothing_is_not_passed_on(
    gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
        assert found.variables == HIDDEN
    with pytest.raises(DeviceError, match=rf"DEVICES=7, and there are 0 \({gpus[0]}\), 1"):
        NodeDevices(ONE, NODES[0], HERE, {}, RUN).__enter__()


def test_memory_of_parts(gpus: list[str], tmp_path: Path) -> None:
    (part,) = split_first(tmp_path, gpus, 1, "1g.10gb")
    wish = DeviceWish(memory_mb=4000)
    with ExitStack() as stack:
        found = [
            stack.enter_context(NodeDevices(wish, node, Given((part,)), {}, RUN))
            for node in NODES[:2]
        ]
        assert [see(one) for one in found] == [[part]] * 2
        with pytest.raises(DeviceError, match=r"4000 of its 9000 MB leaves room for 2\. "):
            NodeDevices(wish, NODES[2], Given((part,)), {}, RUN).__enter__()
    with pytest.raises(DeviceError, match="memory_mb=9001 is more than the GPUs have: 9000 MB"):
        NodeDevices(DeviceWish(memory_mb=9001), NODES[0], Given((part,)), {}, RUN).__enter__()
    with NodeDevices(DeviceWish(memory_fraction=0.1), NODES[0], Given((part,)), {}, RUN) as one:
        assert one.limit_mb == 900


def test_a_gpu_that_has_no_part_yet(gpus: list[str], tmp_path: Path) -> None:
    answer(tmp_path, "--query-gpu=uuid", f"{gpus[0]}, 00000000:01:00.0, Enabled\n")
    with NodeDevices(DeviceWish(per_worker=2), NODES[0], HERE, {}, RUN) as found:
        assert see(found) == gpus[2:]
    with pytest.raises(DeviceError, match=f"gave {gpus[0]}, in MIG mode and without a part"):
        NodeDevices(DeviceWish(), NODES[0], Given(("0",)), {}, RUN).__enter__()
    all_of_them = "".join(f"{one}, 00000000:01:00.0, Enabled\n" for one in gpus)
    answer(tmp_path, "--query-gpu=uuid", all_of_them)
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
        assert found.variables == HIDDEN
    with pytest.raises(DeviceError, match=f"in MIG mode and without a part is {gpus[0]}, "):
        NodeDevices(ONE, NODES[0], HERE, {}, RUN).__enter__()
    assert count_free(gpus[2]) == 1
