"""Which slots a doctor takes for workers: those that a run would have."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from sparktrain.cli.doctor_gpus import find_workers
from sparktrain.spec import DeviceWish

ONE_EXECUTOR = ["a:1", "a:1", "a:1"]
TWO_HOSTS = ["a:1", "b:1", "a:1", "a:2", "b:1"]
ON_A, ON_B = 3, 1


@pytest.mark.parametrize(
    ("executors", "index", "num_free", "wish", "expected"),
    [
        (ONE_EXECUTOR, 0, 2, DeviceWish(), (0,)),
        (TWO_HOSTS, ON_A, 2, DeviceWish(), (0, 3)),
        (TWO_HOSTS, ON_B, 2, DeviceWish(), (1,)),
        (TWO_HOSTS, ON_A, 1, DeviceWish(), (0,)),  # the other executor finds none
        (TWO_HOSTS, ON_A, 3, DeviceWish(per_worker=2), (0,)),
        (TWO_HOSTS, ON_A, 1, DeviceWish(per_worker=2), (0,)),  # and says that it is one only
        (TWO_HOSTS, ON_A, 1, DeviceWish(memory_fraction=0.5), (0, 3)),
        (TWO_HOSTS, ON_A, 0, DeviceWish(), (0, 3)),
    ],
)
def test_slots_of_workers(
    executors: list[str], index: int, num_free: int, wish: DeviceWish, expected: tuple[int, ...]
) -> None:
    free = [json.dumps([f"GPU-{number}" for number in range(num_free)])] * len(executors)
    assert find_workers(executors, free, index, wish) == expected


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (["0", "1", "2"], (0, 1, 2)),
        (["0", "0", "1"], (0, 2)),
        (["01", "01", "2"], (0, 1, 2)),
        (["0", "", "0"], (0, 1)),
    ],
)
def test_slots_of_executors_that_see_different_devices(
    free: Sequence[str], expected: tuple[int, ...]
) -> None:
    seen = [json.dumps(list(one)) for one in free]
    assert find_workers(["a:1", "a:2", "a:3"], seen, 2, DeviceWish()) == expected
