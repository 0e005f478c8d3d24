"""The trainer process as its agent sees it: started, listened to, and always ended."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sparktrain
from sparktrain.errors import TAIL_LINES, WireError
from sparktrain.spec import Failure, NodeSpec
from sparktrain.wire import frames

#: A line longer than this is cut into several: one endless line must not fill the memory.
MAX_LINE_CHARS = 4096
#: Lines in a failure are cut: all of it must fit one frame of the control link.
MAX_TAIL_CHARS = 1000
#: What a fault is told with: likewise.
MAX_WHAT_CHARS = 4000
#: How long a trainer may take to shut down after its work is done.
EXIT_TIMEOUT_S = 10.0
#: How long the lines before an error may take to be read.
DRAIN_TIMEOUT_S = 1.0

#: Spark's own variables are left out: among them is a secret, and the trainer is not Spark's.
_HIDDEN_PREFIXES = ("SPARK_", "_SPARK_", "PYSPARK_", "_PYSPARK", "PYTHON_WORKER_", "PYTHON_DAEMON_")


def make_environment(
    inherited: Mapping[str, str],
    wished: Mapping[str, str],
    python_path: list[str],
) -> dict[str, str]:
    """The trainer's environment: the executor's without Spark, then ours, then the user's."""
    env = {
        name: value for name, value in inherited.items() if not name.startswith(_HIDDEN_PREFIXES)
    }
    env.pop("PYTHONPATH", None)
    if python_path:
        env["PYTHONPATH"] = os.pathsep.join(python_path)
    env["PYTHONUNBUFFERED"] = "1"  # lines must arrive when they are printed
    env["TF_GRPC_REUSE_PORT"] = "1"  # see rendezvous.reserve_port
    # A tensor of a batch is large enough for malloc to map fresh pages for it and to give them
    # back at once, for every batch. Keeping up to 1 GiB makes the way of rows into batches four
    # times as fast (bench/feed.py).
    env.setdefault("MALLOC_TRIM_THRESHOLD_", str(1 << 30))
    env.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 30))
    env.setdefault("MALLOC_TOP_PAD_", str(64 << 20))
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's errors only, not its start-up talk
    # A GPU's memory as it is needed, not all of it at once.
    env.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    env.update(wished)
    return env


def find_python_path() -> list[str]:
    """Import path the trainer needs beyond its interpreter's own: ours, and the user's."""
    kept = [
        entry
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry and not is_sparks_own(entry)
    ]
    home = str(Path(sparktrain.__file__).parent.parent)
    # A package folder is on the path of every process of this interpreter already, and must
    # not be moved before the standard library.
    if "site-packages" not in home and "dist-packages" not in home and home not in kept:
        kept.append(home)
    return kept


def is_sparks_own(entry: str) -> bool:
    name = Path(entry).name
    return name.startswith(("pyspark", "py4j", "spark-core")) or entry.endswith(".jar")


