"""The lifeline: it tells when the peer of an earlier connection is gone, and only then."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from sparktrain.agent import lifeline
from sparktrain.agent.lifeline import Lifeline, find_connections

#: Longer than the lifeline sleeps between two looks.
QUIET_S = 0.3

Pair = tuple[socket.socket, socket.socket]


class Calls:
    """An on_gone that counts."""

    def __init__(self) -> None:
        self.count = 0
        self.called = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self.called.set()


def connect_tcp() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


@pytest.fixture(params=[socket.socketpair, connect_tcp], ids=["unix", "tcp"])
def connect(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Pair]]:
    """Makes connections of which only our end is seen: the peer is another process's."""
    earlier = set(find_connections())  # not of this test
    with contextlib.ExitStack() as stack:

        def make() -> Pair:
            ours, peer = request.param()
            stack.enter_context(ours)
            stack.enter_context(peer)
            earlier.add(peer.fileno())
            return ours, peer

        monkeypatch.setattr(
            lifeline,
            "find_connections",
            lambda: [number for number in find_connections() if number not in earlier],
        )
        yield make


def list_descriptors() -> set[int]:
    found = set()
    for number in range(1024):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.add(number)
    return found


def test_a_peer_that_closes_is_told_once(connect: Callable[[], Pair]) -> None:
    _, peer = connect()
    calls = Calls()
    with Lifeline(calls):
        peer.close()
        assert calls.called.wait(2)
        time.sleep(QUIET_S)
    assert calls.count == 1


def test_two_peers_that_close_are_told_once(connect: Callable[[], Pair]) -> None:
    peers = [connect()[1] for _ in range(2)]
    calls = Calls()
    with Lifeline(calls):
        for peer in peers:
            peer.close()
            assert calls.called.wait(2)
        time.sleep(QUIET_S)
    assert calls.count == 1


def test_a_peer_that_closes_behind_unread_bytes_is_told(connect: Callable[[], Pair]) -> None:
    ours, peer = connect()
    calls = Calls()
    with Lifeline(calls):
        peer.sendall(b"unread")
        peer.close()
        assert calls.called.wait(2)
    assert ours.recv(100) == b"unread"


def test_a_peer_that_was_gone_before_is_told(connect: Callable[[], Pair]) -> None:
    connect()[1].close()
    calls = Calls()
    with Lifeline(calls):
        assert calls.called.wait(2)


def test_nothing_is_told_while_the_peer_lives(connect: Callable[[], Pair]) -> None:
    ours, peer = connect()
    calls = Calls()
    with Lifeline(calls):
        peer.sendall(b"still here")
        time.sleep(QUIET_S)
        assert calls.count == 0
        assert ours.recv(100) == b"still here"  # the lifeline takes no byte of it
        ours.sendall(b"so are we")
        assert peer.recv(100) == b"so are we"
    assert calls.count == 0


def test_nothing_is_told_after_the_end(connect: Callable[[], Pair]) -> None:
    _, peer = connect()
    calls = Calls()
    with Lifeline(calls):
        pass
    peer.close()
    time.sleep(QUIET_S)
    assert calls.count == 0


def test_connections_opened_later_are_not_watched(connect: Callable[[], Pair]) -> None:
    _, watched = connect()
    calls = Calls()
    with Lifeline(calls):
        connect()[1].close()
        time.sleep(QUIET_S)
        assert calls.count == 0
        watched.close()
        assert calls.called.wait(2)


def test_a_later_file_of_the_same_number_is_not_watched_instead(
    connect: Callable[[], Pair],
) -> None:
    ours, watched = connect()
    calls = Calls()
    with Lifeline(calls):
        later, peer = connect()
        os.dup2(later.fileno(), ours.fileno())
        peer.close()
        time.sleep(QUIET_S)
        assert calls.count == 0
        watched.close()
        assert calls.called.wait(2)


@pytest.mark.parametrize("is_gone", [False, True], ids=["lives", "gone"])
def test_the_end_leaves_no_thread_and_no_descriptor(
    connect: Callable[[], Pair], is_gone: bool
) -> None:
    ours, peer = connect()
    if is_gone:
        peer.close()
    threads, descriptors = set(threading.enumerate()), list_descriptors()
    for _ in range(3):
        with Lifeline(Calls()):
            assert len(set(threading.enumerate()) - threads) <= 1
        assert set(threading.enumerate()) <= threads
        assert list_descriptors() == descriptors
    assert ours.fileno() > 0
    assert ours.getblocking()


def test_an_error_within_leaves_nothing_either(connect: Callable[[], Pair]) -> None:
    connect()
    threads, descriptors = set(threading.enumerate()), list_descriptors()
    with pytest.raises(ValueError, match="within"), Lifeline(Calls()):
        raise ValueError("within")
    assert set(threading.enumerate()) <= threads
    assert list_descriptors() == descriptors


def test_a_process_without_connections_is_well(connect: Callable[[], Pair]) -> None:
    calls = Calls()
    with Lifeline(calls):
        time.sleep(QUIET_S)
    assert calls.count == 0


def test_only_connected_sockets_are_connections() -> None:
    before = set(find_connections())
    left, right = socket.socketpair()
    reader, writer = os.pipe()
    with left, right, socket.create_server(("127.0.0.1", 0)), socket.socket():
        descriptors = list_descriptors()
        assert set(find_connections()) - before == {left.fileno(), right.fileno()}
        assert list_descriptors() == descriptors
    os.close(reader)
    os.close(writer)
