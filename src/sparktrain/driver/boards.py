"""What run(tensorboard=...) and its settings mean: checked here, before any job."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sparktrain.agent.board_file import is_there, read_board
from sparktrain.agent.tensorboard import TensorBoard, check_installed
from sparktrain.data.storage import open_store
from sparktrain.driver.plan import Plan
from sparktrain.driver.state import Snapshot
from sparktrain.errors import ConfigError
from sparktrain.events import (
    BOARD_FILE,
    DRIVER,
    LOOPBACK,
    BoardSpec,
    EventSpec,
    check_url,
    make_command,
    parse_kinds,
)


def add_board(plan: Plan, wished: Any, call: str) -> Plan:
    """The plan with what its nodes write for TensorBoard, and with one if it is wished.

    Args:
        wished: True, False, or the path of what it shall show.
        call: Who asks, for errors.
    """
    settings = plan.settings
    copy_to = settings.events_dir.rstrip("/")
    if copy_to:
        check_url("The setting events_dir", copy_to)
        open_store(copy_to, {})
        copy_to = f"{copy_to}/{plan.run_id}"
    events = EventSpec(parse_kinds("The setting events", settings.events), copy_to)
    plan = replace(plan, events=events)
    if wished is None or wished is False:
        return plan
    if isinstance(wished, os.PathLike):
        wished = os.fspath(wished)
    if wished is not True and not (isinstance(wished, str) and wished):
        raise ConfigError(
            problem=f"{call}() got tensorboard={wished!r}.",
            advice="Expected True, False, or the path of the folder that it shall show.",
        )
    log_dir = find_log_dir(plan) if wished is True else wished
    check_url(f"tensorboard of {call}()", log_dir)
    if "://" in log_dir:
        open_store(log_dir, {})
    board = BoardSpec(
        log_dir=log_dir,
        file=str(plan.run_dir / BOARD_FILE),
        at=settings.tensorboard_at,
        host=settings.tensorboard_host or LOOPBACK,
        port=settings.tensorboard_port,
        is_kept=settings.tensorboard_keep,
    )
    if board.at == DRIVER:
        check_installed()
        if not is_at(board, board.port):  # else it is ended first
            check_address(board)
    return replace(plan, board=board)


def is_at(board: BoardSpec, port: int) -> bool:
    """Whether the one that an earlier run has kept is there, on this port."""
    told = read_board(Path(board.file))
    return told is not None and urlsplit(told.url).port == port and is_there(told.url)


def check_address(board: BoardSpec) -> None:
    """Refuses an address that this machine cannot listen on, or a port that is taken."""
    try:
        found = socket.getaddrinfo(board.host, board.port, type=socket.SOCK_STREAM)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[0][4])
    except OSError as error:
        raise ConfigError(
            problem=f"TensorBoard cannot listen on {board.host}:{board.port}:"
            f" {error.strerror or error}.",
            advice="Set tensorboard_host to an address of this machine (0.0.0.0 for all of them),"
            " and tensorboard_port to a free port, or to 0.",
        ) from error


def find_log_dir(plan: Plan) -> str:
    """Where the run's events are to be seen from anywhere."""
    return plan.events.copy_to or str(plan.run_dir / "tensorboard")


def find_command(plan: Plan) -> str:
    return make_command(plan.board.log_dir if plan.board is not None else find_log_dir(plan))


class Board:
    """The board of a run or a cluster, wherever it is; use as a context manager."""

    def __init__(self, plan: Plan, own: str) -> None:
        self._plan = plan
        self._told = ""
        self.here: TensorBoard | None = None
        spec = plan.board
        if spec is not None and spec.at == DRIVER:
            self.here = TensorBoard(spec, own)

    def __enter__(self) -> Board:
        context: AbstractContextManager[Any] = self.here or nullcontext()
        context.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.here is not None:
            self.here.__exit__(*exc)

    def find(self, snapshot: Snapshot) -> tuple[str, str]:
        """Its URL and why it has none, as far as known."""
        if self.here is not None:
            return self.here.url or "", self.here.problem
        return snapshot.board

    def find_news(self, snapshot: Snapshot) -> str:
        """A sentence for the user, once; another one when it has come up elsewhere."""
        spec, (url, problem) = self._plan.board, self.find(snapshot)
        if spec is None:
            return ""
        host = "" if self.here is not None else snapshot.nodes[self._plan.workers[0].name].host
        news = describe(spec, url, problem, host)
        if news == self._told:
            return ""
        self._told = news or self._told
        return news


def describe(spec: BoardSpec, url: str, problem: str, host: str) -> str:
    """Where a board is, for the user; empty while that is not known.

    Args:
        host: Of the chief, once the nodes have met, if it is beside the chief.
    """
    if problem:
        return f"TensorBoard did not start, the run goes on: {problem}"
    if not url or (spec.at != DRIVER and not host):
        return ""
    where = f" on {host}" if host else ""
    stays = f", until {spec.file} is removed" if spec.is_kept else ""
    return f"TensorBoard{where}: {url}{stays}"
