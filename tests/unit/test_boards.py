"""What run(tensorboard=...) may be: a folder or a URL, and no URL with a secret."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain import KerasClassifier
from sparktrain.cli.board import run_board
from sparktrain.driver.boards import add_board, find_command
from sparktrain.driver.plan import Plan
from sparktrain.errors import ConfigError
from sparktrain.events import check_url
from sparktrain.settings import Settings

SECRET = "hu/sh-7f3a"


def test_a_path_of_pathlib_is_a_path(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    plan = add_board(make_plan(run_dir=tmp_path), tmp_path / "events", "run")
    assert plan.board is not None and plan.board.log_dir == f"{tmp_path}/events"
    assert find_command(plan) == f"tensorboard --logdir {tmp_path}/events"
    estimator = KerasClassifier(tensorboard=tmp_path / "events")
    assert estimator.getTensorboard() == f"{tmp_path}/events"
    for wrong in ("", 3):
        with pytest.raises(ConfigError, match="the path of the folder"):
            add_board(plan, wrong, "run")


@pytest.mark.parametrize("user", ["AKIA", ""])
def test_a_password_in_a_url_is_refused_and_not_told(
    make_plan: Callable[..., Plan], user: str
) -> None:
    url = f"s3://{user}:{SECRET}@bucket/events"
    calls: list[tuple[str, Callable[[], object]]] = [
        (
            "events_dir",
            lambda: add_board(make_plan(settings=Settings(events_dir=url)), None, "run"),
        ),
        ("tensorboard of run", lambda: add_board(make_plan(), url, "run")),
        ("The path", lambda: run_board(url, "127.0.0.1", 0)),
    ]
    for what, call in calls:
        with pytest.raises(ConfigError, match=what) as caught:
            call()
        assert SECRET not in str(caught.value) and "AWS_SECRET_ACCESS_KEY" in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a:b@c",
        "hdfs://me@namenode:8020/x@y",
        "hdfs://namenode:8020/x@y",
        "hdfs://one:8020,two:8020/x@y",
        "sftp://[fd00::1]:22/x@y",
        "abfs://container@account.dfs.core.windows.net/x",
        "/runs/a:b@c",
        "file:///runs/a:b@c",
    ],
)
def test_users_and_ports_are_no_passwords(url: str) -> None:
    check_url("x", url)
