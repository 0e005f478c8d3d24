"""What run(tensorboard=...) may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain import KerasClassifier
from sparktrain.driver.boards import add_board, find_command
from sparktrain.driver.plan import Plan
from sparktrain.errors import ConfigError


def test_a_path_of_pathlib_is_a_path(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    plan = add_board(make_plan(run_dir=tmp_path), tmp_path / "events", "run")
    assert plan.board is not None and plan.board.log_dir == f"{tmp_path}/events"
    assert find_command(plan) == f"tensorboard --logdir {tmp_path}/events"
    estimator = KerasClassifier(tensorboard=tmp_path / "events")
    assert estimator.getTensorboard() == f"{tmp_path}/events"
    for wrong in ("", 3):
        with pytest.raises(ConfigError, match="the path of the folder"):
            add_board(plan, wrong, "run")
