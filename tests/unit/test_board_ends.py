"""TensorBoard as a process: how it ends, and what is left of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from board_group import find_group, make_spec
from sparktrain.agent.tensorboard import TensorBoard
from sparktrain.cli.board import end_board
from sparktrain.driver.boards import add_board, is_at
from sparktrain.driver.plan import Plan
from sparktrain.errors import ConfigError, LaunchError
from sparktrain.events import BOARD_FILE
from sparktrain.settings import Settings


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


def test_one_that_shall_stay_ends_with_a_run_that_fails_before_it_listens(tmp_path: Path) -> None:
    board = TensorBoard(make_spec(tmp_path, is_kept=True), "127.0.0.1")
    with pytest.raises(ZeroDivisionError), board:
        raise ZeroDivisionError
    deadline = time.monotonic() + 10
    while find_group(board) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not find_group(board)


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("is_kept", [True, False])
def test_it_ends_with_its_guard(
    tmp_path: Path, number: signal.Signals, is_kept: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with TensorBoard(make_spec(tmp_path, is_kept=is_kept), "127.0.0.1") as board:
        url = board.wait()
        processes = find_group(board)
        told = json.loads((tmp_path / BOARD_FILE).read_text())
        os.kill(told["pid"], number)
        try:
            # The guard is this process' child if the board goes with the run.
            gone = [one for one in processes if one.pid != told["pid"]]
            assert gone and not psutil.wait_procs(gone, timeout=10)[1]
        finally:
            for process in processes:
                if process.is_running():
                    process.kill()
        assert (tmp_path / BOARD_FILE).exists() == (number == signal.SIGKILL)
        if number == signal.SIGKILL:
            assert not is_at(make_spec(tmp_path), urlsplit(url).port or 0)
            assert f"nothing answered at {url}" in end_board(str(tmp_path))
    assert not (tmp_path / BOARD_FILE).exists()


def test_it_says_that_it_ended_only_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktrain.cli.board.END_TIMEOUT_S", 0.5)
    with TensorBoard(make_spec(tmp_path), "127.0.0.1") as board:
        url = board.wait()
        (other := tmp_path / "other").mkdir()
        # A file that nobody watches.
        (other / BOARD_FILE).write_text(json.dumps({"url": url, "pid": 7, "group": 7}))
        with pytest.raises(LaunchError, match=f"{url} still answers") as caught:
            end_board(str(other))
        assert "kill -KILL -- -7" in str(caught.value)
    (other / BOARD_FILE).write_text("[]")
    assert "did not tell" in end_board(str(other))


def test_one_that_shall_stay_leaves_no_file_if_its_run_fails_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written its file, and nobody has read yet what it said."""
    is_killed, kill = threading.Event(), os.killpg

    class Late(TensorBoard):
        def _read(self) -> None:
            is_killed.wait(30)
            super()._read()

    def kill_then_read(group: int, number: int) -> None:
        kill(group, number)
        is_killed.set()

    monkeypatch.setattr(os, "killpg", kill_then_read)
    with pytest.raises(ZeroDivisionError), Late(make_spec(tmp_path, is_kept=True), "127.0.0.1"):
        deadline = time.monotonic() + 60
        while not (tmp_path / BOARD_FILE).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        raise ZeroDivisionError
    assert not list(tmp_path.glob(f"{BOARD_FILE}*"))


def test_a_file_that_was_left_takes_no_port(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    """The port is looked at, and refused before any job, as if there were no such file."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = make_plan(run_dir=tmp_path, settings=Settings(tensorboard_port=port))
        told = {"url": f"http://127.0.0.1:{port}/", "pid": 7, "group": 7}
        (tmp_path / BOARD_FILE).write_text(json.dumps(told))
        taken.settimeout(30)
        closing = threading.Thread(target=lambda: taken.accept()[0].close())  # no TensorBoard
        closing.start()
        with pytest.raises(ConfigError, match="TensorBoard cannot listen on"):
            add_board(plan, True, "run")
        closing.join()
