"""What the driver makes of the messages: lines and ends of epochs to show, files, snapshots."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktrain.driver.display import Shown
from sparktrain.driver.monitor import Monitor
from sparktrain.driver.plan import Plan
from sparktrain.driver.record import RunRecord
from sparktrain.settings import Settings
from sparktrain.wire.client import ControlClient
from sparktrain.wire.message import Message
from sparktrain.wire.messages import End, Hello, Joined, Progress, Report, Stop

CHIEF, WORKER = "chief:0", "worker:0"


@pytest.fixture
def monitor(make_plan: Callable[..., Plan], tmp_path: Path) -> Iterator[Monitor]:
    plan = make_plan(tmp_path)
    with RunRecord(plan) as record, Monitor(plan, record, "127.0.0.1", "127.0.0.1") as monitor:
        yield monitor


def connect(
    monitor: Monitor, node: str, on_command: Callable[[Message], None] = lambda message: None
) -> ControlClient:
    assert monitor.address is not None
    hello = Hello(node, "r1", monitor.snapshot.attempt, monitor.address.token)
    return ControlClient(monitor.address, hello, on_command, 1000)


def wait_until(is_so: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def take(monitor: Monitor, count: int) -> list[Shown]:
    taken: list[Shown] = []

    def are_there() -> bool:
        taken.extend(monitor.take_lines())
        return len(taken) >= count

    wait_until(are_there)
    return taken


def test_lines_and_ends_of_epochs_are_taken_once_and_in_order(monitor: Monitor) -> None:
    ends = [Progress(epoch=n, epochs=3, metrics={"loss": 1.0 / n}, ended=True) for n in (1, 2, 3)]
    with connect(monitor, CHIEF) as chief, connect(monitor, WORKER) as worker:
        worker.log("of the worker")
        for number, ended in enumerate(ends):
            chief.log(f"line {number}")
            chief.send(Progress(epoch=number + 1, epochs=3, step=1))
            chief.send(ended)
        shown = take(monitor, 7)
    assert (WORKER, "of the worker") in shown
    of_chief = [what for name, what in shown if name == CHIEF]
    assert [what for what in of_chief if isinstance(what, str)] == ["line 0", "line 1", "line 2"]
    assert [what for what in of_chief if not isinstance(what, str)] == ends
    assert monitor.take_lines() == []
    assert monitor.snapshot.nodes[CHIEF].progress == ends[-1]


def test_lines_and_metrics_are_in_the_record_too(monitor: Monitor, tmp_path: Path) -> None:
    with connect(monitor, CHIEF) as chief:
        chief.log("a line")
        chief.send(Report(metrics={"epoch": 1, "loss": 0.5}))
        wait_until(lambda: len(monitor.snapshot.metrics) == 1)
    wait_until(lambda: monitor.take_lines() == [(CHIEF, "a line")])
    assert (tmp_path / "logs" / "chief-0.log").read_text() == "a line\n"
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"epoch": 1, "loss": 0.5}


def test_lines_that_came_with_a_result_are_shown_with_the_number_of_those_missing(
    monitor: Monitor,
) -> None:
    monitor.add_lines(WORKER, ["last"], dropped=3)
    (node, note), last = monitor.take_lines()
    assert node == WORKER
    assert isinstance(note, str)
    assert "3 lines are missing here" in note
    assert last == (WORKER, "last")


def test_commands_reach_the_nodes_of_this_attempt(monitor: Monitor) -> None:
    heard: list[Message] = []
    with connect(monitor, CHIEF, heard.append):
        wait_until(lambda: monitor.num_links() == 1)
        monitor.ask_to_stop()
        monitor.end_nodes("another node failed", may_restart=False)
        wait_until(lambda: len(heard) == 2)
        assert heard == [Stop(), End(reason="another node failed")]
        monitor.start_attempt(1)
        assert monitor.num_links() == 0


def test_a_node_that_is_lost_and_comes_back_is_not_lost(monitor: Monitor) -> None:
    with connect(monitor, WORKER) as worker:
        worker.send(Joined(host="h", pid=1))
        wait_until(lambda: monitor.snapshot.num_joined == 1)
    wait_until(lambda: monitor.snapshot.lost == (WORKER,))
    with connect(monitor, WORKER) as worker:
        worker.send(Progress(epoch=1))
        wait_until(lambda: monitor.snapshot.lost == ())


def test_a_port_that_is_taken_is_a_warning_with_what_to_set_and_the_run_goes_on(
    make_plan: Callable[..., Plan], tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        plan = make_plan(tmp_path, Settings(control_port=other.getsockname()[1]))
        monitor = Monitor(plan, RunRecord(plan), "127.0.0.1", "127.0.0.1")
        with pytest.warns(UserWarning, match="cannot listen on 127.0.0.1") as caught, monitor:
            assert monitor.address is None
            assert monitor.num_links() == 0
            monitor.ask_to_stop()
            monitor.end_nodes("nobody hears it", may_restart=False)
    assert f":{plan.settings.control_port} " in str(caught[0].message)
    assert "spark.sparktrain.controlPort" in str(caught[0].message)
