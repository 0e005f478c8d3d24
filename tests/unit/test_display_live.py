"""The live display: a row for each node, and the lines they print above it."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from sparktrain.driver import state
from sparktrain.driver.display import LiveDisplay, Shown
from sparktrain.driver.plan import Plan
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Bye, Joined, Progress, Returned

CHIEF, WORKER = "chief:0", "worker:0"
TRAINING = Progress(
    epoch=2,
    epochs=5,
    step=30,
    steps=100,
    metrics={"loss": 0.12344, "accuracy": 0.98761},
    examples_per_s=12345.6,
)


Show = Callable[..., list[str]]


def make_console(file: io.StringIO, width: int = 120) -> Console:
    return Console(file=file, force_terminal=True, width=width, highlight=False, soft_wrap=True)


def read(file: io.StringIO) -> list[str]:
    """The text lines on the screen, without colours and cursor moves."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    return [line.strip() for line in re.split(r"[\r\n]+", text)]


@pytest.fixture
def show(plan: Plan) -> Show:
    """Gives the lines on the screen after a run."""

    def show(
        *told: tuple[str, Message], lines: tuple[Shown, ...] = (), width: int = 120
    ) -> list[str]:
        file = io.StringIO()
        snapshot = state.start_run(plan.run_id, plan.nodes)
        with LiveDisplay(plan, make_console(file, width)) as display:
            for node, message in told:
                snapshot = state.apply(snapshot, node, 0, message)
            display.update(snapshot, list(lines))
            display.finish(snapshot, 0)
        return read(file)

    return show


def find_row(lines: list[str], node: str) -> list[str]:
    """The cells of the last row drawn for a node."""
    return re.split(r"\s{2,}", [line for line in lines if line.startswith(f"{node}  ")][-1])


def test_there_is_a_row_for_each_node(show: Show) -> None:
    lines = show(
        (CHIEF, Joined(host="host-1", pid=1)),
        (CHIEF, TRAINING),
        (WORKER, Joined(host="host-2", pid=1)),
        (WORKER, Returned()),
    )
    assert find_row(lines, CHIEF) == [
        CHIEF,
        "host-1",
        "running",
        "2/5",
        "30/100",
        "0.1234",
        "12,346 examples/s",
        "accuracy 0.9876",
    ]
    assert find_row(lines, WORKER) == [WORKER, "host-2", "returned"]


def test_rows_are_drawn_while_the_run_goes_on(plan: Plan) -> None:
    file = io.StringIO()
    snapshot = state.start_run(plan.run_id, plan.nodes)
    with LiveDisplay(plan, make_console(file)) as display:
        for message in (Joined(host="host-1", pid=1), TRAINING):
            snapshot = state.apply(snapshot, CHIEF, 0, message)
            display.update(snapshot, [])
        deadline = time.monotonic() + 5  # rich draws a few times a second
        while not any("30/100" in line for line in read(file)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert find_row(read(file), CHIEF)[:5] == [CHIEF, "host-1", "running", "2/5", "30/100"]


def test_the_last_rows_are_those_of_the_end(plan: Plan) -> None:
    file = io.StringIO()
    running = state.apply(state.start_run("r1", plan.nodes), CHIEF, 0, Joined(host="h", pid=1))
    with LiveDisplay(plan, make_console(file)) as display:
        display.update(running, [])
        display.finish(state.apply(running, CHIEF, 0, Bye()), 0)
    assert find_row(read(file), CHIEF) == [CHIEF, "h", "done"]


def test_a_node_that_waits_and_unknown_totals_leave_cells_empty(show: Show) -> None:
    lines = show((WORKER, Progress(epoch=1, step=7, steps_per_s=2.26)))
    assert find_row(lines, CHIEF) == [CHIEF, "waiting"]
    assert find_row(lines, WORKER) == [WORKER, "waiting", "1", "7", "2.3 steps/s"]


def test_lines_carry_the_name_of_their_node(show: Show) -> None:
    lines = show(lines=((CHIEF, "hello"), (WORKER, "[red]hello[/red]")))
    assert "chief:0 hello" in lines
    assert "worker:0 [red]hello[/red]" in lines


def test_epochs_are_in_the_rows_and_not_in_the_lines_above(show: Show) -> None:
    ended = Progress(epoch=2, epochs=5, metrics={"loss": 0.5}, ended=True)
    lines = show((CHIEF, ended), lines=((CHIEF, "before"), (CHIEF, ended), (CHIEF, "behind")))
    assert find_row(lines, CHIEF) == [CHIEF, "waiting", "2/5", "0.5000"]
    assert [line for line in lines if line.startswith(f"{CHIEF} ") and "  " not in line] == [
        "chief:0 before",
        "chief:0 behind",
    ]
    assert not any("epoch 2" in line for line in lines)


def test_the_run_is_named_at_its_begin_and_end(show: Show) -> None:
    lines = show()
    assert "sparktrain run r1: train on chief:0, worker:0" in lines
    last = [line for line in lines if line][-1]
    assert re.match(r"sparktrain run r1 done in \d+\.\d s", last)


def test_on_a_narrow_terminal_the_other_metrics_give_way_first(show: Show) -> None:
    metrics = {"loss": 0.5, "accuracy": 0.9, "val_loss": 0.6, "val_accuracy": 0.8}
    told = Progress(epoch=1, epochs=2, step=3, steps=4, metrics=metrics, examples_per_s=100.0)
    lines = show((CHIEF, Joined(host="host-1", pid=1)), (CHIEF, told), width=80)
    begin = max(at for at, line in enumerate(lines) if "100 exam" in line)
    assert re.split(r"\s{2,}", lines[begin])[:7] == [
        CHIEF,
        "host-1",
        "running",
        "1/2",
        "3/4",
        "0.5000",
        "100 examples/s",
    ]
    end = next(at for at, line in enumerate(lines) if at > begin and line.startswith(WORKER))
    wrapped = " ".join([lines[begin].split("examples/s")[1], *lines[begin + 1 : end]])
    assert wrapped.split() == ["accuracy", "0.9", "val_loss", "0.6", "val_accuracy", "0.8"]


def test_the_display_leaves_no_thread_and_gives_the_streams_back(show: Show) -> None:
    before, streams = threading.enumerate(), (sys.stdout, sys.stderr)
    show()
    assert (sys.stdout, sys.stderr) == streams
    for thread in set(threading.enumerate()) - set(before):  # rich's: told to end, not waited for
        thread.join(2)
        assert not thread.is_alive()


@pytest.mark.parametrize("name", ["f1[macro]", "f1[/macro]"])
def test_metric_names_are_shown_as_they_are(name: str, show: Show) -> None:
    lines = show((CHIEF, Progress(epoch=1, metrics={name: 0.5})))
    assert f"{name} 0.5" in find_row(lines, CHIEF)


def test_standard_output_stays_the_users(plan: Plan) -> None:
    before = sys.stdout
    with LiveDisplay(plan, make_console(io.StringIO())):
        during = sys.stdout
    assert during is before
