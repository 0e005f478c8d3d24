"""Callers the driver does not know: cut off and counted, without harm to the nodes."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.spec import ControlAddress
from sparktrain.wire import frames
from sparktrain.wire import server as server_module
from sparktrain.wire.client import ControlClient
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.message import Message
from sparktrain.wire.messages import PROTOCOL, Hello, Joined, Log
from sparktrain.wire.server import ControlServer

CREDENTIALS = Credentials.make()
HELLO = Hello("worker:9", "run-1", 0, CREDENTIALS.token).to_dict()


@pytest.fixture(autouse=True, scope="module")
def _collect() -> Iterator[None]:
    yield
    gc.collect()


class Scene:
    """A driver with one good node on its link."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Message]] = []
        self.closed: list[str] = []
        self.server = ControlServer(
            "127.0.0.1",
            0,
            "run-1",
            CREDENTIALS,
            lambda node, attempt, message: self.received.append((node, message)),
            lambda node, attempt: self.closed.append(node),
        )
        self.num_checks = 0

    def check_good_link(self) -> None:
        """The node that was there before can still talk, over the same link."""
        self.num_checks += 1
        told = ("chief:0", Log(lines=[f"check {self.num_checks}"]))
        self.node.log(f"check {self.num_checks}")
        wait_until(lambda: told in self.received)
        assert "chief:0" not in self.closed


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    with scene.server:
        token, certificate = CREDENTIALS.token, CREDENTIALS.certificate
        address = ControlAddress("127.0.0.1", scene.server.port, token, certificate)
        hello = Hello("chief:0", "run-1", 0, token)
        with ControlClient(address, hello, lambda message: None, 100) as scene.node:
            scene.check_good_link()
            yield scene
            scene.check_good_link()
            assert {node for node, _ in scene.received} <= {"chief:0", "worker:9"}


def wait_until(is_so: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def call(port: int) -> ssl.SSLSocket:
    """A TLS connection of a stranger, who trusts anyone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=5))


def read_to_end(stream: socket.socket) -> bytes:
    """What came until the other side closed; a TimeoutError if it does not."""
    answer = b""
    try:
        while chunk := stream.recv(4096):
            answer += chunk
    except TimeoutError:
        raise
    except OSError:
        pass  # closed the hard way
    return answer


def pack(body: bytes) -> bytes:
    return frames.HEADER.pack(len(body)) + body


STRANGERS: dict[str, bytes] = {
    "wrong token": frames.encode({**HELLO, "token": "wrong"}),
    "empty token": frames.encode({**HELLO, "token": ""}),
    "part of the token": frames.encode({**HELLO, "token": CREDENTIALS.token[:-1]}),
    "token with umlaut": frames.encode({**HELLO, "token": "ü"}),
    "wrong run": frames.encode({**HELLO, "run_id": "run-2"}),
    "wrong protocol": frames.encode({**HELLO, "protocol": PROTOCOL + 1}),
    "no hello": frames.encode(Joined(host="h", pid=1).to_dict()),
    "hello without token": frames.encode({k: v for k, v in HELLO.items() if k != "token"}),
    "hello with more": frames.encode({**HELLO, "admin": True}),
    "unknown kind": frames.encode({**HELLO, "kind": "open sesame"}),
    "http": b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n",
    "oversized": frames.HEADER.pack(2**32 - 1) + b"x" * 100,
    "just oversized": frames.HEADER.pack(frames.MAX_FRAME_BYTES + 1),
    "no json": pack(b"\xff\x00\xfe"),
    "empty": pack(b""),
    "list": pack(b"[]"),
    "deep": pack(b"[" * 100_000),
}


@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_stranger_is_cut_off_and_counted(scene: Scene, data: bytes) -> None:
    with call(scene.server.port) as stream:
        stream.sendall(data)
        assert read_to_end(stream) == b""
    wait_until(lambda: scene.server.num_rejected == 1)
    assert scene.server.num_open(0) == 1
    assert {node for node, _ in scene.received} == {"chief:0"}


def test_a_token_that_is_no_unicode_is_cut_off_and_counted(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    body = frames.encode({**HELLO, "token": "here"})[4:].replace(b"here", b"\\ud800")
    with call(scene.server.port) as stream:
        stream.sendall(pack(body))
        assert read_to_end(stream) == b""
    wait_until(lambda: scene.server.num_rejected == 1, timeout_s=0.5)
    assert caplog.records == []


def test_the_right_hello_is_let_in(scene: Scene) -> None:
    with call(scene.server.port) as stream:
        stream.sendall(frames.encode(HELLO) + frames.encode(Joined(host="h", pid=1).to_dict()))
        wait_until(lambda: ("worker:9", Joined(host="h", pid=1)) in scene.received)
        assert scene.server.num_rejected == 0
        assert scene.server.num_open(0) == 2


@pytest.mark.parametrize(
    "data",
    [
        frames.encode({"kind": "joined", "host": "h", "pid": "many"}),
        frames.encode({"kind": "nosuch"}),
        pack(b"{"),
        frames.HEADER.pack(2**31),
    ],
    ids=["wrong field", "unknown kind", "no json", "oversized"],
)
def test_a_malformed_message_ends_its_own_link_only(scene: Scene, data: bytes) -> None:
    with call(scene.server.port) as stream:
        stream.sendall(frames.encode(HELLO))
        wait_until(lambda: scene.server.num_open(0) == 2)
        stream.sendall(data + frames.encode(Joined(host="h", pid=1).to_dict()))
        assert read_to_end(stream) == b""
    wait_until(lambda: scene.closed == ["worker:9"])
    assert scene.server.num_rejected == 1
    assert scene.server.num_open(0) == 1
    assert "worker:9" not in [node for node, _ in scene.received]


def test_a_caller_without_tls_is_cut_off(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.server.port), timeout=5) as stream:
        stream.sendall(frames.encode(HELLO))
        assert CREDENTIALS.token.encode() not in read_to_end(stream)
    assert {node for node, _ in scene.received} == {"chief:0"}
    assert scene.server.num_open(0) == 1


def test_a_caller_that_hangs_up_inside_a_frame_does_no_harm(scene: Scene) -> None:
    for part in (b"", b"\x00\x00", frames.encode(HELLO)[:-1]):
        with call(scene.server.port) as stream:
            stream.sendall(part)
        scene.check_good_link()
    assert scene.server.num_open(0) == 1


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00", frames.encode(HELLO)[:-1]])
def test_a_caller_that_does_not_say_who_it_is_is_cut_off(
    scene: Scene, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HELLO_TIMEOUT_S", 0.1)
    with call(scene.server.port) as stream:
        stream.sendall(data)
        assert read_to_end(stream) == b""
    wait_until(lambda: scene.server.num_rejected == 1)


def test_more_links_than_the_limit_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_LINKS", 1)
    with call(scene.server.port) as stream:
        stream.sendall(frames.encode(HELLO))
        assert read_to_end(stream) == b""
    wait_until(lambda: scene.server.num_rejected == 1)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def test_a_pickle_is_never_opened(scene: Scene, tmp_path: Path) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        trap = pickle.dumps(Trap(tmp_path / "sprung"), protocol)
        for data in (pack(trap), frames.encode(HELLO) + pack(trap)):
            with call(scene.server.port) as stream:
                stream.sendall(data)
                assert read_to_end(stream) == b""
    wait_until(lambda: scene.server.num_rejected == 2 * (pickle.HIGHEST_PROTOCOL + 1))
    assert list(tmp_path.iterdir()) == []
    pickle.loads(trap)  # the trap works
    assert (tmp_path / "sprung").is_dir()
