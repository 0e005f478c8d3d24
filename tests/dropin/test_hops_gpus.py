"""Trials of hops where Spark gives out no GPUs: they share those of their hosts, or wait."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hops import gpu_room
from hops.gpu_room import GpuRoom, plan_room, run_patiently
from sparktrain.driver.gpu_survey import HostGpus, KnownGpu
from sparktrain.errors import DeviceError, DevicesTakenError, NodeFailedError
from sparktrain.spec import DeviceWish

SCRIPT = Path(__file__).with_name("hops_session.py")
AUTO, ONE, TWO = DeviceWish(), DeviceWish(per_worker=1), DeviceWish(per_worker=2)


def make_host(name: str, total: int, free: int) -> HostGpus:
    """A host where somebody computes on all devices but some."""
    gpus = (KnownGpu(f"{name}{n}", 1000, is_busy=n >= free) for n in range(total))
    return HostGpus(name, tuple(gpus))


@pytest.mark.parametrize(
    ("gpus", "wish", "slots", "num_trials", "at_most", "idle"),
    [
        ([(0, 0)], AUTO, 4, 9, None, 0),
        ([(4, 4)], AUTO, 2, 20, 2, 0),
        ([(4, 4)], AUTO, 1, 20, 4, 0),
        ([(4, 4)], AUTO, 8, 20, 1, 4),
        ([(4, 4)], AUTO, 8, 2, 2, 6),
        ([(4, 3)], AUTO, 2, 20, 1, 0),
        ([(4, 0)], AUTO, 2, 20, 2, 0),  # they may be given back
        ([(4, 4), (1, 1)], AUTO, 2, 20, 4, 0),
        ([(4, 4), (3, 3)], AUTO, 4, 20, 2, 1),
        ([(4, 4), (0, 0)], AUTO, 8, 20, 1, 0),  # any number trains on the other
        ([(4, 4)], DeviceWish(at_most=1), 2, 20, 1, 0),
        ([(4, 4)], ONE, 8, 20, None, 4),
        ([(4, 1)], ONE, 8, 20, None, 7),
        ([(4, 0)], ONE, 8, 20, None, 4),
        ([(4, 4), (3, 3)], TWO, 8, 20, None, 5),
        ([(1, 1)], DeviceWish(memory_fraction=0.25), 8, 20, None, 4),
        ([(1, 1)], DeviceWish(memory_mb=100), 8, 20, None, 0),
    ],
)
def test_room(
    gpus: list[tuple[int, int]],
    wish: DeviceWish,
    slots: int,
    num_trials: int,
    at_most: int | None,
    idle: int,
) -> None:
    hosts = [make_host(f"h{n}", *one) for n, one in enumerate(gpus)]
    settings = {} if at_most is None else {"gpus_at_most": at_most}
    assert plan_room(hosts, wish, slots, num_trials) == GpuRoom(settings, idle)


def test_room_on_hosts_of_which_some_did_not_answer() -> None:
    hosts = [make_host("a", 2, 2)]
    assert plan_room(hosts, ONE, 4, 20) == GpuRoom({}, 2)
    assert plan_room(hosts, ONE, 4, 20, is_complete=False) == GpuRoom({}, 0)
    assert plan_room(hosts, AUTO, 2, 20, is_complete=False) == GpuRoom({"gpus_at_most": 1}, 0)
    assert plan_room([], AUTO, 2, 20, is_complete=False) == GpuRoom({}, 0)


@pytest.mark.parametrize(
    ("hosts", "wish", "pattern"),
    [
        ([make_host("a", 4, 4), make_host("b", 0, 0)], ONE, "and b has 0 GPUs. 1 are needed, 0"),
        ([make_host("a", 4, 4), make_host("b", 1, 1)], TWO, "and b has 1 GPUs. 2 are needed, 1"),
        ([make_host("a", 4, 4), HostGpus("b", problem="it hangs")], AUTO, "b: it hangs"),
    ],
)
def test_hosts_where_every_trial_would_fail(
    hosts: list[HostGpus], wish: DeviceWish, pattern: str
) -> None:
    with pytest.raises(DeviceError, match=pattern):
        plan_room(hosts, wish, 4, 20)


def make_refusal(is_taken: bool) -> DeviceError:
    return DeviceError(problem="No.", needed=1, found=0, is_taken=is_taken, advice="Wait.")


TAKEN = DevicesTakenError(node="chief:0", host="a", what="all are taken")


@pytest.mark.parametrize("error", [TAKEN, make_refusal(True)], ids=lambda error: type(error))
def test_waiting_for_what_others_have(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_room, "PAUSE_S", 0.0)
    answers, told = iter([error, error, "trained"]), []

    def run() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert run_patiently(run, told.append) == "trained"
    assert told == [error]


@pytest.mark.parametrize(
    "error",
    [make_refusal(False), NodeFailedError(node="chief:0", host="a", what="it raised")],
    ids=lambda error: type(error),
)
def test_what_no_time_mends_is_not_waited_for(error: Exception) -> None:
    told: list[Exception] = []

    def run() -> Any:
        raise error

    with pytest.raises(type(error)) as caught:
        run_patiently(run, told.append)
    assert caught.value is error and not told


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_room, "PAUSE_S", 0.0)
    monkeypatch.setattr(gpu_room, "WAIT_S", 0.1)

    def run() -> Any:
        raise TAKEN

    with pytest.raises(DevicesTakenError):
        run_patiently(run, lambda error: None)


def run_session(kind: str, folder: Path) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(folder)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return json.loads((folder / "answer.json").read_text()), done.stdout


def count_at_once(trials: list[Any]) -> int:
    """How many trials ran at the same time; none of them had a device of another."""
    pairs = [(a, b) for a, b in itertools.combinations(trials, 2) if a[1] < b[2] and b[1] < a[2]]
    for a, b in pairs:
        assert not set(a[0].split()) & set(b[0].split()), (a, b)
    return max([1, *(1 + sum(one in pair for pair in pairs) for one in trials)])


@pytest.mark.slow
def test_trials_share_the_gpus_of_a_host(tmp_path: Path) -> None:
    answer, shown = run_session("gpus", tmp_path)
    ids = answer["ids"]
    searches = {name: answer[name] for name in ("two", "waits", "four", "one", "by number")}
    assert {name: len(found) for name, found in searches.items()} == {
        "two": 4,
        "waits": 2,
        "four": 3,
        "one": 3,
        "by number": 3,
    }
    failed = [one for found in searches.values() for one in found if isinstance(one, str)]
    assert not failed
    assert {name: count_at_once(found) for name, found in searches.items()} == {
        "two": 2,
        "waits": 2,
        "four": 2,
        "one": 1,
        "by number": 1,
    }
    assert {one[0] for one in answer["two"]} == set(ids[:2])
    assert {one[0] for one in answer["waits"]} == set(ids[:2])
    assert min(one[1] for one in answer["waits"]) > answer["given back"][0]
    assert shown.count("waits for GPUs: ") >= 2
    assert {len(one[0].split()) for one in answer["four"]} == {2}
    assert (
        "and each" not in answer["too many"] and "2 are needed, 1 are there" in answer["too many"]
    )
    assert [one[0] for one in answer["none"]] == ["-1", "-1"] and not answer["calls"]
