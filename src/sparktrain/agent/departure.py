"""Nobody leaves before all are done: a node that goes early looks like a failure to the others.

TensorFlow's processes hold connections to each other until they exit. Spark's own barrier
cannot be used to wait for slow peers: a task that Spark ends while it waits there takes the
whole executor with it (an uncaught TaskKilledException, exit code 50), and with it cached
data and other people's tasks. So the chief's agent keeps a desk, the others check out there.

Nothing depends on it: nodes that have no link to each other for a while leave alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from sparktrain.spec import ControlAddress, NodeSpec
from sparktrain.wire.client import ControlClient
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Hello, Leave, Returned
from sparktrain.wire.server import ControlServer

#: A node without a link for this long is not waited for, and does not wait.
UNLINKED_WAIT_S = 30.0
#: How long the others may take to hear that they can leave.
GOODBYE_WAIT_S = 5.0
TICK_S = 0.2


class Departure:
    """One node's part in leaving together; use as a context manager.

    Args:
        node, nodes: Who this is, and everyone. The first one keeps the desk.
        run_id: Of the run; callers of other runs are not let in.
        log: Called with a line if the nodes cannot leave together.
    """

    def __init__(
        self, node: NodeSpec, nodes: Sequence[NodeSpec], run_id: str, log: Callable[[str], None]
    ) -> None:
        self._node = node
        self._others = [other.name for other in nodes if other.name != node.name]
        self._keeps_desk = bool(self._others) and node.name == nodes[0].name
        self._run_id = run_id
        self._log = log
        self._changed = threading.Condition()
        self._returned: set[str] = set()
        self._may_leave = not self._others
        self._is_released = False
        self._given_up = False
        self._server: ControlServer | None = None
        self._client: ControlClient | None = None
        #: When each of the others was last seen to have a link.
        self._linked_at: dict[str, float] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Departure:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def open(self, host: str) -> ControlAddress | None:
        """Where the others check out; None on all nodes but the one that keeps the desk."""
        if not self._keeps_desk:
            return None
        credentials = Credentials.make()
        server = ControlServer(
            host, 0, self._run_id, credentials, self._on_message, lambda *_: self._wake()
        )
        try:
            self._server = self._stack.enter_context(server)
        except OSError as error:  # an address the others know but this host does not have
            self._log(f"sparktrain: cannot listen on {host} ({error}); the nodes leave alone")
            return None
        return ControlAddress(
            host=host,
            port=self._server.port,
            token=credentials.token,
            certificate=credentials.certificate,
        )

    def join(self, address: ControlAddress | None) -> None:
        """Connects to the desk."""
        if address is None:
            self._may_leave = True
        if self._keeps_desk or self._may_leave or address is None:
            return
        hello = Hello(node=self._node.name, run_id=self._run_id, attempt=0, token=address.token)
        self._client = self._stack.enter_context(
            ControlClient(address, hello, self._on_command, kept_lines=1)
        )

    def give_up(self) -> None:
        """Ends wait(): this node is ended from outside."""
        self._given_up = True
        self._wake()

    @property
    def is_released(self) -> bool:
        """Whether the desk has said that all are done."""
        return self._is_released

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Returns when every node's function has returned, or `until` holds."""
        if self._client is not None:
            self._client.send(Returned())
        self._linked_at = dict.fromkeys(self._others, time.monotonic())
        with self._changed:
            while not self._is_over() and not until():
                self._changed.wait(TICK_S)
        if self._server is not None:
            self._server.send(Leave(), attempt=0)
            deadline = time.monotonic() + GOODBYE_WAIT_S
            while self._server.open_nodes(0) and time.monotonic() < deadline:
                time.sleep(0.02)

    def _is_over(self) -> bool:
        if self._may_leave or self._given_up:
            return True
        if self._server is not None:
            linked = self._server.open_nodes(0)
            missing = [name for name in self._others if name not in self._returned]
        else:
            missing = self._others[:1]  # the one that keeps the desk
            linked = missing if self._client is not None and self._client.is_linked else []
        now = time.monotonic()
        self._linked_at.update(dict.fromkeys(linked, now))
        waited_for = [name for name in missing if now - self._linked_at[name] < UNLINKED_WAIT_S]
        if missing and not waited_for:
            self._log(
                f"sparktrain: no link to {', '.join(missing)} for {UNLINKED_WAIT_S:g} s; this"
                " node leaves without waiting"
            )
        return not waited_for

    def _on_message(self, node: str, _attempt: int, message: Message) -> None:
        if isinstance(message, Returned):
            self._returned.add(node)
            self._wake()

    def _on_command(self, message: Message) -> None:
        if isinstance(message, Leave):
            self._may_leave = self._is_released = True
            self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
