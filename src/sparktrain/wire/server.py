"""The listening end of a control link: takes in what nodes tell, hands out commands.

It never decides anything and nothing depends on it: a run whose link fails goes on.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import Callable
from typing import Any

from sparktrain.errors import WireError
from sparktrain.wire import frames
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.message import Message
from sparktrain.wire.messages import PROTOCOL, Hello, from_dict

#: A caller that does not say who it is within this time is cut off.
HELLO_TIMEOUT_S = 10.0
#: More callers than this at once are strangers: a run has at most a few hundred nodes.
MAX_LINKS = 4096

OnMessage = Callable[[str, int, Message], None]
OnLink = Callable[[str, int], None]


class ControlServer:
    """Listens on one address in a thread of its own; use as a context manager.

    Args:
        host, port: The address to listen on; port 0 takes any free one.
        on_message: Called with (node, attempt, message) in the server's thread.
        on_closed: Called with (node, attempt) when an admitted link ends.
        on_opened: Called with (node, attempt) when a link is let in, before its first message.
    """

    def __init__(
        self,
        host: str,
        port: int,
        run_id: str,
        credentials: Credentials,
        on_message: OnMessage,
        on_closed: OnLink,
        on_opened: OnLink = lambda node, attempt: None,
    ) -> None:
        self._host = host
        self._port = port
        self._run_id = run_id
        self._credentials = credentials
        self._on_message = on_message
        self._on_closed = on_closed
        self._on_opened = on_opened
        self._writers: dict[tuple[str, int], asyncio.StreamWriter] = {}
        self._num_links = 0
        #: Every link whose socket may still be open.
        self._links: dict[asyncio.WriteTransport, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Callers cut off: no token, too large, not a message. For tests and the run's record.
        self.num_rejected = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._serve, name="sparktrain-control", daemon=True)

    @property
    def port(self) -> int:
        return self._port

    def __enter__(self) -> ControlServer:
        self._thread.start()
        try:
            future = asyncio.run_coroutine_threadsafe(self._open(), self._loop)
            future.result(timeout=10)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def send(self, message: Message, attempt: int, node: str | None = None) -> None:
        """Sends a command to every node of an attempt that has a link, or to one of them."""
        data = frames.encode(message.to_dict())
        self._loop.call_soon_threadsafe(self._send, data, attempt, node)

    def cut(self, attempt: int, node: str) -> None:
        """Ends the link of a node that does not answer; it may call again."""
        self._loop.call_soon_threadsafe(self._cut, (node, attempt))

    def num_open(self, attempt: int) -> int:
        """How many nodes of an attempt have a link now."""
        return len(self.open_nodes(attempt))

    def open_nodes(self, attempt: int) -> list[str]:
        """The nodes of an attempt that have a link now."""
        return [node for node, number in list(self._writers) if number == attempt]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(
            self._on_link,
            self._host,
            self._port,
            ssl=self._credentials.server_context(),
            ssl_handshake_timeout=HELLO_TIMEOUT_S,
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        current = asyncio.current_task()
        while True:
            tasks = [task for task in asyncio.all_tasks() if task is not current]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for transport in self._links:
                transport.abort()
            # The loop must run on: it closes the sockets, and a caller it has just accepted may
            # become a link yet.
            await asyncio.sleep(0.01)
            if not self._forget_closed() and len(asyncio.all_tasks()) == 1:
                return

    def _send(self, data: bytes, attempt: int, node: str | None) -> None:
        for (name, number), writer in list(self._writers.items()):
            if number == attempt and node in (None, name):
                writer.write(data)

    def _cut(self, key: tuple[str, int]) -> None:
        if key in self._writers:
            # Not close(), which waits for the other end to agree.
            self._writers[key].transport.abort()

    def _on_link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # No coroutine: one that is cancelled before it begins would leave its socket open.
        self._links[writer.transport] = writer.get_extra_info("socket")
        task = self._loop.create_task(self._serve_link(reader, writer))
        self._tasks.add(task)  # the loop itself does not keep it
        task.add_done_callback(self._tasks.discard)

    async def _serve_link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key: tuple[str, int] | None = None
        self._num_links += 1
        try:
            hello = await asyncio.wait_for(self._read(reader), HELLO_TIMEOUT_S)
            if not self._is_admitted(hello):
                raise WireError(problem="A caller on the control link was not let in.")
            key = (hello.node, hello.attempt)  # type: ignore[attr-defined]
            self._writers[key] = writer
            self._on_opened(*key)
            while True:
                message = await self._read(reader)
                self._on_message(*key, message)
        except (WireError, TimeoutError):
            self.num_rejected += 1
        except (asyncio.IncompleteReadError, OSError):
            pass  # the peer is gone, which is how every link ends
        except asyncio.CancelledError:
            pass  # the server closes
        finally:
            self._num_links -= 1
            writer.close()
            self._forget_closed()
            if key is not None and self._writers.get(key) is writer:
                del self._writers[key]
                self._on_closed(*key)

    def _forget_closed(self) -> int:
        """Drops links whose socket is closed, some time after close(); returns how many stay."""
        links = self._links.items()
        self._links = {transport: end for transport, end in links if end.fileno() >= 0}
        return len(self._links)

    def _is_admitted(self, hello: Message) -> bool:
        return (
            isinstance(hello, Hello)
            and self._num_links <= MAX_LINKS
            and hello.protocol == PROTOCOL
            and hello.run_id == self._run_id
            and hmac.compare_digest(
                hello.token.encode(errors="replace"), self._credentials.token.encode()
            )
        )

    async def _read(self, reader: asyncio.StreamReader) -> Message:
        header = await reader.readexactly(frames.HEADER.size)
        body = await reader.readexactly(frames.decode_header(header))
        return from_dict(frames.decode_body(body))
