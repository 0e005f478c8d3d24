"""GPUs that Spark gave to more nodes than can have them: whose fault it is, and what to do."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from gpu_host import NODES, OTHER, RUN
from sparktrain.agent.given import Given, make_given
from sparktrain.agent.node_devices import NodeDevices
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish, make_nodes

FIRST = Given(("0",))


def refuse(wish: DeviceWish, run_id: str, given: Given = FIRST) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        NodeDevices(wish, NODES[9], given, {}, run_id).__enter__()
    return caught.value


def test_executors_of_a_host_were_given_the_same(gpus: list[str]) -> None:
    with NodeDevices(DeviceWish(), NODES[0], FIRST, {}, RUN):
        error = refuse(DeviceWish(), RUN)
        assert not error.is_taken
        assert f"the same GPUs to two nodes of this run: {gpus[0]}. 1 are" in str(error)
        assert "discoveryScript" in str(error) and "other cluster" not in str(error)
        error = refuse(DeviceWish(), OTHER)
        assert error.is_taken and "nodes of another run have" in str(error)


def test_one_of_two_is_of_another_run(gpus: list[str]) -> None:
    two = Given(("0", "1"))
    with (
        NodeDevices(DeviceWish(), NODES[0], FIRST, {}, RUN),
        NodeDevices(DeviceWish(), NODES[1], Given(("1",)), {}, OTHER),
    ):
        assert not refuse(DeviceWish(), RUN, two).is_taken  # the first stays where it is
        assert refuse(DeviceWish(), "third", two).is_taken


@pytest.mark.parametrize(
    ("wish", "num_fit", "pattern"),
    [
        (DeviceWish(memory_mb=400), 2, "400 of its 1000 MB leaves room for 2. .*amount=0.5 to"),
        (DeviceWish(memory_mb=300), 3, "leaves room for 3. .* spark.task.resource.gpu.amount=0.33"),
        (DeviceWish(memory_fraction=0.5), 2, "gpu_memory_fraction=0.5 leaves room for 2. "),
    ],
)
def test_more_share_than_fit(gpus: list[str], wish: DeviceWish, num_fit: int, pattern: str) -> None:
    with ExitStack() as stack:
        for node in NODES[:num_fit]:
            stack.enter_context(NodeDevices(wish, node, FIRST, {}, RUN))
        with pytest.raises(DeviceError, match=pattern) as caught:
            NodeDevices(wish, NODES[9], FIRST, {}, RUN).__enter__()
        assert not caught.value.is_taken
        assert refuse(wish, OTHER).is_taken
    with ExitStack() as stack:
        stack.enter_context(NodeDevices(wish, NODES[0], FIRST, {}, OTHER))
        for node in NODES[1:num_fit]:
            stack.enter_context(NodeDevices(wish, node, FIRST, {}, RUN))
        assert refuse(wish, RUN).is_taken  # it would fit beside its own


def test_who_is_beside_a_node() -> None:
    nodes = make_nodes(3, evaluator=True)
    wish = DeviceWish(per_evaluator=1)
    executors = ["a:1", "a:2", "b:3", "a:2"]
    assert [make_given(None, nodes, wish, executors, index) for index in range(3)] == [
        Given(None, 2, 1, of_executor=(1, 0)),
        Given(None, 2, 1, of_executor=(1, 1)),
        Given(None, 1, 0, of_executor=(1, 0)),
    ]
    one = make_given(("5",), nodes, wish, ["a:1"] * 4, 0, is_restart=True)
    assert one == Given(("5",), 3, 1, is_restart=True, of_executor=(3, 1))
