"""TensorBoard as a process: where it listens, what it shows, and how it ends."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparktrain.agent.tensorboard import TensorBoard, find_port, make_chief_board, replace_host
from sparktrain.cli.board import end_board
from sparktrain.driver.boards import Board, check_address, is_at
from sparktrain.driver.plan import Plan
from sparktrain.driver.state import apply, start_run
from sparktrain.errors import ConfigError, LaunchError
from sparktrain.events import BOARD_FILE, CHIEF_HOST, BoardSpec, make_command, parse_kinds
from sparktrain.trainer.events import EventCopies, describe_epoch
from sparktrain.wire.messages import Joined


def make_spec(folder: Path, **changes: Any) -> BoardSpec:
    return BoardSpec(**{"log_dir": str(folder), "file": str(folder / BOARD_FILE), **changes})


def find_group(board: TensorBoard) -> list[psutil.Process]:
    """All processes of a board: they are in one group."""
    group = board._process.pid
    return [one for one in psutil.process_iter() if _find_group(one) == group]


def _find_group(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return 0


def test_it_listens_where_it_must_and_tells_where_it_is_reached(tmp_path: Path) -> None:
    with TensorBoard(make_spec(tmp_path, host="127.0.0.2"), "10.0.0.7") as board:
        url = board.wait()
        assert url.startswith("http://127.0.0.2:")
        with urllib.request.urlopen(url, timeout=30) as page:
            assert page.status == 200
        # Nowhere else: this is what "bound only as asked" means.
        with pytest.raises(OSError):
            urllib.request.urlopen(replace_host(url, "127.0.0.1"), timeout=30)
        assert json.loads((tmp_path / BOARD_FILE).read_text())["url"] == url
        processes = find_group(board)
        assert any("--logdir" in process.cmdline() for process in processes)
    psutil.wait_procs(processes, timeout=10)
    assert not any(process.is_running() for process in processes)
    assert not (tmp_path / BOARD_FILE).exists()


def test_beside_the_chief_it_has_the_keys_of_the_run_and_tells_nobody(
    tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    board_spec = make_spec(tmp_path, at=CHIEF_HOST)
    spec = make_plan(env={"STORE_SECRET": "hush-7f3a"}, board=board_spec).make_spec(0)
    told: list[tuple[str, str]] = []
    here = make_chief_board(spec, True, "127.0.0.1", lambda *said: told.append(said))
    with here as board:
        assert board is not None and board.wait()
        # The guard, and TensorBoard itself.
        found = [(one.environ(), one.cmdline()) for one in find_group(board)]
        assert len(found) >= 2
        assert {env.get("STORE_SECRET") for env, _ in found} == {"hush-7f3a"}
        assert "hush" not in str([command for _, command in found])
        assert told == [(board.url, "")] and "hush" not in str(told)
        assert "hush" not in (tmp_path / BOARD_FILE).read_text()
    for other, is_first in ((spec, False), (dataclasses.replace(spec, board=None), True)):
        with make_chief_board(other, is_first, "127.0.0.1", lambda *said: None) as none:
            assert none is None


def test_its_host_is_told_once_that_is_known(
    tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    plan = make_plan(board=make_spec(tmp_path, at=CHIEF_HOST))
    board = Board(plan, "127.0.0.1")
    early = dataclasses.replace(start_run("r1", plan.nodes), board=("url", ""))
    assert board.find_news(early) == ""
    chief = plan.nodes[0].name
    met = apply(early, chief, 0, Joined(host="h", pid=1))
    assert [board.find_news(met), board.find_news(met)] == ["TensorBoard on h: url", ""]


def test_on_all_addresses_its_url_has_the_machine_s_own(tmp_path: Path) -> None:
    assert make_spec(tmp_path).find_told("10.0.0.7") == "127.0.0.1"
    assert make_spec(tmp_path, host="0.0.0.0").find_told("10.0.0.7") == "10.0.0.7"
    assert make_spec(tmp_path, host="::").find_told("fd00::1") == "fd00::1"


def test_one_that_stays_ends_when_its_file_is_removed(tmp_path: Path) -> None:
    with TensorBoard(make_spec(tmp_path, is_kept=True), "127.0.0.1") as board:
        url = board.wait()
    processes = find_group(board)
    try:
        assert len(processes) >= 2
        with urllib.request.urlopen(url, timeout=30) as page:
            assert page.status == 200
        assert url in end_board(str(tmp_path))
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert not alive
    finally:
        for process in processes:
            if process.is_running():
                process.kill()
    with pytest.raises(ConfigError, match="whose TensorBoard was kept"):
        end_board(str(tmp_path))


def test_one_that_stays_is_replaced_by_the_next_one_on_its_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    spec = make_spec(tmp_path, is_kept=True, port=port)
    with TensorBoard(spec, "127.0.0.1") as board:
        url = board.wait()
    earlier = find_group(board)
    assert is_at(spec, port) and not is_at(spec, port + 1)
    with TensorBoard(make_spec(tmp_path, port=port), "127.0.0.1") as following:
        assert following.wait() == url
        assert not psutil.wait_procs(earlier, timeout=10)[1]
    assert not is_at(spec, port)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", 0), ("6006", 6006), ("tcp://10.96.0.7:80", 0), ("-1", 0), ("70000", 0), ("x", 0)],
)
def test_a_port_of_the_environment(value: str, expected: int) -> None:
    assert find_port({"TENSORBOARD_PORT": value}) == expected
    assert find_port({}) == 0


def test_one_that_shall_stay_ends_with_a_run_that_fails_before_it_listens(tmp_path: Path) -> None:
    board = TensorBoard(make_spec(tmp_path, is_kept=True), "127.0.0.1")
    with pytest.raises(ZeroDivisionError), board:
        raise ZeroDivisionError
    deadline = time.monotonic() + 10
    while find_group(board) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not find_group(board)


def test_it_says_why_it_did_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        spec = make_spec(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match="TensorBoard cannot listen on"):
            check_address(spec)
        with TensorBoard(spec, "127.0.0.1") as board, pytest.raises(LaunchError, match="use"):
            board.wait()
    with pytest.raises(ConfigError, match="TensorBoard cannot listen on"):
        check_address(make_spec(tmp_path, host="192.0.2.1"))


def test_it_ends_when_its_driver_is_killed(tmp_path: Path) -> None:
    program = """
        import sys, time
        from sparktrain.agent.tensorboard import TensorBoard
        from sparktrain.events import BoardSpec
        with TensorBoard(BoardSpec(sys.argv[1], sys.argv[1] + "/file"), "127.0.0.1") as board:
            board.wait()
            print(board._process.pid, flush=True)
            time.sleep(600)
    """
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert driver.stdout is not None
        guard = psutil.Process(int(driver.stdout.readline()))
        processes = [guard, *guard.children(recursive=True)]
        assert any("--logdir" in process.cmdline() for process in processes[1:])
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
    _, alive = psutil.wait_procs(processes, timeout=10)
    for process in alive:
        process.kill()
    assert not alive
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    ("url", "host", "expected"),
    [
        ("http://0.0.0.0:6006/", "10.0.0.7", "http://10.0.0.7:6006/"),
        ("http://[::]:6006/a/", "fd00::1", "http://[fd00::1]:6006/a/"),
        ("http://h/", "g", "http://g/"),
    ],
)
def test_an_url_at_another_address(url: str, host: str, expected: str) -> None:
    assert replace_host(url, host) == expected


def test_kinds_of_events() -> None:
    assert parse_kinds("x", "") == parse_kinds("x", None) == parse_kinds("x", "scalars") == ()
    assert parse_kinds("x", "graph, profile,graph") == ("graph", "profile")
    assert parse_kinds("x", ["histograms"]) == ("histograms",)
    for wrong in ("weights", ["graph", "images"], 3, [1]):
        with pytest.raises(ConfigError, match="Expected some of graph, histograms, profile"):
            parse_kinds("x", wrong)


def test_the_command_quotes_paths_and_knows_stores() -> None:
    assert make_command("/runs/a b") == "tensorboard --logdir '/runs/a b'"
    assert make_command("s3://bucket/x") == "sparktrain tensorboard s3://bucket/x"


def test_figures_of_an_epoch_are_of_that_epoch() -> None:
    before = {"rows": 100, "bytes": 1000, "train_s": 5.0, "wait_s": 1.0}
    now = {"rows": 300, "bytes": 2_001_000, "train_s": 9.0, "wait_s": 2.0}
    assert describe_epoch(before, now, 0, 3) == {
        "rows": 200.0,
        "rows_per_s": 50.0,
        "mb_per_s": 0.5,
        "wait_share": 0.25,
        "queue": 3.0,
    }
    # What was read, but not trained on, is left out.
    trained = describe_epoch(before, now, 100, 3)
    assert (trained["rows"], trained["rows_per_s"], trained["mb_per_s"]) == (100, 25, 0.25)
    assert describe_epoch(now, now, 0, 3) == {}


class Node:
    def __init__(self, folder: Path, role: str) -> None:
        self.log_dir, self.role, self.index = str(folder), role, 0
        self.is_chief = role == "chief"


def test_each_node_copies_its_own_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, store = tmp_path / "logs", tmp_path / "store"
    for name in ("train/a", "feed/chief-0/b", "feed/worker-0/c"):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text(name)

    def find() -> list[str]:
        files = [path for path in store.rglob("*") if path.is_file()]
        return sorted(path.relative_to(store).as_posix() for path in files)

    worker = EventCopies(Node(logs, "worker"), f"file://{store}")  # type: ignore[arg-type]
    worker.copy()
    assert find() == ["feed/worker-0/c"]
    chief = EventCopies(Node(logs, "chief"), f"file://{store}")  # type: ignore[arg-type]
    chief.copy()
    assert find() == ["feed/chief-0/b", "feed/worker-0/c", "train/a"]
    (logs / "train/a").write_text("more of it")
    chief.copy()
    assert (store / "train/a").read_text() == "more of it"
    broken = EventCopies(Node(logs, "chief"), "nothing://x")  # type: ignore[arg-type]
    broken.copy()
    broken.copy()
    assert capsys.readouterr().out.count("events are not copied to nothing://x") == 1
