"""`sparktrain tensorboard`: shows the events of a run, or ends a TensorBoard that stayed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sparktrain.agent import board_main
from sparktrain.agent.board_file import is_there, read_board, wait_until_gone
from sparktrain.agent.tensorboard import check_installed, make_options
from sparktrain.errors import ConfigError, LaunchError
from sparktrain.events import BOARD_FILE, check_url

#: How long one may take to see that its file is gone.
END_TIMEOUT_S = 10.0


def run_board(path: str, host: str, port: int) -> int:
    """Runs until it is ended; returns its exit code."""
    check_installed()
    check_url("The path", path)
    options = make_options(path, host, port)
    return subprocess.call([sys.executable, "-P", str(board_main.__file__), *options])


def end_board(run_dir: str) -> str:
    """Ends the one that a run has kept; returns what to say."""
    file = Path(run_dir, BOARD_FILE)
    told = read_board(file)
    was_there = told is not None and is_there(told.url)
    try:
        file.unlink()
    except FileNotFoundError as error:
        raise ConfigError(
            problem=f"There is no {file}.",
            advice="Expected the directory of a run whose TensorBoard was kept and still runs.",
        ) from error
    if told is None:
        return f"removed {file}, which did not tell where a TensorBoard is"
    if not was_there:
        return f"removed {file}; nothing answered at {told.url} from here before that either"
    if not wait_until_gone(told.url, END_TIMEOUT_S):
        raise LaunchError(
            problem=f"{told.url} still answers {END_TIMEOUT_S:g} s after {file} was removed.",
            advice="Expected its end within a second, or within a minute where the run directory"
            f" is another host's. End its processes there: kill -KILL -- -{told.group}",
        )
    return f"ended {told.url}"
