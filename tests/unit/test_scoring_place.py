"""Which GPU of a worker is the one that Spark gave to the task."""

from __future__ import annotations

import pytest

from sparktrain.scoring.place import find_device, find_place


@pytest.mark.parametrize(
    ("addresses", "visible", "device"),
    [
        ([], "0,1", ""),
        (["0"], "", "/GPU:0"),
        (["3"], "", "/GPU:3"),
        (["3"], "2,3", "/GPU:1"),  # TensorFlow counts what it sees
        (["GPU-b"], "GPU-a, GPU-b", "/GPU:1"),
        (["GPU-c"], "", "/GPU:0"),
        (["1", "2"], "", "/GPU:1"),
    ],
)
def test_the_device_of_a_task(addresses: list[str], visible: str, device: str) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    assert find_device(addresses, environ) == device


def test_outside_of_a_task_the_machine_is_ours() -> None:
    place = find_place()
    assert (place.partition, place.device) == (0, "") and place.cpus >= 1
