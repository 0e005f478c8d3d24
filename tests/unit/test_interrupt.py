"""Ctrl-C while a run is on: Spark's handler waits, a handler of the user's does not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparktrain.driver.interrupt import holding_back_spark


def of_spark(number: int, frame: Any) -> None:
    raise AssertionError("Spark's handler must not act")


of_spark.__module__ = "pyspark.core.context"


def of_the_user(number: int, frame: Any) -> None:
    return


@pytest.fixture(autouse=True)
def before() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def test_handler_of_spark_comes_back_after_the_run() -> None:
    signal.signal(signal.SIGINT, of_spark)
    with pytest.raises(KeyboardInterrupt), holding_back_spark():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is of_spark


def test_handler_of_the_user_stays() -> None:
    signal.signal(signal.SIGINT, of_the_user)
    with holding_back_spark():
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is of_the_user


def test_run_in_another_thread_changes_no_handler() -> None:
    def look() -> Any:
        with holding_back_spark():
            return signal.getsignal(signal.SIGINT)

    signal.signal(signal.SIGINT, of_spark)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(look).result() is of_spark
