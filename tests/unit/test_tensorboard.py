"""TensorBoard beside the driver: where it listens, and that it goes with its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

import psutil
import pytest

from sparktrain.driver.tensorboard import TensorBoard, replace_host


def test_it_listens_where_it_must_and_tells_where_it_is_reached(tmp_path: Path) -> None:
    with TensorBoard(str(tmp_path), "127.0.0.2", "localhost.example") as board:
        assert board.url is not None and board.url.startswith("http://localhost.example:")
        here = replace_host(board.url, "127.0.0.2")
        with urllib.request.urlopen(here, timeout=30) as page:
            assert page.status == 200
        processes = psutil.Process(board._process.pid).children(recursive=True)
        assert processes
    psutil.wait_procs(processes, timeout=10)
    assert not any(process.is_running() for process in processes)


def test_it_ends_when_its_driver_is_killed(tmp_path: Path) -> None:
    program = """
        import os, sys, time
        from sparktrain.driver.tensorboard import TensorBoard
        with TensorBoard(sys.argv[1], "127.0.0.1", "127.0.0.1") as board:
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
        wrapper = psutil.Process(int(driver.stdout.readline()))
        processes = [wrapper, *wrapper.children(recursive=True)]
        assert any("tensorboard.main" in process.cmdline() for process in processes[1:])
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
    _, alive = psutil.wait_procs(processes, timeout=10)
    for process in alive:
        process.kill()
    assert not alive


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