class TrainerProcess:
    """Runs `python -m sparktrain.trainer`; use as a context manager.

    Args:
        node, host: Who this is, for failures.
        env: The environment of the process.
        on_line: Called with each line of output, in a thread of this class.
        on_frame: Called with each frame that is not about the function's end, likewise.
        inherited: File descriptors for the process, under their own numbers.
    """

    def __init__(
        self,
        node: NodeSpec,
        host: str,
        env: Mapping[str, str],
        on_line: Callable[[str], None],
        on_frame: Callable[[dict[str, Any]], None],
        inherited: Sequence[int] = (),
    ) -> None:
        self._inherited = inherited
        self._node = node
        self._host = host
        self._env = env
        self._on_line = on_line
        self._on_frame = on_frame
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._error: dict[str, Any] | None = None
        self._end: tuple[str, str] | None = None
        self._fault: tuple[str, str] | None = None
        self._settled = threading.Event()
        #: Whether how it went is known, though the process may still be there.
        self._told = threading.Event()
        self._sending = threading.Lock()
        self._ending = threading.Lock()
        #: Whether nothing of its group is left: its number may be another's from then on.
        self._is_over = False
        self._reading = threading.Lock()
        self._threads: list[threading.Thread] = []
        #: The pickled return value, once the function has returned.
        self.value: bytes | None = None
        #: The frame that came with it.
        self.returned: dict[str, Any] | None = None

    def __enter__(self) -> TrainerProcess:
        self._link, theirs = socket.socketpair()
        # Closes with this process, however it ends: the trainer's watchdog waits for it.
        watched, self._alive = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sparktrain.trainer", str(theirs.fileno()), str(watched)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno(), watched, *self._inherited],
                env=dict(self._env),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(watched)
        for name, work in (
            ("output", self._read_output),
            ("frames", self._read_frames),
            ("exit", self._await_exit),
        ):
            thread = threading.Thread(target=work, name=f"sparktrain-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        for thread in self._threads:
            thread.join(5.0)
        self._link.close()
        os.close(self._alive)
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def send(self, values: dict[str, Any], body: bytes = b"") -> None:
        """Sends a frame, and raw bytes behind it. A dead trainer is found out by wait()."""
        with self._sending, contextlib.suppress(OSError):
            self._link.sendall(frames.encode(values) + body)

    def kill(self) -> None:
        """Ends the trainer and all processes it started that stayed in its group."""
        with self._ending:
            if self._is_over:
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self, kind: str, reason: str) -> None:
        """Ends the trainer because someone else says so; a kind of failure that is an echo."""
        self._end = (kind, reason)
        self.kill()

    def fail(self, kind: str, what: str) -> None:
        """Ends the trainer because of a fault that the agent has found."""
        if self.returned is None:
            self._fault = (kind, what[:MAX_WHAT_CHARS])
            self.kill()

    def wait(self) -> Failure | None:
        """Waits for the function to return; None then, else how the node failed."""
        self._settled.wait()
        if self.returned is not None and self._end is None:
            return None
        self._process.wait()
        return self._make_failure()

    def wait_for_outcome(self) -> Failure | None:
        """The same, but what the function raised is known before its process is gone."""
        self._told.wait()
        if self._error is None:
            return self.wait()
        self._drain_output()
        return self._make_failure()

    def wait_until_gone(self, timeout_s: float) -> bool:
        """Whether the process ends within the time."""
        return self._settled.wait(timeout_s)

    def exit(self) -> int | None:
        """Lets a trainer whose function has returned shut down; returns its exit code."""
        self.send({"kind": "exit"})
        self._shut_down()
        return self._process.wait(EXIT_TIMEOUT_S)

    def _shut_down(self) -> None:
        """Gives a trainer whose function is over the time to go by itself."""
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._on_line(
                f"sparktrain: the process was still there {EXIT_TIMEOUT_S:g} s after its function"
                " ended, most often because of threads or processes it left running; killed"
            )
        self.kill()

    def _read_output(self) -> None:
        stream = self._process.stdout
        if stream is None:
            return
        pending = ""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        with contextlib.suppress(OSError, ValueError):
            poller = select.poll()
            poller.register(stream, select.POLLIN)
            while poller.poll():
                with self._reading:
                    if not (chunk := os.read(stream.fileno(), 65536)):
                        break
                    pending += decoder.decode(chunk).replace("\r\n", "\n")
                    *lines, pending = pending.split("\n")
                    for line in lines:
                        self._emit(line)
                    while len(pending) > MAX_LINE_CHARS:
                        self._emit(pending[:MAX_LINE_CHARS])
                        pending = pending[MAX_LINE_CHARS:]
        if pending:
            self._emit(pending)

    def _emit(self, line: str) -> None:
        # What was written over on a terminal becomes a line of its own.
        for part in [part for part in line.split("\r") if part] or [""]:
            for start in range(0, max(len(part), 1), MAX_LINE_CHARS):
                piece = part[start : start + MAX_LINE_CHARS]
                self._tail.append(piece)
                self._on_line(piece)

    def _read_frames(self) -> None:
        with contextlib.suppress(EOFError, OSError, WireError):
            while True:
                values = frames.read_frame(self._link)
                if values.get("kind") == "error":
                    self._error = values
                    self._told.set()
                    self._shut_down()
                elif values.get("kind") == "returned":
                    self.value = frames.read_exactly(self._link, int(values["value_bytes"]))
                    self.returned = values
                    self._settle()
                else:
                    # Watching must not break the work: a frame nobody understands is dropped.
                    with contextlib.suppress(Exception):
                        self._on_frame(values)

    def _await_exit(self) -> None:
        self._process.wait()
        # The trainer is gone; what it left in its group goes too, and with it the last holders
        # of the pipe and the socket, so that both readers come to their end.
        self.kill()
        with self._ending:
            self._is_over = True
        for thread in self._threads[:2]:
            thread.join(2.0)
        self._settle()

    def _settle(self) -> None:
        self._settled.set()
        self._told.set()

    def _drain_output(self) -> None:
        """Waits for the lines that were printed before the error was told."""
        stream = self._process.stdout
        if stream is None:
            return
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        poller = select.poll()
        poller.register(stream, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and self._reading.acquire(timeout=left):
            # Whoever reads holds the lock until the lines are in the tail.
            is_empty = not poller.poll(0)
            self._reading.release()
            if is_empty:
                return
            time.sleep(0.01)

    def _make_failure(self) -> Failure:
        tail = tuple(line[:MAX_TAIL_CHARS] for line in self._tail)
        base: dict[str, Any] = {"node": self._node.name, "host": self._host, "tail": tail}
        error = self._error
        # What the function itself raised counts, even if the end came before the process was gone.
        if self._end is not None and (error is None or error.get("is_echo")):
            kind, what = self._end
            return Failure(**base, kind=kind, what=what, is_echo=True)
        if self._fault is not None and error is None:
            kind, what = self._fault
            return Failure(**base, kind=kind, what=what)
        if error is not None:
            return Failure(
                **base,
                kind=str(error["what_kind"]),
                what=str(error["what"]),
                exit_code=error.get("exit_code"),
                traceback=str(error.get("traceback", "")),
                is_echo=bool(error.get("is_echo")),
            )
        code = self._process.wait()
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            hint = " (often: out of memory)" if -code == signal.SIGKILL else ""
            what = f"the trainer process was killed by signal {-code} {name}{hint}"
            return Failure(**base, kind="signal", what=what, signal=-code)
        what = f"the trainer process ended with exit code {code} before the function returned"
        return Failure(**base, kind="exit", what=what, exit_code=code)
