"""Watching never breaks the work: runs without a link, and runs whose link is cut."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.driver import spark_facts
from sparktrain.driver.monitor import Monitor

ALONE: dict[str, Any] = {"distribution": "none", "progress": False}


class Relay:
    """Passes bytes between nodes and the driver until it is cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port = self._listener.getsockname()[1]

    def cut(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            end.close() if end.fileno() < 0 else end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for end in self._sockets:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass, args=(one, other))
                self._threads.append(thread)
                thread.start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass


def speak(ctx: Any) -> str:
    for number in range(50):
        print(f"line {number}")
    ctx.report(epoch=1, loss=0.25)
    time.sleep(22)  # longer than it takes to find out that a run is stuck
    return "done"


speak.__module__ = "__main__"  # travels by value


def test_run_without_any_link(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The nodes are told an address where nobody listens.
    monkeypatch.setattr(
        spark_facts, "find_driver_address", lambda spark: ("127.0.0.1", "127.0.0.2")
    )
    # The nodes are up although nobody hears of it.
    result = st.run(
        speak, num_workers=2, spark=spark, run_dir=tmp_path, launch_timeout_s=5, **ALONE
    )
    assert result.value == "done" and result.metrics == [{"epoch": 1, "loss": 0.25}]
    # What could not be sent came back with the result.
    assert (tmp_path / "logs/worker-0.log").read_text().splitlines()[-1] == "line 49"


def test_failure_without_any_link(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        spark_facts, "find_driver_address", lambda spark: ("127.0.0.1", "127.0.0.2")
    )

    def train(ctx: Any) -> None:
        import time

        print("last words")
        if ctx.rank == 1:
            raise RuntimeError("only Spark can tell")
        time.sleep(600)

    with pytest.raises(st.NodeFailedError, match="only Spark can tell") as caught:
        st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, **ALONE)
    assert caught.value.node == "worker:0" and caught.value.tail == ("last words",)
    assert 'raise RuntimeError("only Spark can tell")' in caught.value.traceback


def test_link_that_is_cut(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relays: list[Relay] = []
    enter = Monitor.__enter__

    def enter_with_relay(self: Monitor) -> Monitor:
        monitor = enter(self)
        assert monitor.address is not None
        relays.append(Relay(monitor.address.port))
        monitor.address = dataclasses.replace(monitor.address, port=relays[0].port)
        return monitor

    monkeypatch.setattr(Monitor, "__enter__", enter_with_relay)

    def train(ctx: Any) -> str:
        import time
        from pathlib import Path

        print("before the cut")
        deadline = time.monotonic() + 60
        while not Path(ctx.run_dir, "cut").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        for number in range(1000):
            print(f"after the cut {number}")
        ctx.report(epoch=1, loss=0.5)
        return "done"

    def cut_when_heard() -> None:
        log = tmp_path / "logs/chief-0.log"
        while not (log.exists() and "before" in log.read_text()):
            if done.wait(0.05):
                return
        relays[0].cut()
        (tmp_path / "cut").touch()

    done = threading.Event()
    cutter = threading.Thread(target=cut_when_heard)
    cutter.start()
    try:
        result = st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, **ALONE)
    finally:
        done.set()
        cutter.join()
    assert result.value == "done" and result.metrics == [{"epoch": 1, "loss": 0.5}]
    log = (tmp_path / "logs/chief-0.log").read_text()
    assert "before the cut" in log and "after the cut 999" in log


def test_more_lines_than_the_link_can_carry_all_arrive(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        for number in range(100_000):
            print(number)

    st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, kept_log_lines=1000, **ALONE)
    for name in ("chief-0", "worker-0"):
        lines = (tmp_path / f"logs/{name}.log").read_text().splitlines()
        assert lines == [str(number) for number in range(100_000)]


def test_connection_that_an_earlier_task_left_open(spark: Any, tmp_path: Path) -> None:
    """Python workers are used again: what is open in them need not be Spark's."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def leave_open(batches: Any) -> Any:
        import builtins
        import socket

        builtins.left_open = socket.create_connection(("127.0.0.1", port))  # type: ignore
        yield from batches

    accepted: list[socket.socket] = []
    acceptor = threading.Thread(target=lambda: accepted.extend(listener.accept()[0] for _ in "ab"))
    acceptor.start()
    spark.range(0, 2, 1, 2).mapInArrow(leave_open, "id long", barrier=True).collect()
    acceptor.join()
    closer = threading.Timer(3.0, lambda: [end.close() for end in accepted])
    closer.start()
    try:
        result = st.run(
            lambda ctx: time.sleep(5), num_workers=2, spark=spark, run_dir=tmp_path, **ALONE
        )
        assert [node.exit for node in result.nodes] == [0, 0]
    finally:
        closer.join()
        listener.close()


@pytest.mark.slow
def test_time_out_without_any_link(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Spark can end the agents, and only the kernel these trainers."""
    monkeypatch.setattr(
        spark_facts, "find_driver_address", lambda spark: ("127.0.0.1", "127.0.0.2")
    )

    def train(ctx: Any) -> None:
        import re
        from pathlib import Path

        Path(ctx.run_dir, f"up-{ctx.rank}").touch()
        re.match(r"(a+)+$", "a" * 64 + "b")  # holds the interpreter, for ever

    with pytest.raises(st.RunTimeoutError, match="timeout_s=20"):
        st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, timeout_s=20, **ALONE)
    assert (tmp_path / "up-0").exists() and (tmp_path / "up-1").exists()
