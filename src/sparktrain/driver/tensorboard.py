"""TensorBoard as a process beside the driver."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit

from sparktrain.driver import ending
from sparktrain.errors import ConfigError, LaunchError

#: How long it may take to listen.
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0
_URL = re.compile(r"https?://[^\s]+")


def replace_host(url: str, host: str) -> str:
    """The same page at another address of the same machine."""
    parts = urlsplit(url)
    host = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()


class TensorBoard:
    """Shows a folder of events; use as a context manager.

    Args:
        log_dir: The folder.
        bind, told: The address to listen on and the one in its URL.
    """

    def __init__(self, log_dir: str, bind: str, told: str) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise ConfigError(
                problem="TensorBoard was asked for, and this Python has none.",
                advice="pip install tensorboard",
            )
        self._log_dir = log_dir
        self._bind = bind
        self._told = told
        self._said: list[str] = []
        self._known = threading.Event()
        self.url: str | None = None

    def __enter__(self) -> TensorBoard:
        port = os.environ.get("TENSORBOARD_PORT", "0")
        options = ["--logdir", self._log_dir, "--host", self._bind, "--port", port]
        board = [sys.executable, "-m", "tensorboard.main", *options, "--reload_interval", "5"]
        # Behind a process that ends it when this one is gone, be it killed.
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(ending.__file__), *board],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._read, name="sparktrain-board", daemon=True)
        self._thread.start()
        self._known.wait(START_TIMEOUT_S)
        if self.url is None:
            self.__exit__()
            raise LaunchError(
                problem=f"TensorBoard did not start: {' '.join(self._said[-3:])[-500:]}",
                advice="Leave tensorboard out, or start it yourself on the run directory.",
            )
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._thread.join(END_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        stream = self._process.stderr
        for line in stream if stream is not None else ():
            self._said = [*self._said[-20:], line.strip()]
            found = _URL.search(line)
            if self.url is None and found is not None and " at " in line:
                self.url = replace_host(found[0], self._told)
                self._known.set()
        self._known.set()
