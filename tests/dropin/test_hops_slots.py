"""Executors of hops' sessions that come one after the other."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hops import parallel
from hops import util as hops_util
from hops.parallel import work_all
from test_hops_gpus import run_session


class FreshSession:
    """Executors that register some time after the session is there."""

    def __init__(self, *moments: float) -> None:
        self._began = time.monotonic()
        self._moments = moments
        self.conf = {"spark.master": "spark://host:7077", "spark.sparktrain.slotWaitS": "1.5"}
        self.sparkContext = self
        self.applicationId = f"app-{id(self)}"

    def count(self, spark: Any) -> int:
        assert spark is self
        return sum(time.monotonic() - self._began >= moment for moment in self._moments)


@pytest.mark.parametrize("moments", [(0.6, 0.9, 1.5), (0.0, 0.3, 0.6, 0.9), (0.0,)])
def test_all_executors_are_waited_for(
    moments: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = FreshSession(*moments)
    monkeypatch.setattr(hops_util, "QUIET_S", 1.0)
    monkeypatch.setattr(hops_util, "count_registered", spark.count)
    assert hops_util.num_executors(spark) == len(moments)
    started = time.monotonic()
    assert hops_util.num_executors(spark) == len(moments)
    assert time.monotonic() - started < 0.5  # it is known


def test_executors_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = FreshSession()
    monkeypatch.setattr(hops_util, "count_registered", spark.count)
    with pytest.raises(ValueError, match="none is there yet"):
        hops_util.num_executors(spark)


def test_more_work_at_a_time_when_there_are_more_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LOOK_S", 0.1)
    lock, now, most, slots = threading.Lock(), 0, 0, 1

    def work(item: int) -> int:
        nonlocal now, most, slots
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.3)
        with lock:
            slots = 3
            now -= 1
        return item

    assert work_all(work, range(7), lambda: slots) == list(range(7))
    assert most == 3


def test_an_error_of_the_limit_ends_the_work() -> None:
    def fail() -> int:
        raise OSError("no session any more")

    with pytest.raises(OSError, match="no session any more"):
        work_all(lambda item: item, [1, 2], fail)


@pytest.mark.slow
def test_a_session_that_does_not_know_its_executors(tmp_path: Path) -> None:
    answer, _ = run_session("late", tmp_path)
    assert answer["late"]["metric"] == 1  # both trials at a time
    outputs = answer["first moment"]
    assert (outputs["nodes"], outputs["executors"]) == (2, 2)
