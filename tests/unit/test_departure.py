"""Leaving together: nobody goes before all are done; who is out of reach is not waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sparktrain.agent import departure
from sparktrain.agent.departure import Departure
from sparktrain.spec import make_nodes

HOST = "127.0.0.1"


class Group:
    """The departures of several nodes, and the order in which they left."""

    def __init__(self, size: int, stack: ExitStack) -> None:
        nodes = make_nodes(size)
        self.left: list[int] = []
        self.lines: list[str] = []
        self.members = [
            stack.enter_context(Departure(node, nodes, "run-1", self.lines.append))
            for node in nodes
        ]
        self.desks = [member.open(HOST) for member in self.members]
        self._threads: list[threading.Thread] = []

    def join(self, *ranks: int) -> None:
        for rank in ranks:
            self.members[rank].join(self.desks[0])

    def await_link(self, rank: int) -> None:
        """Until both ends know that a node has found the desk."""
        deadline = time.monotonic() + 10
        server, client = self.members[0]._server, self.members[rank]._client
        assert server is not None and client is not None
        while not (client.is_linked and server.open_nodes(0)):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def leave(self, rank: int) -> None:
        def work() -> None:
            with self.members[rank]:
                self.members[rank].wait()
            self.left.append(rank)

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def make_group() -> Iterator[Callable[[int], Group]]:
    with ExitStack() as stack:
        yield lambda size: Group(size, stack)


def test_only_the_first_node_keeps_a_desk(make_group: Callable[[int], Group]) -> None:
    desks = make_group(3).desks
    assert desks[0] is not None and desks[1:] == [None, None]
    assert desks[0].token not in repr(desks[0])


def test_a_single_node_does_not_wait(make_group: Callable[[int], Group]) -> None:
    group = make_group(1)
    assert group.desks == [None]
    group.join(0)
    group.leave(0)
    group.finish()
    assert group.left == [0] and group.lines == []


@pytest.mark.parametrize("last", [0, 1, 2])
def test_nobody_leaves_before_the_last(make_group: Callable[[int], Group], last: int) -> None:
    group = make_group(3)
    group.join(0, 1, 2)
    for rank in {0, 1, 2} - {last}:
        group.leave(rank)
    time.sleep(0.7)
    assert group.left == []
    group.leave(last)
    group.finish()
    assert sorted(group.left) == [0, 1, 2] and group.lines == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_that_is_ended_does_not_wait(make_group: Callable[[int], Group], rank: int) -> None:
    group = make_group(2)
    group.join(0, 1)
    group.leave(rank)
    time.sleep(0.3)
    assert group.left == []
    group.members[rank].give_up()
    group.finish()
    assert group.left == [rank]


def test_nodes_without_a_link_leave_alone(
    make_group: Callable[[int], Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "UNLINKED_WAIT_S", 0.5)
    group = make_group(3)
    group.join(0, 1)  # the third never finds the desk
    group.await_link(1)
    group.leave(0)
    group.leave(1)
    group.finish()
    assert sorted(group.left) == [0, 1]
    assert group.lines == [
        "sparktrain: no link to worker:1 for 0.5 s; this node leaves without waiting"
    ]


def test_a_desk_that_vanished_is_not_waited_for(
    make_group: Callable[[int], Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "UNLINKED_WAIT_S", 0.5)
    group = make_group(2)
    group.join(0, 1)
    group.await_link(1)
    with group.members[0]:
        pass  # closes the desk
    group.leave(1)
    group.finish()
    assert group.left == [1] and "no link to chief:0" in group.lines[0]


def test_an_address_of_another_machine_means_leaving_alone(
    make_group: Callable[[int], Group],
) -> None:
    group = make_group(2)
    with group.members[0]:
        nodes = make_nodes(2)
        with Departure(nodes[0], nodes, "run-2", group.lines.append) as chief:
            assert chief.open("192.0.2.1") is None
            chief.join(None)
            chief.wait()
        assert "cannot listen on 192.0.2.1" in group.lines[0]
        group.members[1].join(None)
        group.leave(1)
        group.finish()
        assert group.left == [1]
