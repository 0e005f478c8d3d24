"""How the devices of a task, or of a host, are shared by the nodes that it starts."""

from __future__ import annotations

import pytest

from sparktrain.agent.devices import (
    HIDDEN,
    count_aside,
    count_share,
    count_shares,
    count_training,
    find_own,
    make_device_variables,
    read_visible,
    split_devices,
)
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish, NodeSpec, make_nodes

CHIEF, WORKER = NodeSpec("chief", 0), NodeSpec("worker", 0)
EVALUATOR, PS = NodeSpec("evaluator", 0), NodeSpec("ps", 0)
AUTO, WITH_EVALUATOR = DeviceWish(), DeviceWish(per_evaluator=1)
TWO, TENTH = DeviceWish(per_worker=2), DeviceWish(memory_fraction=0.1)


@pytest.mark.parametrize(
    ("nodes", "addresses", "wish", "expected"),
    [
        ([CHIEF], "0", AUTO, {"chief:0": "0"}),
        ([CHIEF, WORKER], "01", AUTO, {"chief:0": "0", "worker:0": "1"}),
        ([CHIEF, WORKER], "4567", AUTO, {"chief:0": "45", "worker:0": "67"}),
        ([CHIEF, WORKER], "012", AUTO, {"chief:0": "01", "worker:0": "2"}),
        ([CHIEF, WORKER], "0", AUTO, {"chief:0": "0", "worker:0": ""}),
        ([PS, CHIEF], "01", AUTO, {"chief:0": "01"}),
        ([EVALUATOR, CHIEF], "012", AUTO, {"chief:0": "012"}),
        ([EVALUATOR, CHIEF], "012", WITH_EVALUATOR, {"chief:0": "01", "evaluator:0": "2"}),
        ([EVALUATOR], "0", WITH_EVALUATOR, {"evaluator:0": "0"}),
        ([CHIEF, WORKER], "0123", TWO, {"chief:0": "01", "worker:0": "23"}),
        ([CHIEF], "0123", TWO, {"chief:0": "01"}),
        ([CHIEF, WORKER], "0", TENTH, {"chief:0": "0", "worker:0": "0"}),
        ([CHIEF], "01", DeviceWish(per_worker=0), {}),
        ([PS], "01", AUTO, {}),
        ([CHIEF], "", AUTO, {"chief:0": ""}),
    ],
)
def test_shares(
    nodes: list[NodeSpec], addresses: str, wish: DeviceWish, expected: dict[str, str]
) -> None:
    shares = split_devices(nodes, list(addresses), wish)
    assert {name: "".join(share) for name, share in shares.items()} == expected


def test_a_node_sees_its_own_devices_only() -> None:
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert make_device_variables(("2", "3")) == {"CUDA_VISIBLE_DEVICES": "2,3", **order}
    assert make_device_variables(()) == HIDDEN
    names = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
    assert dict.fromkeys(names, "-1") == HIDDEN


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        (" 2, 3 ", ("2", "3")),
        ("2,-1,3", ("2",)),
        ("1,x,2", ("1",)),
        ("1,1x", ("1",)),
        ("GPU-ab,MIG-cd", ("GPU-ab", "MIG-cd")),
    ],
)
def test_what_is_visible(value: str | None, expected: tuple[str, ...] | None) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert read_visible(environ) == expected


@pytest.mark.parametrize(
    ("addresses", "visible", "expected"),
    [
        ("01", None, ("0", "1")),
        ("45", ("4", "5"), ("4", "5")),
        ("01", ("4", "5"), ("4", "5")),
        ("1", ("MIG-a", "MIG-b"), ("MIG-b",)),
        ("", ("4",), ()),
        # An address that could be both is a place, for every task.
        ("0", ("1", "2"), ("1",)),
        ("1", ("1", "2"), ("2",)),
        ("01", ("1", "0"), ("1", "0")),
        ("1", ("0", "2"), ("2",)),
        ("2", ("0", "2"), ("2",)),
    ],
)
def test_addresses_of_spark_among_visible_ones(
    addresses: str, visible: tuple[str, ...] | None, expected: tuple[str, ...]
) -> None:
    assert find_own(list(addresses), visible) == expected


