"""Which GPUs of a host are free for a node, and for which it waits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpu_host import HERE, NODES, OTHER, RUN, see, set_busy
from sparktrain.agent import claims, node_devices, nvidia
from sparktrain.agent.given import Given
from sparktrain.agent.gpus import Gpu
from sparktrain.agent.node_devices import NodeDevices
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish

AGAIN = Given(None, 1, is_restart=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes when nvidia-smi is asked: before a node looks, one at a time, for free devices."""
    asked: list[bool] = []
    find = nvidia.find_gpus

    def find_and_note(named: Sequence[str] | None = None) -> tuple[Gpu, ...]:
        claims.Claims().looking().close()  # nobody holds it
        asked.append(True)
        return find(named)

    monkeypatch.setattr(claims, "LOOK_WAIT_S", 5.0)
    monkeypatch.setattr(nvidia, "find_gpus", find_and_note)
    return asked


def test_an_even_share_of_the_free_ones(gpus: list[str]) -> None:
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
        assert see(found) == [gpus[0], *gpus[2:]]
    with NodeDevices(DeviceWish(), NODES[0], Given(None, 3), {}, RUN) as found:
        assert see(found) == [gpus[0]]
    with pytest.raises(DeviceError, match=r"fewer free GPUs.* 4 are needed, 3 are there"):
        NodeDevices(DeviceWish(), NODES[0], Given(None, 4), {}, RUN).__enter__()
    with NodeDevices(DeviceWish(), NODES[0], Given(None, 1, aside=1), {}, RUN) as found:
        assert see(found) == [gpus[0], gpus[2]]


def test_what_another_run_has_is_not_shared_out(gpus: list[str], tmp_path: Path) -> None:
    set_busy(tmp_path)
    two = Given(None, 2)
    with NodeDevices(DeviceWish(per_worker=1), NODES[0], HERE, {}, OTHER):
        with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN) as found:
            assert see(found) == gpus[1:]
        with (
            NodeDevices(DeviceWish(), NODES[0], two, {}, RUN) as found,
            NodeDevices(DeviceWish(), NODES[1], two, {}, RUN) as second,
        ):
            assert [see(found), see(second)] == [[gpus[1]], [gpus[2]]]
    with (
        NodeDevices(DeviceWish(), NODES[0], two, {}, RUN) as found,
        NodeDevices(DeviceWish(), NODES[1], two, {}, RUN) as second,  # a half of all, not of two
    ):
        assert [see(found), see(second)] == [gpus[:2], gpus[2:]]
        set_busy(tmp_path, *gpus)
        with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
            NodeDevices(DeviceWish(), NODES[0], HERE, {}, OTHER).__enter__()


def test_all_devices_compute_for_others(gpus: list[str], tmp_path: Path) -> None:
    set_busy(tmp_path, *gpus)
    with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
        NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN).__enter__()


@pytest.mark.parametrize("busy", [0, 2])
def test_those_that_share_leave_what_a_stranger_computes_on(
    gpus: list[str], tmp_path: Path, busy: int
) -> None:
    set_busy(tmp_path, gpus[busy])
    others = [gpu for gpu in gpus if gpu != gpus[busy]]
    with ExitStack() as stack:
        for wanted in (*others, *others, gpus[busy], gpus[busy]):
            node = NodeDevices(DeviceWish(memory_fraction=0.5), NODES[0], HERE, {}, RUN)
            assert see(stack.enter_context(node)) == [wanted]
            if wanted in others:  # what ours compute on has still room
                set_busy(tmp_path, gpus[busy], wanted)


def test_nobody_waits_for_nvidia_smi(gpus: list[str], asked: list[bool]) -> None:
    with NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN):
        assert asked == [True]


