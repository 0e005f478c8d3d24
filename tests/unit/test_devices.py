"""How the devices of a task are shared by the nodes that it starts."""

from __future__ import annotations

import pytest

from sparktrain.agent.devices import HIDDEN, make_device_variables, split_devices
from sparktrain.spec import NodeSpec

CHIEF, WORKER = NodeSpec("chief", 0), NodeSpec("worker", 0)
EVALUATOR, PS = NodeSpec("evaluator", 0), NodeSpec("ps", 0)


@pytest.mark.parametrize(
    ("nodes", "addresses", "expected"),
    [
        ([CHIEF], "0", {"chief:0": "0"}),
        ([CHIEF, WORKER], "01", {"chief:0": "0", "worker:0": "1"}),
        ([CHIEF, WORKER], "4567", {"chief:0": "45", "worker:0": "67"}),
        ([CHIEF, WORKER], "012", {"chief:0": "01", "worker:0": "2"}),
        ([CHIEF, WORKER], "0", {"chief:0": "0", "worker:0": ""}),
        ([PS, CHIEF], "01", {"chief:0": "01"}),
        ([EVALUATOR, CHIEF], "012", {"chief:0": "01", "evaluator:0": "2"}),
        ([EVALUATOR, CHIEF, WORKER], "01", {"chief:0": "0", "worker:0": "1", "evaluator:0": ""}),
        ([PS], "01", {}),
        ([CHIEF], "", {"chief:0": ""}),
    ],
)
def test_shares(nodes: list[NodeSpec], addresses: str, expected: dict[str, str]) -> None:
    shares = split_devices(nodes, list(addresses))
    assert {name: "".join(share) for name, share in shares.items()} == expected


def test_a_node_sees_its_own_devices_only() -> None:
    assert make_device_variables(("2", "3")) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert make_device_variables(()) == {"CUDA_VISIBLE_DEVICES": "-1"}
    names = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
    assert dict.fromkeys(names, "-1") == HIDDEN
