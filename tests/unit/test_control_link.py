"""The control link over real loopback TLS: what nodes tell arrives, commands reach them."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from sparktrain.spec import ControlAddress
from sparktrain.wire import frames
from sparktrain.wire.client import ControlClient
from sparktrain.wire.credentials import Credentials, client_context
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Bye, End, Hello, Joined, Log, Progress, Stop
from sparktrain.wire.server import ControlServer

RUN = "run-1"
CREDENTIALS = Credentials.make()


@pytest.fixture(autouse=True, scope="module")
def _collect() -> Iterator[None]:
    yield
    gc.collect()


class Driver:
    """A server and all that reached it."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.received: list[tuple[str, int, Message]] = []
        self.closed: list[tuple[str, int]] = []
        self.server = ControlServer(
            host,
            port,
            RUN,
            CREDENTIALS,
            lambda *told: self.received.append(told),
            lambda *link: self.closed.append(link),
        )
        self._host = host

    def __enter__(self) -> Driver:
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__(*exc)

    def of(self, node: str) -> list[Message]:
        return [message for name, _, message in list(self.received) if name == node]

    def lines(self, node: str) -> list[str]:
        return [line for one in self.of(node) if isinstance(one, Log) for line in one.lines]

    def connect(
        self,
        node: str,
        attempt: int = 0,
        on_command: Callable[[Message], None] = lambda message: None,
    ) -> ControlClient:
        token, certificate = CREDENTIALS.token, CREDENTIALS.certificate
        address = ControlAddress(self._host, self.server.port, token, certificate)
        return ControlClient(address, Hello(node, RUN, attempt, token), on_command, 100_000)


def wait_until(is_so: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def find_connections(port: int) -> list[tuple[str, str]]:
    found = psutil.Process().net_connections("tcp")
    return [(one.laddr.ip, one.status) for one in found if one.laddr.port == port]


def own_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("sparktrain-")]


def test_lines_and_messages_arrive_in_order_under_the_nodes_name() -> None:
    with Driver() as driver:
        with driver.connect("chief:0") as chief, driver.connect("worker:0") as worker:
            for number in range(500):
                chief.log(f"chief {number}")
                worker.log(f"worker {number}")
            chief.send(Joined(host="h", pid=1))
            chief.send(Progress(epoch=1))
            chief.send(Bye())
        wait_until(lambda: len(driver.lines("worker:0")) == len(driver.lines("chief:0")) == 500)
        wait_until(lambda: Bye() in driver.of("chief:0"))
        assert driver.lines("chief:0") == [f"chief {number}" for number in range(500)]
        assert driver.lines("worker:0") == [f"worker {number}" for number in range(500)]
        # Messages go with every batch of lines: the order is one among messages, one among lines.
        others = [one for one in driver.of("chief:0") if not isinstance(one, Log)]
        assert others == [Joined(host="h", pid=1), Progress(epoch=1), Bye()]
        assert {attempt for _, attempt, _ in driver.received} == {0}
        assert all(one.dropped == 0 for _, _, one in driver.received if isinstance(one, Log))
        assert driver.server.num_rejected == 0


def test_closing_sends_all_that_waits_and_hands_back_nothing() -> None:
    with Driver() as driver:
        client = driver.connect("chief:0").__enter__()
        for number in range(3000):
            client.log(str(number))
        assert client.close() == ([], 0)
        wait_until(lambda: len(driver.lines("chief:0")) == 3000)


def test_lines_of_any_text_and_the_longest_length_arrive() -> None:
    lines = ["", "Grüße ☃", "\x00" * 4096, "x" * 4096, "\x1b[31mred"] * 50
    with Driver() as driver, driver.connect("chief:0") as client:
        for line in lines:
            client.log(line)
        wait_until(lambda: len(driver.lines("chief:0")) == len(lines))
        assert driver.lines("chief:0") == lines


def test_commands_reach_the_nodes_of_their_attempt_only() -> None:
    heard: list[tuple[str, Message]] = []
    with (
        Driver() as driver,
        driver.connect("chief:0", 1, lambda message: heard.append(("chief", message))) as chief,
        driver.connect("worker:0", 1, lambda message: heard.append(("worker", message))),
        driver.connect("chief:0", 0, lambda message: heard.append(("earlier", message))),
    ):
        wait_until(lambda: driver.server.num_open(1) == 2 and driver.server.num_open(0) == 1)
        driver.server.send(Stop(), attempt=1)
        driver.server.send(End(reason="another node failed"), attempt=1)
        wait_until(lambda: len(heard) >= 4)
        for who in ("chief", "worker"):
            told = [message for name, message in heard if name == who]
            assert told == [Stop(), End(reason="another node failed")]
        assert len(heard) == 4
        chief.log("still here")
        wait_until(lambda: driver.lines("chief:0") == ["still here"])


