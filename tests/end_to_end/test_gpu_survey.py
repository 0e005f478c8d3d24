"""The GPUs of all executors are known when all of them have answered, and not before."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver import spark_facts
from sparktrain.driver.gpu_plan import GpuPlan, check_gpus
from sparktrain.driver.gpu_survey import ask_hosts
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish


def test_executors_that_are_busy(spark: Any, tmp_path: Path) -> None:
    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        (tmp_path / "held").touch()
        while not (tmp_path / "done").exists():
            time.sleep(0.05)
        yield from batches

    slots = spark_facts.count_slots(spark)
    assert slots == spark_facts.count_executors(spark) == 2  # one slot each

    def ask(wait_s: float) -> Any:
        return ask_hosts(spark, 2, wait_s, "")

    def check() -> None:
        """Five nodes with GPUs, of which this host has not as many."""
        check_gpus(spark, GpuPlan(DeviceWish(per_worker=99)), 2, 2, 0.0)

    assert ask(20.0).is_complete
    with pytest.raises(DeviceError, match="do not fit"):
        check()
    frame = spark.range(0, 1, 1, 1).mapInArrow(hold, "id long")
    other = threading.Thread(target=frame.collect)
    other.start()
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "held").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        survey = ask(0.0)
        assert len(survey.hosts) == 1 and not survey.is_complete
        check()  # the other one may have them
        timer = threading.Timer(1.0, (tmp_path / "done").touch)
        timer.start()
        assert ask(60.0).is_complete and not timer.is_alive()
    finally:
        (tmp_path / "done").touch()
        other.join()
