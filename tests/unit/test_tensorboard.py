"""TensorBoard as a process: where it listens, and what it tells."""

from __future__ import annotations

import dataclasses
import json
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from board_group import find_group, make_spec
from sparktrain.agent.tensorboard import TensorBoard, find_port, make_chief_board, replace_host
from sparktrain.driver.boards import Board, check_address
from sparktrain.driver.plan import Plan
from sparktrain.driver.state import apply, start_attempt, start_run
from sparktrain.errors import ConfigError, LaunchError
from sparktrain.events import BOARD_FILE, CHIEF_HOST, make_command, parse_kinds
from sparktrain.wire.messages import Board as BoardMessage
from sparktrain.wire.messages import Joined


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


def test_it_is_told_again_where_a_restart_has_put_it(
    tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    plan = make_plan(board=make_spec(tmp_path, at=CHIEF_HOST))
    chief = plan.nodes[0].name
    board, told = Board(plan, "127.0.0.1"), []
    snapshot = start_run("r1", plan.nodes)
    for attempt, (host, url) in enumerate([("h", "url-1"), ("g", "url-2"), ("g", "url-2")]):
        snapshot = start_attempt(snapshot, attempt)
        for message in (Joined(host=host, pid=1), BoardMessage(url)):
            snapshot = apply(snapshot, chief, attempt, message)
            told.append(board.find_news(snapshot))
    assert told == ["", "TensorBoard on h: url-1", "", "TensorBoard on g: url-2", "", ""]


def test_on_all_addresses_its_url_has_the_machine_s_own(tmp_path: Path) -> None:
    assert make_spec(tmp_path).find_told("10.0.0.7") == "127.0.0.1"
    assert make_spec(tmp_path, host="0.0.0.0").find_told("10.0.0.7") == "10.0.0.7"
    assert make_spec(tmp_path, host="::").find_told("fd00::1") == "fd00::1"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", 0), ("6006", 6006), ("tcp://10.96.0.7:80", 0), ("-1", 0), ("70000", 0), ("x", 0)],
)
def test_a_port_of_the_environment(value: str, expected: int) -> None:
    assert find_port({"TENSORBOARD_PORT": value}) == expected
    assert find_port({}) == 0


def test_it_says_why_it_did_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        spec = make_spec(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match="TensorBoard cannot listen on"):
            check_address(spec)
        with TensorBoard(spec, "127.0.0.1") as board, pytest.raises(LaunchError, match="use"):
            board.wait()
    with pytest.raises(ConfigError, match="TensorBoard cannot listen on"):
        check_address(make_spec(tmp_path, host="192.0.2.1"))


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
