"""Watches a run: messages of the control link become snapshots, log files and lines to show."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from contextlib import ExitStack

from sparktrain.driver import state
from sparktrain.driver.display import Shown
from sparktrain.driver.plan import Plan
from sparktrain.driver.record import RunRecord
from sparktrain.spec import ControlAddress
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.message import Message
from sparktrain.wire.messages import End, Log, Progress, Report, Stop
from sparktrain.wire.server import ControlServer

#: Lines shown at a time; the log files have them all. A terminal takes some thousand a second,
#: and who draws cannot watch.
MAX_SHOWN_LINES = 500


class Monitor:
    """Owns the control server; use as a context manager.

    Args:
        bind, told: The address to listen on and the one to tell the nodes.
    """

    def __init__(self, plan: Plan, record: RunRecord, bind: str, told: str) -> None:
        self._plan = plan
        self._record = record
        self._bind = bind
        self._told = told
        self._changed = threading.Condition()
        self._snapshot = state.start_run(plan.run_id, plan.nodes, record.earlier_metrics)
        self._lines: deque[Shown] = deque(maxlen=MAX_SHOWN_LINES)
        self._num_hidden = 0
        self._stack = ExitStack()
        self._server: ControlServer | None = None
        #: What the nodes are told; None if the driver could not listen.
        self.address: ControlAddress | None = None

    def __enter__(self) -> Monitor:
        credentials = Credentials.make()
        server = ControlServer(
            self._bind,
            self._plan.settings.control_port,
            self._plan.run_id,
            credentials,
            self._on_message,
            self._on_closed,
            self._on_opened,
        )
        try:
            self._server = self._stack.enter_context(server)
        except OSError as error:
            warnings.warn(
                f"sparktrain cannot listen on {self._bind}:{self._plan.settings.control_port}"
                f" ({error}): the run goes on, but its logs and progress arrive at its end only."
                " Set spark.driver.bindAddress or spark.sparktrain.controlPort.",
                stacklevel=2,
            )
            return self
        self.address = ControlAddress(
            self._told, server.port, credentials.token, credentials.certificate
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
        self._server = None  # whoever comes late, from another thread, has nobody to tell

    @property
    def snapshot(self) -> state.Snapshot:
        return self._snapshot

    def start_attempt(self, attempt: int) -> None:
        with self._changed:
            self._snapshot = state.start_attempt(self._snapshot, attempt)

    def wait(self, timeout_s: float) -> None:
        """Waits for something to happen."""
        with self._changed:
            self._changed.wait(timeout_s)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def take_lines(self) -> list[Shown]:
        """What arrived since the last call: lines of output and ends of epochs, by node."""
        with self._changed:
            lines = list(self._lines)
            self._lines.clear()
            if self._num_hidden:
                hidden = f"{self._num_hidden} lines before these are in the logs only"
                lines.insert(0, ("sparktrain", hidden))
                self._num_hidden = 0
        return lines

    def add_lines(self, node: str, lines: list[str], dropped: int = 0) -> None:
        """Lines that came another way, with a node's result."""
        written = self._record.add_lines(node, lines, dropped)
        with self._changed:
            room = MAX_SHOWN_LINES - len(self._lines)
            self._num_hidden += max(0, len(written) - room)
            self._lines.extend((node, line) for line in written)

    def ask_to_stop(self, node: str | None = None) -> None:
        """Turns ctx.should_stop true, on one node or on all."""
        if self._server is not None:
            self._server.send(Stop(), self._snapshot.attempt, node)

    def end_nodes(self, reason: str, may_restart: bool) -> None:
        if self._server is not None:
            self._server.send(End(reason, may_restart), self._snapshot.attempt)

    def num_links(self) -> int:
        """Nodes of this attempt that still have a link, so may still have a trainer."""
        return self._server.num_open(self._snapshot.attempt) if self._server is not None else 0

    def _on_message(self, node: str, attempt: int, message: Message) -> None:
        if isinstance(message, Log):
            self.add_lines(node, message.lines, message.dropped)
        elif isinstance(message, Report):
            self._record.add_metrics(message.metrics)
        elif isinstance(message, Progress) and message.ended:
            with self._changed:
                self._lines.append((node, message))
        with self._changed:
            self._snapshot = state.apply(self._snapshot, node, attempt, message)
            self._changed.notify_all()

    def _on_opened(self, node: str, attempt: int) -> None:
        with self._changed:
            self._snapshot = state.open_link(self._snapshot, node, attempt)
            self._changed.notify_all()

    def _on_closed(self, node: str, attempt: int) -> None:
        with self._changed:
            self._snapshot = state.close_link(self._snapshot, node, attempt)
            self._changed.notify_all()
