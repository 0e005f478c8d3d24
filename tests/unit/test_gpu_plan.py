"""What a stage asks Spark for, so that each node has its GPUs."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.driver.gpu_plan import (
    GpuFacts,
    GpuPlan,
    check_gpus,
    check_hosts,
    count_room,
    find_amount,
    make_wish,
)
from sparktrain.driver.gpu_survey import HostGpus, KnownGpu, make_card, merge_hosts, read_card
from sparktrain.driver.plan import count_gpu_tasks, count_start_tasks
from sparktrain.errors import ConfigError, DeviceError
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
        ({"gpu_memory_fraction": 0.01}, r"give 0\.02 or more"),
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


def test_the_most_of_an_even_share() -> None:
    settings = resolve({"gpus_at_most": 2}, lambda key: None, {})
    assert make_wish(settings) == DeviceWish(at_most=2)


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


def make_host(name: str, total: int, free: int, **values: Any) -> HostGpus:
    """A host where somebody computes on all devices but some."""
    busy = [number >= free for number in range(total)]
    gpus = (KnownGpu(f"{name}{n}", is_busy=one, **values) for n, one in enumerate(busy))
    return HostGpus(name, tuple(gpus))


HOSTS = [make_host("a", 4, 3), make_host("b", 2, 1)]


@pytest.mark.parametrize(
    ("wish", "evaluator_gpus", "expected"),
    [
        (DeviceWish(per_worker=1), 0, 4),
        (TWO, 0, 1),
        (DeviceWish(per_worker=1, memory_fraction=0.1), 0, 60),
        (DeviceWish(memory_fraction=0.7), 0, 6),  # not what is left of two devices
        (DeviceWish(memory_fraction=0.33), 1, 17),
        (DeviceWish(per_worker=1), 1, 3),
        (TWO, 1, 1),  # it takes the one that is left over
        (TWO, 2, 0),
        (TWO, 4, -1),
    ],
)
def test_room_on_hosts(wish: DeviceWish, evaluator_gpus: int, expected: int) -> None:
    assert count_room(HOSTS, wish, evaluator_gpus) == expected


def test_room_beside_nodes_that_share() -> None:
    host = HostGpus("a", (KnownGpu("1", share=Fraction(1, 2)), KnownGpu("2", share=Fraction(1, 3))))
    assert count_room([host], DeviceWish(memory_fraction=0.3)) == 2
    assert count_room([host], DeviceWish(memory_fraction=0.5)) == 1
    assert count_room([host], DeviceWish(per_worker=1)) == 0


@pytest.mark.parametrize(
    ("wish", "evaluator_gpus", "expected"),
    [
        (DeviceWish(per_worker=1), 0, 7),
        (TWO, 0, 1),  # of the host without parts
        (TWO, 1, 1),
        (DeviceWish(per_worker=1), 2, 5),
        (DeviceWish(per_worker=1), 4, -1),
    ],
)
def test_room_where_gpus_have_parts(wish: DeviceWish, evaluator_gpus: int, expected: int) -> None:
    hosts = [make_host("a", 4, 4, is_part=True), make_host("b", 3, 3)]
    assert count_room(hosts, wish, evaluator_gpus) == expected
    pattern = r"a has 4 of 4 free, with parts of GPUs \(MIG\).* b has.* 4 are needed, 3 are there"
    with pytest.raises(DeviceError, match=pattern):
        check_hosts(hosts, TWO, 2, 0)


def test_devices_of_all_executors_of_a_host_are_there() -> None:
    found = [make_host("a", 2, 1), make_host("a", 3, 3), make_host("b", 1, 1)]
    merged = merge_hosts([*found, HostGpus("a", (KnownGpu("other", is_part=True),))])
    assert [(one.host, one.total) for one in merged] == [("a", 4), ("b", 1)]
    assert [read_card(make_card(one)) for one in merged] == merged


@pytest.mark.parametrize(
    ("wish", "num_workers", "evaluator_gpus", "pattern"),
    [
        (DeviceWish(per_worker=1), 4, 1, r"an evaluator with 1 .*: a has 3 of 4.* 5 are needed, 4"),
        (DeviceWish(memory_fraction=0.7), 7, 0, r"fraction=0\.7 do not fit.* 7 are needed, 6 are"),
        (DeviceWish(memory_mb=900), 7, 0, r"memory_mb=900 do not fit.* 7 are needed, 6 are there"),
        (DeviceWish(memory_mb=1001), 1, 0, r"memory_mb=1001 is more than the GPUs have: 1000 MB"),
        (DeviceWish(), 1, 4, r"an evaluator with 4 do not fit"),
        (DeviceWish(per_worker=0), 9, 4, r"an evaluator with 4 do not fit"),
    ],
)
def test_more_than_the_hosts_have(
    wish: DeviceWish, num_workers: int, evaluator_gpus: int, pattern: str
) -> None:
    hosts = [make_host("a", 4, 3, total_mb=1000), make_host("b", 2, 1, total_mb=1000)]
    with pytest.raises(DeviceError, match=pattern):
        check_hosts(hosts, wish, num_workers, evaluator_gpus)


def test_what_others_have_may_be_given_back() -> None:
    def find(num_workers: int, wish: DeviceWish, evaluator_gpus: int = 0) -> bool:
        with pytest.raises(DeviceError) as caught:
            check_hosts(HOSTS, wish, num_workers, evaluator_gpus)
        return caught.value.is_taken

    assert [find(count, DeviceWish(per_worker=1)) for count in (5, 6, 7)] == [True, True, False]
    assert [find(count, TWO) for count in (2, 3, 4)] == [True, True, False]
    assert [find(5, DeviceWish(per_worker=1), count) for count in (1, 2)] == [True, False]
    assert not find(1, DeviceWish(per_worker=5))
    assert HOSTS[0].emptied() == make_host("a", 4, 4)


def test_what_fits_on_hosts() -> None:
    check_hosts(HOSTS, DeviceWish(memory_fraction=0.1), 60, 0)
    check_hosts(HOSTS, DeviceWish(per_worker=0), 99, 2)
    check_hosts([HostGpus("a")], DeviceWish(memory_fraction=0.1), 2, 0)  # without any, as ever
    check_hosts([*HOSTS, HostGpus("c")], DeviceWish(memory_fraction=0.1), 99, 0)
    with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
        check_hosts([HostGpus("a")], DeviceWish(), 0, 1)
    with pytest.raises(DeviceError, match="a: it hangs"):
        check_hosts([HostGpus("a", problem="it hangs.")], DeviceWish(memory_fraction=0.1), 2, 0)


@pytest.mark.parametrize(
    ("wish", "num_workers", "evaluator_gpus"),
    [
        (DeviceWish(per_worker=1), 5, 0),
        (DeviceWish(per_worker=5), 1, 0),
        (DeviceWish(memory_mb=1001), 1, 0),
        (DeviceWish(), 1, 4),
    ],
)
def test_hosts_that_did_not_answer_may_have_more(
    wish: DeviceWish, num_workers: int, evaluator_gpus: int
) -> None:
    hosts = [make_host("a", 4, 3, total_mb=1000), make_host("b", 2, 1, total_mb=1000)]
    with pytest.raises(DeviceError):
        check_hosts(hosts, wish, num_workers, evaluator_gpus)
    check_hosts(hosts, wish, num_workers, evaluator_gpus, is_complete=False)
    with pytest.raises(DeviceError, match="a: it hangs"):
        check_hosts([HostGpus("a", problem="it hangs.")], wish, 1, 0, is_complete=False)


class Session:
    """What a session of one machine says; it runs no jobs."""

    def __init__(self, visible: str | None = None, conf: dict[str, str] | None = None) -> None:
        self.conf = {"spark.master": "local-cluster[4,1,1024]", **(conf or {})}
        system = SimpleNamespace(getenv={"CUDA_VISIBLE_DEVICES": visible}.get)
        self.sparkContext = SimpleNamespace(_jvm=SimpleNamespace(System=system))

    def check(self, num_workers: int, env: dict[str, str] | None = None) -> None:
        spark: Any = self
        check_gpus(spark, GpuPlan(AUTO), num_workers, num_workers, 0.0, env=env)


def test_more_workers_than_free_gpus_of_the_only_machine(
    gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Session().check(3)
    with pytest.raises(DeviceError, match=r"has 3 of 4 free\. 4 are needed, 3 are there"):
        Session().check(4)
    Session().check(4, {"CUDA_VISIBLE_DEVICES": "0"})  # the nodes have their choice
    # What Spark was started with counts, not what this process has by now.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    Session().check(3)
    with pytest.raises(DeviceError, match=r"has 1 of 2 free\. 2 are needed, 1 are there"):
        Session("0,1").check(2)
    Session("").check(9)
    own = {"spark.executorEnv.CUDA_VISIBLE_DEVICES": "0,1,2"}
    with pytest.raises(DeviceError, match=r"has 2 of 3 free\. 3 are needed, 2 are there"):
        Session("", own).check(3)
    # Where executors may see others, they find out.
    for other in ({"spark.master": "yarn"}, {"spark.executorEnv.PATH": "/opt/bin"}):
        Session(None, other).check(9)
