"""A node without a driver: never held up, keeps its last lines, finds the driver again."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from sparktrain.spec import ControlAddress
from sparktrain.wire import client as client_module
from sparktrain.wire.client import ControlClient
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Hello, Joined, Log, Progress
from sparktrain.wire.server import ControlServer

CREDENTIALS = Credentials.make()


@pytest.fixture(autouse=True, scope="module")
def _collect() -> Iterator[None]:
    yield
    gc.collect()


def wait_until(is_so: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def take_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_client(port: int, kept_lines: int = 1000, certificate: str = "") -> ControlClient:
    certificate = certificate or CREDENTIALS.certificate
    address = ControlAddress("127.0.0.1", port, CREDENTIALS.token, certificate)
    hello = Hello("worker:0", "run-1", 0, CREDENTIALS.token)
    return ControlClient(address, hello, lambda message: None, kept_lines)


@contextmanager
def listen(port: int, received: list[Message]) -> Iterator[ControlServer]:
    server = ControlServer(
        "127.0.0.1",
        port,
        "run-1",
        CREDENTIALS,
        lambda node, attempt, message: received.append(message),
        lambda node, attempt: None,
    )
    with server:
        yield server


def lines_of(messages: list[Message]) -> list[str]:
    return [line for one in list(messages) if isinstance(one, Log) for line in one.lines]


def test_without_a_driver_nothing_raises_and_nothing_waits() -> None:
    started = time.monotonic()
    with make_client(take_port()) as client:
        for number in range(1000):
            client.log(str(number))
            client.send(Progress(step=number))
        assert time.monotonic() - started < 2.0
    assert time.monotonic() - started < 4.0


def test_beyond_the_kept_lines_the_oldest_are_dropped_and_counted() -> None:
    client = make_client(take_port(), kept_lines=10).__enter__()
    for number in range(25):
        client.log(str(number))
    assert client.close() == ([str(number) for number in range(15, 25)], 15)


def test_unsent_lines_are_handed_back_when_the_link_closes() -> None:
    client = make_client(take_port()).__enter__()
    client.log("a")
    client.log("b")
    assert client.close() == (["a", "b"], 0)
    assert client.close() == (["a", "b"], 0)


def test_a_client_without_an_address_only_collects() -> None:
    hello = Hello("worker:0", "run-1", 0, "")
    client = ControlClient(None, hello, lambda message: None, kept_lines=2)
    with client:
        client.send(Joined(host="h", pid=1))
        for line in "abc":
            client.log(line)
        assert client.close() == (["b", "c"], 1)
        client.log("d")  # after the end: collected, never raised
    assert client.close() == (["c", "d"], 2)


def test_closing_without_a_driver_ends_the_thread_soon() -> None:
    client = make_client(take_port()).__enter__()
    time.sleep(0.3)  # long enough to be between two attempts to connect
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < 2.0
    assert "sparktrain-link" not in [one.name for one in threading.enumerate()]


def test_a_driver_that_comes_up_later_gets_everything() -> None:
    port, received = take_port(), []
    with make_client(port) as client:
        client.log("early")
        client.send(Joined(host="h", pid=1))
        time.sleep(0.1)
        with listen(port, received):
            wait_until(lambda: len(received) == 2)
            client.log("late")
            wait_until(lambda: len(received) == 3)
    assert received == [Log(lines=["early"]), Joined(host="h", pid=1), Log(lines=["late"])]


def test_the_first_lines_after_an_outage_tell_how_many_are_missing() -> None:
    port, received = take_port(), []
    with make_client(port, kept_lines=3) as client:
        for number in range(8):
            client.log(str(number))
        with listen(port, received):
            wait_until(lambda: bool(received))
            client.log("8")
            wait_until(lambda: len(received) == 2)
    assert received == [Log(lines=["5", "6", "7"], dropped=5), Log(lines=["8"], dropped=0)]


def test_a_driver_that_goes_away_is_found_again_on_the_same_port() -> None:
    port, first, second = take_port(), [], []
    with make_client(port) as client:
        with listen(port, first):
            client.log("before")
            wait_until(lambda: lines_of(first) == ["before"])
        wait_until(lambda: not is_connected(port))
        for number in range(5):
            client.log(str(number))
        client.send(Joined(host="h", pid=1))
        with listen(port, second):
            wait_until(lambda: Joined(host="h", pid=1) in second)
        assert lines_of(second) == ["0", "1", "2", "3", "4"]


def is_connected(port: int) -> bool:
    links = psutil.Process().net_connections("tcp")
    return any(one.raddr and one.raddr.port == port for one in links)


def test_a_driver_that_goes_away_holds_up_nobody() -> None:
    port, received = take_port(), []
    client = make_client(port, kept_lines=50).__enter__()
    with listen(port, received):
        client.log("before")
        wait_until(lambda: bool(received))
    wait_until(lambda: not is_connected(port))
    started = time.monotonic()
    for number in range(1000):
        client.log(str(number))
        client.send(Progress(step=number))
    lines, dropped = client.close()
    assert time.monotonic() - started < 3.0
    assert lines == [str(number) for number in range(950, 1000)]
    assert dropped == 950


def test_a_client_that_trusts_another_certificate_tells_nothing() -> None:
    received: list[Message] = []
    with listen(0, received) as server:
        client = make_client(server.port, certificate=Credentials.make().certificate).__enter__()
        client.log("secret")
        client.send(Joined(host="h", pid=1))
        time.sleep(0.4)
        assert client.close() == (["secret"], 0)
        assert received == []
        assert server.num_open(0) == 0


def test_a_command_handler_that_fails_does_not_end_the_link() -> None:
    received: list[Message] = []
    with listen(0, received) as server, make_client(server.port) as client:
        client._on_command = lambda message: 1 / 0  # type: ignore[assignment, return-value]
        wait_until(lambda: server.num_open(0) == 1)
        server.send(Joined(host="h", pid=1), attempt=0)
        time.sleep(0.05)
        client.log("after")
        wait_until(lambda: lines_of(received) == ["after"])


def test_a_client_that_is_turned_away_does_not_hammer_the_driver() -> None:
    with listen(0, []) as server:
        address = ControlAddress("127.0.0.1", server.port, "wrong", CREDENTIALS.certificate)
        hello = Hello("worker:0", "run-1", 0, "wrong")
        with ControlClient(address, hello, lambda message: None, kept_lines=10):
            wait_until(lambda: server.num_rejected >= 1)
            time.sleep(0.5)
        assert server.num_rejected <= 1 + 0.5 / (client_module.RETRY_FIRST_S / 2)
