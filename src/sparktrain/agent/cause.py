"""How a task that lost its trainer learns what happened: the driver knows the first cause."""

from __future__ import annotations

import secrets
import threading
import time

from sparktrain.spec import ControlAddress
from sparktrain.wire.client import ControlClient
from sparktrain.wire.cluster_messages import Ask, Cause
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Hello

#: The driver itself may need a moment to know.
WAIT_S = 6.0
CONNECT_S = 1.5
TICK_S = 0.1


def ask_for_cause(address: ControlAddress | None, run_id: str) -> str | None:
    """The error of a cluster as text; None if nobody knows of one."""
    if address is None:
        return None
    found: list[str] = []
    answered = threading.Event()

    def on_command(message: Message) -> None:
        if isinstance(message, Cause):
            found.append(message.text)
            answered.set()

    name = f"task:{secrets.token_hex(8)}"
    hello = Hello(node=name, run_id=run_id, attempt=0, token=address.token)
    with ControlClient(address, hello, on_command, kept_lines=1) as client:
        client.send(Ask())
        until = time.monotonic() + WAIT_S
        unlinked_until = time.monotonic() + CONNECT_S
        while not answered.wait(TICK_S) and time.monotonic() < until:
            # A driver that is not there any more will not answer.
            if not client.is_linked and time.monotonic() > unlinked_until:
                break
    return found[0] if found and found[0] else None
