"""A TensorBoard of a test, and its processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil

from sparktrain.agent.tensorboard import TensorBoard
from sparktrain.events import BOARD_FILE, BoardSpec


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