@pytest.mark.parametrize(
    ("wish", "given", "expected"),
    [
        (DeviceWish(per_worker=4), HERE, 4),
        (DeviceWish(), Given(None, 4), 1),
        (DeviceWish(), AGAIN, 4),  # not the three that are free already
        (DeviceWish(memory_fraction=0.5), AGAIN, 1),
    ],
)
def test_what_a_lost_trainer_computes_on_is_waited_for(
    gpus: list[str],
    asked: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wish: DeviceWish,
    given: Given,
    expected: int,
) -> None:
    monkeypatch.setattr(node_devices, "GONE_WAIT_S", 20.0)
    timer = threading.Timer(0.5, set_busy, [tmp_path])
    timer.start()
    with NodeDevices(wish, NODES[0], given, {}, RUN) as found:
        assert found.count == expected and not timer.is_alive()
    assert len(asked) > 1


def test_a_stranger_is_not_waited_for_longer(
    gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_devices, "GONE_WAIT_S", 0.5)
    with NodeDevices(DeviceWish(), NODES[0], AGAIN, {}, RUN) as found:
        assert see(found) == [gpus[0], *gpus[2:]]


@pytest.mark.parametrize(
    ("wish", "given"),
    [
        (DeviceWish(per_worker=5), HERE),
        (DeviceWish(per_worker=5), AGAIN),
        (DeviceWish(), Given(None, 5)),
        (DeviceWish(), Given(None, 4, aside=1)),
    ],
)
def test_nobody_waits_for_more_than_there_are(
    gpus: list[str],
    asked: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    wish: DeviceWish,
    given: Given,
) -> None:
    monkeypatch.setattr(node_devices, "GONE_WAIT_S", 600.0)
    with pytest.raises(DeviceError):
        NodeDevices(wish, NODES[0], given, {}, RUN).__enter__()
    assert asked == [True]


def test_executors_that_see_different_devices(
    gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Given(None, 2, of_executor=(1, 0))
    with ExitStack() as stack:
        for node, place in zip(NODES, (0, 2), strict=False):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(place))
            found = stack.enter_context(NodeDevices(DeviceWish(), node, two, {}, RUN))
            assert see(found) == [str(place)]
    # The other one's evaluator does not count here.
    beside = Given(None, 2, aside=1, of_executor=(1, 0))
    with NodeDevices(DeviceWish(per_evaluator=1), NODES[0], beside, {}, RUN) as found:
        assert see(found) == ["2"]
    with pytest.raises(DeviceError, match="2 are needed, 1 are there"):
        here = Given(None, 2, of_executor=(2, 0))
        NodeDevices(DeviceWish(), NODES[0], here, {}, RUN).__enter__()


def test_executors_that_see_the_same_devices(
    gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2,3")
    with ExitStack() as stack:
        three = Given(None, 3, of_executor=(1, 0))
        shares = [NodeDevices(DeviceWish(), node, three, {}, RUN) for node in NODES[:3]]
        with ExitStack() as evenly:
            assert [see(evenly.enter_context(one)) for one in shares] == [["0"], ["2"], ["3"]]
        four = Given(None, 4, of_executor=(1, 0))
        stack.enter_context(NodeDevices(DeviceWish(), NODES[0], four, {}, RUN))
        with pytest.raises(DeviceError, match="4 are needed, 3 are there") as caught:
            NodeDevices(DeviceWish(), NODES[1], four, {}, RUN).__enter__()
        assert not caught.value.is_taken
        with pytest.raises(DeviceError) as caught:
            NodeDevices(DeviceWish(per_worker=1), NODES[1], HERE, {}, OTHER).__enter__()
        assert caught.value.is_taken


@pytest.mark.parametrize("wish", [DeviceWish(per_worker=2), DeviceWish(memory_fraction=0.6)])
def test_what_nodes_of_the_same_run_have_is_not_given_back(
    gpus: list[str], wish: DeviceWish
) -> None:
    num_fit = 1 if wish.per_worker else 4
    with ExitStack() as stack:
        for node in NODES[:num_fit]:
            stack.enter_context(NodeDevices(wish, node, HERE, {}, RUN))
        for run_id, is_taken in ((RUN, bool(wish.per_worker)), (OTHER, True)):
            with pytest.raises(DeviceError, match="enough free GPUs") as caught:
                NodeDevices(wish, NODES[5], HERE, {}, run_id).__enter__()
            assert caught.value.is_taken == is_taken  # a stranger computes on one of four
