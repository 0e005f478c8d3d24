"""Which slots a doctor takes for workers: those that a run would have."""

from __future__ import annotations

import pytest

from sparktrain.cli.doctor import find_workers
from sparktrain.spec import DeviceWish

ONE_EXECUTOR = ["a:1", "a:1", "a:1"]
TWO_HOSTS = ["a:1", "b:1", "a:1", "a:2", "b:1"]


@pytest.mark.parametrize(
    ("addresses", "own", "num_free", "wish", "expected"),
    [
        (ONE_EXECUTOR, "a:1", 2, DeviceWish(), (0,)),
        (TWO_HOSTS, "a:2", 2, DeviceWish(), (0, 3)),
        (TWO_HOSTS, "b:1", 2, DeviceWish(), (1,)),
        (TWO_HOSTS, "a:1", 1, DeviceWish(), (0,)),  # the other executor finds none
        (TWO_HOSTS, "a:1", 3, DeviceWish(per_worker=2), (0,)),
        (TWO_HOSTS, "a:1", 1, DeviceWish(per_worker=2), (0,)),  # and says that it is one only
        (TWO_HOSTS, "a:1", 1, DeviceWish(memory_fraction=0.5), (0, 3)),
        (TWO_HOSTS, "a:1", 0, DeviceWish(), (0, 3)),
    ],
)
def test_slots_of_workers(
    addresses: list[str], own: str, num_free: int, wish: DeviceWish, expected: tuple[int, ...]
) -> None:
    assert find_workers(addresses, own, num_free, wish) == expected
