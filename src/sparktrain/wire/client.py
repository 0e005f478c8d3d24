"""A node's end of the control link: tells the driver, hears commands, never fails its caller.

Messages wait in a bounded queue. While the driver cannot be reached the oldest log lines are
dropped and counted; the trainer is not held up. What is left at the end is handed back, so
that it can travel with the node's result instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sparktrain.errors import WireError
from sparktrain.spec import ControlAddress
from sparktrain.wire import frames
from sparktrain.wire.credentials import client_context
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Hello, Log, from_dict

#: Pauses between attempts to connect grow from the first to the second value.
RETRY_FIRST_S, RETRY_LAST_S = 0.2, 5.0
CONNECT_TIMEOUT_S = 10.0
#: How long a line may wait for room in the queue of a link that works.
FULL_WAIT_S = 5.0
#: How long the last words may take to be sent.
LAST_WORDS_S = 4.0
#: Lines in one Log message: this many of the longest fit a frame even if every character
#: is escaped.
LINES_PER_MESSAGE = 40


class ControlClient:
    """The link of one node; use as a context manager.

    Args:
        address: The driver's; None makes a client that only collects.
        hello: How to introduce this node.
        on_command: Called with a Stop or End message in the client's thread.
        kept_lines: How many log lines to keep while there is no link.
        on_again: Called in the client's thread whenever there is a link again. What was written
            to the one that broke may never have arrived; what must not be lost is sent again here.
    """

    def __init__(
        self,
        address: ControlAddress | None,
        hello: Hello,
        on_command: Callable[[Message], None],
        kept_lines: int,
        on_again: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._hello = hello
        self._on_command = on_command
        self._kept_lines = kept_lines
        self._on_again = on_again
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._is_linked = False
        self._lines: deque[str] = deque()
        self._messages: deque[Message] = deque(maxlen=1000)
        self._dropped = 0
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._thread = threading.Thread(target=self._work, name="sparktrain-link", daemon=True)

    def __enter__(self) -> ControlClient:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_linked(self) -> bool:
        """Whether there is a connection now."""
        return self._is_linked

    def relink(self) -> None:
        """Gives up the connection, which seems dead, for a new one."""
        # The loop may be closed already: then there is none.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def send(self, message: Message) -> None:
        """Queues a message; returns at once."""
        with self._lock:
            self._messages.append(message)
        self._nudge()

    def log(self, line: str) -> None:
        """Queues a line of output; returns at once unless a working link has too much to carry."""
        with self._lock:
            # A trainer that prints faster than the link carries waits, as at any pipe; but not
            # for a link that does not move.
            deadline = time.monotonic() + FULL_WAIT_S
            while len(self._lines) >= self._kept_lines and self._is_linked:
                if not self._room.wait(deadline - time.monotonic()):
                    break
            self._lines.append(line)
            if len(self._lines) > self._kept_lines:
                self._lines.popleft()
                self._dropped += 1
        self._nudge()

    def close(self, timeout_s: float = 5.0) -> tuple[list[str], int]:
        """Sends what can be sent, ends the thread; returns the unsent lines and the dropped."""
        if self._thread.is_alive():
            self._closing = True
            self._nudge()
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(1.0)
        with self._lock:
            return list(self._lines), self._dropped

    def _nudge(self) -> None:
        # The loop may be closed already: then nobody is left to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        # Watching must never break the work: whatever goes wrong here ends the watching only.
        with contextlib.suppress(Exception):
            self._loop.run_until_complete(self._stay_connected())
        with contextlib.suppress(Exception):
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.close()

    async def _stay_connected(self) -> None:
        pause_s = RETRY_FIRST_S
        was_linked = False
        while self._address is not None:
            try:
                reader, writer = await asyncio.wait_for(
                    asyncio.open_connection(
                        self._address.host,
                        self._address.port,
                        ssl=client_context(self._address.certificate),
                    ),
                    CONNECT_TIMEOUT_S,
                )
            except (OSError, TimeoutError):
                if self._closing:
                    return
                await self._pause(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, RETRY_LAST_S)
                continue
            connected = self._loop.time()
            hearing = asyncio.ensure_future(self._hear(reader))
            self._is_linked = True
            self._writer = writer
            if was_linked:
                self._on_again()
            was_linked = True
            try:
                if await self._talk(writer, hearing):
                    return
            except OSError:
                pass
            finally:
                with self._lock:
                    self._is_linked = False
                    self._room.notify_all()
                self._writer = None
                hearing.cancel()
                writer.close()
                with contextlib.suppress(Exception):
                    # The last words go out with this; a link that broke has none.
                    wait_s = LAST_WORDS_S if self._closing else 1.0
                    await asyncio.wait_for(writer.wait_closed(), wait_s)
            # A link that breaks at once, as one that is not let in, must not be tried in a rush.
            if self._loop.time() - connected > RETRY_LAST_S:
                pause_s = RETRY_FIRST_S
            if self._closing:
                return
            await self._pause(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, RETRY_LAST_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            self._wake.clear()
            await asyncio.wait_for(self._until_closing(), seconds)

    async def _until_closing(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()

    async def _talk(self, writer: asyncio.StreamWriter, hearing: asyncio.Future[None]) -> bool:
        """Sends until closed (True) or until the link breaks (False)."""
        writer.write(frames.encode(self._hello.to_dict()))
        while True:
            batch = self._take()
            if batch is None:
                if self._closing:
                    await writer.drain()
                    return True
                self._wake.clear()
                waking: asyncio.Future[Any] = asyncio.ensure_future(self._wake.wait())
                both: set[asyncio.Future[Any]] = {waking, hearing}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if hearing.done():
                    return False
                continue
            lines, dropped, messages = batch
            try:
                if lines or dropped:
                    self._write(writer, Log(lines=lines, dropped=dropped))
                for message in messages:
                    self._write(writer, message)
                await writer.drain()
            except OSError:
                self._give_back(lines, dropped, messages)
                return False

    def _write(self, writer: asyncio.StreamWriter, message: Message) -> None:
        # A message that is too large is lost; the link and the others stay.
        with contextlib.suppress(WireError, TypeError, ValueError):
            writer.write(frames.encode(message.to_dict()))

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Passes on commands; returns when the driver is gone."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, WireError):
            while True:
                header = await reader.readexactly(frames.HEADER.size)
                body = await reader.readexactly(frames.decode_header(header))
                self._on_command(from_dict(frames.decode_body(body)))

    def _take(self) -> tuple[list[str], int, list[Message]] | None:
        with self._lock:
            if not (self._lines or self._messages or self._dropped):
                return None
            count = min(len(self._lines), LINES_PER_MESSAGE)
            lines = [self._lines.popleft() for _ in range(count)]
            # With every batch of lines: a trainer that prints without end must not hold them up.
            messages = list(self._messages)
            self._messages.clear()
            dropped, self._dropped = self._dropped, 0
            self._room.notify_all()
            return lines, dropped, messages

    def _give_back(self, lines: list[str], dropped: int, messages: list[Message]) -> None:
        with self._lock:
            self._lines.extendleft(reversed(lines))
            self._messages.extendleft(reversed(messages))
            self._dropped += dropped
