"""How nodes meet: cards, differences in software, addresses, and ports that stay theirs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparktrain.agent.rendezvous import (
    find_differences,
    find_versions,
    make_card,
    meet,
    reserve_port,
)
from sparktrain.spec import make_nodes
from sparktrain.version import __version__


class Meeting:
    """Spark's allGather for threads instead of tasks."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._messages = [""] * size

    def seat(self, position: int) -> Seat:
        return Seat(self, position)

    def gather(self, position: int, message: str) -> list[str]:
        self._messages[position] = message
        self._barrier.wait(5)
        return list(self._messages)


class Seat:
    """One task's place at the meeting."""

    def __init__(self, meeting: Meeting, position: int) -> None:
        self._meeting = meeting
        self._position = position

    def allGather(self, message: str = "") -> list[str]:  # noqa: N802 (Spark's name)
        return self._meeting.gather(self._position, message)


def test_all_nodes_get_all_cards_in_the_order_of_the_nodes() -> None:
    nodes = make_nodes(3)
    meeting = Meeting(3)
    cards = [make_card(node, f"host-{i}", 4000 + i, i == 0) for i, node in enumerate(nodes)]
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(meet, meeting.seat(i), card) for i, card in enumerate(cards)]
        answers = [one.result(timeout=10) for one in asked]
    assert answers == [cards, cards, cards]
    assert [card.node for card in answers[0]] == ["chief:0", "worker:0", "worker:1"]
    assert [card.sees_run_dir for card in answers[0]] == [True, False, False]


def test_a_card_tells_the_versions_that_matter() -> None:
    card = make_card(make_nodes(1)[0], "h", 1, True)
    assert card.versions == find_versions()
    assert card.versions["sparktrain"] == __version__
    assert set(card.versions) == {
        "python",
        "sparktrain",
        "tensorflow",
        "keras",
        "tf-keras",
        "numpy",
    }


def test_the_same_software_has_no_differences() -> None:
    same = {"python": "3.11", "numpy": "2.0"}
    assert find_differences([("a", same), ("b", dict(same))]) == {}
    assert find_differences([]) == {}


def test_differences_name_each_value_and_who_has_it() -> None:
    found = find_differences(
        [
            ("chief:0", {"numpy": "2.0", "keras": "3.10", "python": "3.11"}),
            ("worker:0", {"numpy": "2.1", "keras": "3.10", "python": "3.11"}),
            ("worker:1", {"numpy": "2.0", "keras": "none", "python": "3.11"}),
        ]
    )
    assert found == {
        "keras": {"3.10": ("chief:0", "worker:0"), "none": ("worker:1",)},
        "numpy": {"2.0": ("chief:0", "worker:1"), "2.1": ("worker:0",)},
    }


def test_what_a_node_does_not_tell_is_no_difference() -> None:
    driver = ("driver", {"sparktrain": "1"})
    assert find_differences([driver, ("chief:0", {"sparktrain": "1", "numpy": "2"})]) == {}
    assert find_differences([driver, ("chief:0", {"sparktrain": "2"})]) == {
        "sparktrain": {"1": ("driver",), "2": ("chief:0",)}
    }


@pytest.fixture
def port() -> Iterator[int]:
    with reserve_port() as holder:
        yield int(holder.getsockname()[1])


def test_a_port_may_be_named(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORFLOW_PORT", str(port))
    with reserve_port() as other:  # somebody has it
        assert other.getsockname()[1] not in (0, port)
        named = other.getsockname()[1]
    monkeypatch.setenv("TENSORFLOW_PORT", str(named))
    with reserve_port() as first, reserve_port() as second, socket.socket() as ours:
        assert first.getsockname()[1] == named != second.getsockname()[1]
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind(("0.0.0.0", named))  # as TensorFlow does


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
def test_nobody_else_can_take_a_reserved_port(port: int, address: str) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((address, port))


def test_tensorflow_can_listen_on_a_reserved_port_and_gets_all_calls(port: int) -> None:
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind(("0.0.0.0", port))
        ours.listen()
        ours.settimeout(5)
        for _ in range(20):  # if the holder got a share of the calls, some would not arrive
            with socket.create_connection(("127.0.0.1", port), timeout=5) as call:
                accepted, caller = ours.accept()
                accepted.close()
                assert caller == call.getsockname()


def test_a_reserved_port_alone_takes_no_calls(port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_reserved_ports_are_different() -> None:
    holders = [reserve_port() for _ in range(20)]
    try:
        assert len({holder.getsockname()[1] for holder in holders}) == 20
    finally:
        for holder in holders:
            holder.close()


def test_a_port_is_free_again_when_its_holder_closes() -> None:
    with reserve_port() as holder:
        port = holder.getsockname()[1]
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
