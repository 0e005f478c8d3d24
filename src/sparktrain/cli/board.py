"""`sparktrain tensorboard`: shows the events of a run, or ends a TensorBoard that stayed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sparktrain.agent import board_main
from sparktrain.agent.tensorboard import check_installed, make_options
from sparktrain.errors import ConfigError
from sparktrain.events import BOARD_FILE


def run_board(path: str, host: str, port: int) -> int:
    """Runs until it is ended; returns its exit code."""
    check_installed()
    options = make_options(path, host, port)
    return subprocess.call([sys.executable, "-P", str(board_main.__file__), *options])


def end_board(run_dir: str) -> str:
    """Ends the one that a run has kept; returns what to say."""
    file = Path(run_dir, BOARD_FILE)
    try:
        url = json.loads(file.read_text())["url"]
        file.unlink()
    except FileNotFoundError as error:
        raise ConfigError(
            problem=f"There is no {file}.",
            advice="Expected the directory of a run whose TensorBoard was kept and still runs.",
        ) from error
    return f"ended {url}"
