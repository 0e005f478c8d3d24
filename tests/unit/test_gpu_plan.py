"""What a stage asks Spark for, so that each node has its GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from sparktrain.driver.gpu_plan import GpuFacts, GpuPlan, count_room, find_amount, make_wish
from sparktrain.driver.gpu_survey import HostGpus
from sparktrain.driver.plan import count_gpu_tasks, count_start_tasks
from sparktrain.errors import ConfigError
from sparktrain.settings import Settings, resolve
from sparktrain.spec import DeviceWish, make_nodes

AUTO, TWO = DeviceWish(), DeviceWish(per_worker=2)


@pytest.mark.parametrize(
    ("wish", "facts", "expected"),
    [
        (AUTO, GpuFacts(), 0),
        (TWO, GpuFacts(), 0),
        (AUTO, GpuFacts(4, 1), 1),
        (AUTO, GpuFacts(4, 2), 2),
        (AUTO, GpuFacts(4, 0.25), 1),  # tasks may share a device, nodes do not
        (AUTO, GpuFacts(4, 0), 1),
        (TWO, GpuFacts(4, 0.25), 2),
        (TWO, GpuFacts(4, 2), 2),
        (DeviceWish(per_worker=0), GpuFacts(4, 0.25), 0.25),
        (DeviceWish(per_worker=0, per_evaluator=1), GpuFacts(4, 0.25), 1),
        (DeviceWish(per_evaluator=2), GpuFacts(4, 1), 2),
        (DeviceWish(memory_fraction=0.1), GpuFacts(1, 1), 0.1),
        (DeviceWish(memory_fraction=0.1), GpuFacts(1, 0), 0.1),
        (DeviceWish(memory_mb=500), GpuFacts(1, 0.5), 0.5),
        (DeviceWish(memory_mb=500), GpuFacts(1, 0), 1),
    ],
)
def test_amounts(wish: DeviceWish, facts: GpuFacts, expected: float) -> None:
    assert find_amount(wish, facts) == expected


@pytest.mark.parametrize(
    ("wishes", "pattern"),
    [
        ({"gpu_memory_fraction": 0.1, "gpu_memory_mb": 5}, "Give one of them"),
        ({"gpu_memory_fraction": 0.1, "gpus_per_worker": "2"}, "gpus_per_worker=2.*shares one"),
        ({"gpu_memory_mb": 1, "gpus_per_evaluator": 2}, "shares one device"),
    ],
)
def test_wishes_that_contradict(wishes: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        make_wish(Settings(**wishes))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpus_per_worker", -1),
        ("gpus_per_worker", 1.5),
        ("gpus_per_worker", True),
        ("gpus_per_worker", "all"),
        ("gpu_memory_fraction", 1.1),
        ("gpu_memory_fraction", -0.1),
        ("gpu_memory_mb", 0.5),
        ("gpus_per_evaluator", "x"),
    ],
)
def test_bad_values(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        resolve({name: value}, lambda key: None, {})


@pytest.mark.parametrize(("raw", "expected"), [("auto", None), ("AUTO", None), ("2", 2), (0, 0)])
def test_how_many(raw: Any, expected: int | None) -> None:
    settings = resolve({}, {"spark.sparktrain.gpusPerWorker": raw}.get, {})
    assert make_wish(settings).per_worker == expected


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (GpuPlan(AUTO), (6, 1)),
        (GpuPlan(AUTO, 1.0), (6, 3)),
        (GpuPlan(AUTO, 2.0), (6, 2)),
        (GpuPlan(AUTO, 1.0, "profile"), (3, 3)),
        (GpuPlan(TWO, 2.0), (3, 3)),
        (GpuPlan(DeviceWish(per_worker=2, per_evaluator=1), 2.0), (4, 4)),
        (GpuPlan(DeviceWish(memory_fraction=0.1), 0.1), (6, 1)),
    ],
)
def test_tasks_that_start_a_cluster(plan: GpuPlan, expected: tuple[int, int]) -> None:
    nodes = make_nodes(3, evaluator=True, num_ps=2)
    wished = count_start_tasks(plan, nodes)
    assert (wished, count_gpu_tasks(plan, wished, 3)) == expected


@pytest.mark.parametrize(
    ("wish", "expected"),
    [(DeviceWish(per_worker=1), 4), (TWO, 1), (DeviceWish(per_worker=1, memory_fraction=0.1), 60)],
)
def test_room_on_hosts(wish: DeviceWish, expected: int) -> None:
    assert count_room([HostGpus("a", 4, 3), HostGpus("b", 2, 1)], wish) == expected