def test_the_end_of_a_link_is_told_once_with_its_attempt() -> None:
    with Driver() as driver:
        with driver.connect("worker:0", attempt=3):
            wait_until(lambda: driver.server.num_open(3) == 1)
            assert driver.closed == []
        wait_until(lambda: driver.server.num_open(3) == 0)
        wait_until(lambda: driver.closed == [("worker:0", 3)])
    assert driver.closed == [("worker:0", 3)]


def test_a_link_that_was_replaced_by_the_same_node_ends_unnoticed() -> None:
    with Driver() as driver:
        first = driver.connect("worker:0").__enter__()
        first.log("first")
        wait_until(lambda: driver.lines("worker:0") == ["first"])
        with driver.connect("worker:0") as second:
            second.log("second")
            wait_until(lambda: driver.lines("worker:0") == ["first", "second"])
            first.close()
            second.log("third")
            wait_until(lambda: driver.lines("worker:0")[2:] == ["third"])
            assert driver.closed == []
            assert driver.server.num_open(0) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_the_server_listens_on_the_given_address_only(host: str) -> None:
    with Driver(host) as driver:
        port = driver.server.port
        assert find_connections(port) == [(host, psutil.CONN_LISTEN)]
        other = "127.0.0.2" if host == "127.0.0.1" else "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((other, port), timeout=5)


def test_closing_leaves_no_thread_and_no_listening_port() -> None:
    before = threading.active_count()
    with Driver() as driver, driver.connect("chief:0") as client:
        client.log("a")
        wait_until(lambda: driver.lines("chief:0") == ["a"])
        assert sorted(own_threads()) == ["sparktrain-control", "sparktrain-link"]
    assert own_threads() == []
    assert threading.active_count() == before
    assert psutil.CONN_LISTEN not in dict(find_connections(driver.server.port)).values()
    with Driver(port=driver.server.port) as again:  # the port is free for the next run
        assert again.server.port == driver.server.port


def test_a_port_in_use_is_an_os_error_and_leaves_no_thread() -> None:
    with Driver() as driver:
        with pytest.raises(OSError, match="address already in use"):
            Driver(port=driver.server.port).__enter__()
        assert own_threads() == ["sparktrain-control"]


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_closing_the_server_closes_the_sockets_of_open_links() -> None:
    hello = frames.encode(Hello("worker:0", RUN, 0, CREDENTIALS.token).to_dict())
    with Driver() as driver:
        port = driver.server.port
        raw = socket.create_connection(("127.0.0.1", port), timeout=5)
        # A node that hangs: it is let in, and then never reads what it is sent.
        hung = client_context(CREDENTIALS.certificate).wrap_socket(raw)
        hung.sendall(hello)
        wait_until(lambda: driver.server.num_open(0) == 1)
    with hung:
        wait_until(lambda: find_connections(port) == [], timeout_s=0.5)


def test_closing_the_server_with_open_links_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with Driver() as driver:
        client = driver.connect("chief:0").__enter__()
        wait_until(lambda: driver.server.num_open(0) == 1)
    client.close()
    assert caplog.records == []


# Python's ssl forgets the caller's socket if the server is gone before the handshake.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.usefixtures("_no_collector")
def test_callers_that_come_while_the_server_closes_leave_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some are in the middle of their handshake then, others are links nobody serves yet."""
    context = client_context(CREDENTIALS.certificate)
    for _ in range(20):
        callers: list[socket.socket] = []

        def call(port: int, callers: list[socket.socket] = callers) -> None:
            with contextlib.suppress(OSError):  # the server is gone
                while True:
                    raw = socket.create_connection(("127.0.0.1", port), timeout=5)
                    callers.append(context.wrap_socket(raw))

        with Driver() as driver:
            port = driver.server.port
            threads = [threading.Thread(target=call, args=(port,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            wait_until(lambda callers=callers: len(callers) >= 6)  # type: ignore[misc]
        assert find_connections(port) == []
        for thread in threads:
            thread.join()
        for caller in callers:
            caller.close()
    gc.collect()  # asyncio tells of forgotten tasks when they are collected
    assert caplog.records == []
