"""`python -m sparktrain.agent.keeper`: keeps one trainer that outlives its Spark task.

It is what an agent is in a task, in a process of its own: it owns the trainer and the link to
the driver. It ends, and with it the trainer, when the driver says so, when the executor that
started it is gone, and when the driver has not been heard of for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparktrain.agent import rendezvous
from sparktrain.agent.doors import make_door
from sparktrain.agent.executor import ProcessWatch
from sparktrain.agent.failure import NodeFailureError, make_device_failure
from sparktrain.agent.given import Given
from sparktrain.agent.job import describe_data, make_job
from sparktrain.agent.node_devices import Devices, NodeDevices, choose_variables
from sparktrain.agent.process import (
    TrainerProcess,
    find_python_path,
    make_environment,
)
from sparktrain.agent.reminder import Reminder
from sparktrain.agent.tensorboard import make_chief_board
from sparktrain.errors import DeviceError
from sparktrain.spec import RUN_FILE, NodeSpec, RunSpec
from sparktrain.wire.client import ControlClient
from sparktrain.wire.cluster_messages import (
    SILENT_S,
    Announce,
    Arrived,
    Beat,
    Catch,
    Flush,
    Forget,
    Here,
    Meet,
    NoMore,
    Save,
)
from sparktrain.wire.message import Message
from sparktrain.wire.messages import (
    Board,
    Bye,
    End,
    Failed,
    Hello,
    Joined,
    Leave,
    Returned,
    Stop,
    from_dict,
)

#: How long a keeper may take to have its trainer started.
START_TIMEOUT_S = 60.0
TICK_S = 0.2
#: How long a trainer that failed may take to go once the cluster ends.
GO_TIMEOUT_S = 2.0
OK = b"ok\n"


@dataclass(frozen=True)
class KeeperSpec:
    """All a keeper needs; comes by a pipe from the process that starts it."""

    run: RunSpec
    node: NodeSpec
    host: str
    #: The process with which the trainer ends, and when that began.
    pid: int
    start: str
    #: What there is of GPUs for it.
    given: Given = field(default_factory=Given)


def start_keeper(spec: KeeperSpec) -> None:
    """Starts a keeper that outlives this process; returns when it has its trainer.

    Raises:
        RuntimeError: It could not start; with what it said.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    process = subprocess.Popen(
        [sys.executable, "-m", "sparktrain.agent.keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )
    try:
        # Its end is that of the first process only, which leaves the keeper alone.
        said, _ = process.communicate(pickle.dumps(spec), START_TIMEOUT_S)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if not said.endswith(OK):
        text = said.decode(errors="replace").strip()[-2000:]
        raise RuntimeError(f"{spec.node.name} could not start on {spec.host}: {text}")


def main() -> int:
    # Written by the process that started this one, and by nobody else.
    spec: KeeperSpec = pickle.load(sys.stdin.buffer)
    reading, writing = os.pipe()
    if os.fork():
        # Whoever started us waits for this process and hears how it went; the keeper itself
        # must be nobody's child.
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            said = answer.read()
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
        os._exit(0)
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(null, number)
        os.dup2(pipe.fileno(), 2)
        keeper = Keeper(spec)

        def on_started() -> None:
            pipe.write(OK)
            pipe.flush()
            pipe.close()
            os.dup2(null, 2)
            os.close(null)

        return keeper.run(on_started)


class Keeper:
    """One node's keeper."""

    def __init__(self, spec: KeeperSpec) -> None:
        self._spec = spec
        self._run = run = spec.run
        self._node = node = spec.node
        self._started = time.monotonic()
        self._heard = time.monotonic()
        self._may_leave = threading.Event()
        self._over = threading.Event()
        self._has_failed = threading.Event()
        self._trainer: TrainerProcess | None = None
        self._ended: tuple[str, str] | None = None
        token = run.control.token if run.control else ""
        hello = Hello(node=node.name, run_id=run.run_id, attempt=run.attempt, token=token)
        self._telling = threading.Lock()
        self._reminder = Reminder()
        self._link = ControlClient(
            run.control, hello, self._on_command, run.kept_log_lines, self._remind
        )

    def run(self, on_started: Any) -> int:
        with ExitStack() as stack:
            on_gone = lambda: self._end("cut", "its Spark executor ended")  # noqa: E731
            stack.enter_context(ProcessWatch(self._spec.pid, self._spec.start, on_gone))
            stack.enter_context(self._link)
            folder = Path(tempfile.mkdtemp(prefix="sparktrain-door-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            holder = stack.enter_context(rendezvous.reserve_port())
            self._devices = devices = self._find_devices(stack)
            wished = choose_variables(self._node, devices, self._run.env)
            env = make_environment(os.environ, wished, find_python_path())
            trainer = TrainerProcess(
                self._node, self._spec.host, env, self._link.log, self._on_frame
            )
            self._trainer = stack.enter_context(trainer)
            self._port = holder.getsockname()[1]
            self._door, secret = make_door(
                self._node, self._spec.host, folder, self._run.feed_token
            )
            data = describe_data(self._run, self._node)
            job = make_job(self._run, self._node, len(data), devices, door=secret)
            trainer.send(job, self._run.function + data)
            on_started()
            is_first = self._node.rank == 0
            board = make_chief_board(self._run, is_first, self._spec.host, self._tell_board)
            stack.enter_context(board)
            threading.Thread(target=self._watch_driver, daemon=True).start()
            if self._ended is not None:  # before there was a trainer to end
                trainer.end(*self._ended)
            failure = trainer.wait_for_outcome()
            if failure is None:
                self._tell(Returned())
                self._may_leave.wait()
                if self._ended is None:
                    trainer.exit()
                self._tell(Bye())
            else:
                self._tell(Failed(failure=failure.to_dict()))
                self._has_failed.set()
                self._let_go(trainer)
            self._over.set()
        return 0

    def _find_devices(self, stack: ExitStack) -> Devices:
        """Claimed here, where the trainer is kept: the task that started us is soon gone."""
        run, given = self._run, self._spec.given
        try:
            return stack.enter_context(
                NodeDevices(run.devices, self._node, given, run.env, run.run_id)
            )
        except DeviceError as error:
            failure = make_device_failure(self._node.name, self._spec.host, error)
            raise SystemExit(str(NodeFailureError(failure))) from None  # our starter reads it

    def _let_go(self, trainer: TrainerProcess) -> None:
        """Gives a trainer whose function has failed the time to go by itself."""
        started = time.monotonic()
        while not trainer.wait_until_gone(TICK_S):
            # The driver waits for this node, but not because of a thread that was left running.
            if self._may_leave.is_set() and time.monotonic() - started > GO_TIMEOUT_S:
                return

    def _make_card(self, door_port: int) -> dict[str, Any]:
        sees_run_dir = (Path(self._run.run_dir) / RUN_FILE).exists()
        door = {**self._door.to_dict(), "port": door_port}
        return asdict(
            rendezvous.make_card(
                self._node,
                self._spec.host,
                self._port,
                sees_run_dir,
                door=door,
                devices=self._devices.ids,
            )
        )

    def _on_frame(self, values: dict[str, Any]) -> None:
        kind = values.get("kind")
        if kind == "door":
            self._tell(Arrived(card=self._make_card(int(values["port"]))))
        elif kind == "ready" and self._trainer is not None:
            self._tell(Joined(host=self._spec.host, pid=self._trainer.pid))
        elif kind != "feed":
            self._tell(from_dict(values))

    def _tell_board(self, url: str, problem: str) -> None:
        self._tell(Board(url, problem))

    def _tell(self, message: Message) -> None:
        with self._telling:
            self._reminder.note(message)
            self._link.send(message)

    def _remind(self) -> None:
        """There is a link again, and what was written to the last one may be lost."""
        with self._telling:
            for message in self._reminder.messages:
                self._link.send(message)

    def _on_command(self, message: Message) -> None:
        self._heard = time.monotonic()
        if isinstance(message, Beat):
            self._link.send(Here())
            return
        if isinstance(message, Forget):
            with self._telling:
                self._reminder.forget(message.feed)
        if isinstance(message, End):
            self._end("ended", message.reason)
        elif isinstance(message, Leave):
            self._may_leave.set()
        elif self._trainer is not None:
            if isinstance(message, Meet):
                self._trainer.send(
                    {"kind": "cluster", "cluster": message.cluster, "stores": message.stores}
                )
            elif isinstance(message, (Stop, NoMore, Announce, Forget, Catch, Flush, Save)):
                self._trainer.send(message.to_dict())

    def _watch_driver(self) -> None:
        limit_s = self._run.driver_timeout_s
        relinked = self._heard
        while not self._over.wait(TICK_S):
            now = time.monotonic()
            if now - self._heard > limit_s:
                self._end("ended", f"the driver has not been heard of for {limit_s:g} s")
                return
            if now - max(self._heard, relinked) > SILENT_S and self._link.is_linked:
                relinked = now
                self._link.relink()

    def _end(self, kind: str, reason: str) -> None:
        self._ended = (kind, reason)
        self._may_leave.set()
        if self._trainer is not None and not self._has_failed.is_set():
            with contextlib.suppress(OSError):
                self._trainer.end(kind, reason)


if __name__ == "__main__":
    sys.exit(main())