def test_an_address_beyond_the_visible_ones() -> None:
    with pytest.raises(DeviceError, match=r"gave the GPUs 5, and .* has 0,1\. 1 are needed"):
        find_own(["5"], ("0", "1"))
    with pytest.raises(DeviceError, match="number them from 0"):
        find_own(["2"], ("1", "2"))


@pytest.mark.parametrize(
    ("wish", "node", "num_here", "num_devices", "expected"),
    [
        (AUTO, CHIEF, 1, 8, 8),
        (AUTO, CHIEF, 2, 8, 4),
        (AUTO, CHIEF, 3, 8, 2),
        (AUTO, CHIEF, 3, 0, 0),
        (DeviceWish(at_most=3), CHIEF, 1, 8, 3),
        (DeviceWish(at_most=3), CHIEF, 4, 8, 2),
        (DeviceWish(at_most=3), CHIEF, 3, 0, 0),
        (DeviceWish(per_worker=2, at_most=1), CHIEF, 1, 8, 2),
        (AUTO, EVALUATOR, 1, 8, 0),
        (AUTO, PS, 1, 8, 0),
        (TWO, CHIEF, 1, 8, 2),
        (TWO, CHIEF, 9, 1, 2),  # too many is found out when they are claimed
        (TENTH, CHIEF, 10, 1, 1),
        (WITH_EVALUATOR, EVALUATOR, 1, 8, 1),
    ],
)
def test_shares_of_a_host(
    wish: DeviceWish, node: NodeSpec, num_here: int, num_devices: int, expected: int
) -> None:
    assert count_share(wish, node, num_here, num_devices) == expected


def test_fewer_devices_than_nodes() -> None:
    with pytest.raises(DeviceError, match=r"3 are needed, 2 are there.*gpu_memory_fraction"):
        count_share(AUTO, CHIEF, 3, 2)


def test_who_trains_on_a_host() -> None:
    nodes = make_nodes(3, evaluator=True, num_ps=1)
    assert count_training(nodes, ["a", "b"], "a") == 2
    assert count_training(nodes, ["a", "b"], "b") == 1
    assert count_training(nodes, ["a"], "a") == 3


def test_devices_of_evaluators() -> None:
    nodes = make_nodes(3, evaluator=True)
    assert count_aside(WITH_EVALUATOR, nodes, ["a", "b"], "b") == 1
    assert count_aside(WITH_EVALUATOR, nodes, ["a", "b"], "a") == 0
    assert count_aside(AUTO, nodes, ["a"], "a") == 0
    assert count_share(AUTO, CHIEF, 2, 5, aside=1) == 2
    with pytest.raises(DeviceError, match="2 are needed, 1 are there"):
        count_share(AUTO, CHIEF, 2, 2, aside=1)


@pytest.mark.parametrize(
    ("wish", "total_mb", "expected"),
    [
        (AUTO, 1000, 1),
        (TENTH, 0, 10),
        (DeviceWish(memory_fraction=0.33), 1000, 3),
        (DeviceWish(memory_fraction=0.16), 1000, 6),
        (DeviceWish(memory_fraction=0.6), 1000, 1),
        (DeviceWish(memory_fraction=0.02), 1000, 50),
        (DeviceWish(memory_mb=300), 1000, 3),
        (DeviceWish(memory_mb=1), 1000, 50),
        (DeviceWish(memory_mb=300), 0, 50),
        (DeviceWish(memory_mb=1001), 1000, 0),
    ],
)
def test_how_many_share_a_device(wish: DeviceWish, total_mb: int, expected: int) -> None:
    assert count_shares(wish, total_mb) == expected
