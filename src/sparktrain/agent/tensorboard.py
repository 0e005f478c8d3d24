"""TensorBoard as a process beside the driver, or beside the chief."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from sparktrain.agent import board_guard, board_main
from sparktrain.agent.board_file import read_board
from sparktrain.agent.process import find_python_path, make_environment
from sparktrain.errors import ConfigError, LaunchError
from sparktrain.events import BoardSpec
from sparktrain.spec import RunSpec

#: How long it may take to listen.
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0


def replace_host(url: str, host: str) -> str:
    """The same page at another address of the same machine."""
    parts = urlsplit(url)
    host = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()


def check_installed() -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            problem="TensorBoard was asked for, and this Python has none.",
            advice="pip install tensorboard",
        )


def make_options(log_dir: str, host: str, port: int) -> list[str]:
    """TensorBoard's own options."""
    options = ["--logdir", log_dir, "--host", host, "--port", str(port)]
    # A copy in a store is replaced as a whole; what was read of it before must not be read on.
    replaced = ["--detect_file_replacement", "true"] if "://" in log_dir else []
    return [*options, "--reload_interval", "5", *replaced]


def find_port(environ: Mapping[str, str]) -> int:
    """That of TENSORBOARD_PORT, or 0 for any.

    Kubernetes sets it to a URL where there is a service called "tensorboard".
    """
    text = environ.get("TENSORBOARD_PORT", "")
    is_port = text.isascii() and text.isdecimal() and int(text) < 2**16
    return int(text) if is_port else 0


def make_chief_board(
    run: RunSpec, is_first: bool, own: str, tell: Callable[[str, str], None]
) -> AbstractContextManager[TensorBoard | None]:
    """The board beside a node, if one shall be there.

    It has the environment of the run's nodes, in which the keys of the store may be that they
    write events to.

    Args:
        tell: Called with its URL, or with the problem.
    """
    if run.board is None or not is_first:
        return nullcontext()
    if importlib.util.find_spec("tensorboard") is None:
        tell("", f"the Python of {own} has no tensorboard; pip install it there")
        return nullcontext()
    # Spark's variables have a secret among them.
    env = make_environment(os.environ, run.env, find_python_path())
    return TensorBoard(run.board, own, env, lambda board: tell(board.url or "", board.problem))


class TensorBoard:
    """A board from its start to its end; use as a context manager.

    Entering does not wait for it: training goes on while it loads.

    Args:
        spec: What it shows, and where it listens.
        own: The address of this machine, for its URL if it listens on all.
        env: The environment of the process. Defaults to that of this one.
        on_known: Called, in a thread, when the URL or the problem is known.
    """

    def __init__(
        self,
        spec: BoardSpec,
        own: str,
        env: Mapping[str, str] | None = None,
        on_known: Callable[[TensorBoard], None] = lambda board: None,
    ) -> None:
        self._spec = spec
        self._own = own
        self._env = env
        self._on_known = on_known
        self._known = threading.Event()
        self.url: str | None = None
        #: Why it did not start; empty if it did, or still does.
        self.problem = ""
        self.pid = 0

    def __enter__(self) -> TensorBoard:
        spec = self._spec
        port = spec.port or find_port(os.environ)
        python = [sys.executable, "-P"]  # without the folder of the script
        options = [board_main.GUARDED, *make_options(spec.log_dir, spec.host, port)]
        board = [*python, str(board_main.__file__), *options]
        guard = [*python, str(board_guard.__file__), spec.file, str(int(spec.is_kept))]
        self._process = subprocess.Popen(
            [*guard, *board],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=None if self._env is None else dict(self._env),
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._read, name="sparktrain-board", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *exc: object) -> None:
        if self._spec.is_kept and kind is None:
            self._known.wait(START_TIMEOUT_S)
        is_ended = not self._spec.is_kept or self.url is None
        if is_ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._thread.join(END_TIMEOUT_S)  # the guard is gone, or lets go of us
        if is_ended:
            self._remove_file()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def wait(self) -> str:
        """Waits until it listens; its URL."""
        self._known.wait(START_TIMEOUT_S)
        if self.url is None:
            raise LaunchError(
                problem=f"TensorBoard did not start: {self.problem or 'it took too long'}.",
                advice="Leave tensorboard out, or start it yourself on the run directory.",
            )
        return self.url

    def _read(self) -> None:
        stream = self._process.stdout
        line = stream.readline() if stream is not None else b""
        values = json.loads(line) if line.endswith(b"\n") else {"problem": "it was ended"}
        self.problem = values.get("problem", "")
        if "url" in values:
            self.pid = int(values["pid"])
            self.url = replace_host(values["url"], self._spec.find_told(self._own))
        self._known.set()
        self._on_known(self)

    def _remove_file(self) -> None:
        """What the guard could not: the one that stays is no child of ours, but in its group."""
        file, group = Path(self._spec.file), self._process.pid
        with contextlib.suppress(OSError):
            file.with_name(f"{file.name}.{group}").unlink(missing_ok=True)
        told = read_board(file)
        if told is not None and told.group == group:
            with contextlib.suppress(OSError):
                file.unlink()
