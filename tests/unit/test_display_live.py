"""The live display: a row for each node, and the lines they print above it."""

from __future__ import annotations

import io
import re
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from sparktrain.driver import state
from sparktrain.driver.display import LiveDisplay
from sparktrain.driver.plan import Plan
from sparktrain.settings import Settings
from sparktrain.spec import make_nodes
from sparktrain.wire.messages import Joined, Message, Progress, Returned

CHIEF, WORKER = "chief:0", "worker:0"
NODES = make_nodes(2)
PLAN = Plan(
    run_id="r1",
    run_dir=Path("/runs/r1"),
    nodes=NODES,
    num_workers=2,
    function_name="train",
    function=b"",
    env={},
    max_restarts=0,
    timeout_s=None,
    settings=Settings(),
)
TRAINING = Progress(
    epoch=2,
    epochs=5,
    step=30,
    steps=100,
    metrics={"loss": 0.12344, "accuracy": 0.98761},
    examples_per_s=12345.6,
)


def show(
    *told: tuple[str, Message], lines: tuple[tuple[str, str], ...] = (), terminal: bool = True
) -> list[str]:
    """The text lines on the screen after a run, without colours and cursor moves."""
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=terminal, width=120, highlight=False, soft_wrap=True
    )
    snapshot = state.start_run("r1", NODES)
    with LiveDisplay(PLAN, console) as display:
        for node, message in told:
            snapshot = state.apply(snapshot, node, 0, message)
        display.update(snapshot, list(lines))
        display.finish(snapshot, 0)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    return [line.strip() for line in re.split(r"[\r\n]+", text)]


def find_row(lines: list[str], node: str) -> list[str]:
    """The cells of the last row drawn for a node."""
    return re.split(r"\s{2,}", [line for line in lines if line.startswith(f"{node}  ")][-1])


@pytest.mark.parametrize("terminal", [True, False])
def test_there_is_a_row_for_each_node(terminal: bool) -> None:
    lines = show(
        (CHIEF, Joined(host="host-1", pid=1)),
        (CHIEF, TRAINING),
        (WORKER, Joined(host="host-2", pid=1)),
        (WORKER, Returned()),
        terminal=terminal,
    )
    assert find_row(lines, CHIEF) == [
        CHIEF,
        "host-1",
        "running",
        "2/5",
        "30/100",
        "0.1234",
        "accuracy 0.9876",
        "12,346 examples/s",
    ]
    assert find_row(lines, WORKER) == [WORKER, "host-2", "returned"]


def test_a_node_that_waits_and_unknown_totals_leave_cells_empty() -> None:
    lines = show((WORKER, Progress(epoch=1, step=7, steps_per_s=2.26)))
    assert find_row(lines, CHIEF) == [CHIEF, "waiting"]
    assert find_row(lines, WORKER) == [WORKER, "waiting", "1", "7", "2.3 steps/s"]


def test_lines_carry_the_name_of_their_node() -> None:
    lines = show(lines=((CHIEF, "hello"), (WORKER, "[red]hello[/red]")))
    assert "chief:0 hello" in lines
    assert "worker:0 [red]hello[/red]" in lines


def test_the_run_is_named_at_its_begin_and_end() -> None:
    lines = show()
    assert "sparktrain run r1: train on chief:0, worker:0" in lines
    assert any(line.startswith("sparktrain run r1 done in 0.") for line in lines)


def test_the_display_leaves_no_thread_and_gives_the_streams_back() -> None:
    before, streams = threading.enumerate(), (sys.stdout, sys.stderr)
    show()
    assert (sys.stdout, sys.stderr) == streams
    for thread in set(threading.enumerate()) - set(before):  # rich's: told to end, not waited for
        thread.join(2)
        assert not thread.is_alive()


@pytest.mark.parametrize("name", ["f1[macro]", "f1[/macro]"])
@pytest.mark.xfail(strict=True, reason="LiveDisplay._cells gives metric names to rich as markup")
def test_metric_names_are_shown_as_they_are(name: str) -> None:
    lines = show((CHIEF, Progress(epoch=1, metrics={name: 0.5})))
    assert f"{name} 0.5" in find_row(lines, CHIEF)


@pytest.mark.xfail(strict=True, reason="rich's Live takes over sys.stdout unless told not to")
def test_standard_output_stays_the_users() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    before = sys.stdout
    with LiveDisplay(PLAN, console):
        during = sys.stdout
    assert during is before
