"""The driver's end of a cluster over real links: outages, and what is said again behind them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.data.schema import Column
from sparktrain.driver import pulse
from sparktrain.driver.hub import Hub
from sparktrain.driver.plan import Plan
from sparktrain.driver.pulse import Pulse
from sparktrain.driver.record import RunRecord
from sparktrain.wire.client import ControlClient
from sparktrain.wire.cluster_messages import (
    Announce,
    Arrived,
    Beat,
    Catch,
    Flush,
    Flushed,
    Forget,
    Here,
    Meet,
    NoMore,
    Pace,
    Taken,
)
from sparktrain.wire.message import Message
from sparktrain.wire.messages import End, Failed, Hello, Joined, Returned

CHIEF, WORKER = "chief:0", "worker:0"
COLUMNS = (Column("x", "long"),)


@pytest.fixture
def hub(make_plan: Callable[..., Plan], tmp_path: Path) -> Iterator[Hub]:
    plan = make_plan(tmp_path)
    with RunRecord(plan) as record, Hub(plan, record, "127.0.0.1", "127.0.0.1") as hub:
        yield hub


class Node:
    """A node's link, and what it heard."""

    def __init__(
        self, hub: Hub, name: str, on_again: Callable[[], None] = lambda: None, answers: bool = True
    ) -> None:
        assert hub.address is not None
        self.heard: list[Message] = []
        self._answers = answers
        hello = Hello(name, "r1", 0, hub.address.token)
        self.link = ControlClient(hub.address, hello, self._on_command, 100, on_again)

    def _on_command(self, message: Message) -> None:
        self.heard.append(message)
        if isinstance(message, Beat) and self._answers:
            self.link.send(Here())

    def __enter__(self) -> Node:
        self.link.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.link.close()

    def told(self) -> list[Message]:
        return [message for message in self.heard if not isinstance(message, Beat)]


def make_card(name: str, port: int = 1, devices: tuple[str, ...] = ()) -> dict[str, Any]:
    from sparktrain.version import __version__

    door = {"node": name, "host": "h", "port": 2, "path": "", "certificate": ""}
    versions = {"sparktrain": __version__}
    card = {"node": name, "host": "h", "port": port, "versions": versions, "door": door}
    return {**card, "devices": list(devices)}


def wait_until(is_so: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def test_a_node_that_is_back_is_not_lost_though_it_says_nothing(hub: Hub) -> None:
    with Node(hub, WORKER) as node:
        node.link.send(Joined(host="h", pid=1))
        wait_until(lambda: hub.snapshot.num_joined == 1)
    wait_until(lambda: hub.find_lost(0.0, lambda name: True) == WORKER)
    with Node(hub, WORKER):
        wait_until(lambda: hub.num_links() == 1)
        assert hub.snapshot.lost == ()
        assert hub.find_lost(0.0, lambda name: True) is None


def test_a_lost_node_that_does_not_count_hides_no_other(hub: Hub) -> None:
    for name in (WORKER, CHIEF):
        with Node(hub, name):
            wait_until(lambda: hub.num_links() == 1)
        wait_until(lambda name=name: name in hub.snapshot.lost)  # type: ignore[misc]
    time.sleep(0.01)
    assert hub.find_lost(0.0, lambda name: True) == WORKER
    assert hub.find_lost(0.0, lambda name: name != WORKER) == CHIEF
    assert hub.find_lost(60.0, lambda name: True) is None


def test_a_node_hears_what_was_said_while_it_had_no_link(hub: Hub) -> None:
    with Node(hub, CHIEF) as chief, Node(hub, WORKER) as worker:
        chief.link.send(Arrived(make_card(CHIEF)))
        worker.link.send(Arrived(make_card(WORKER)))
        wait_until(lambda: len(chief.told()) == len(worker.told()) == 1)
        (meet,) = chief.told()
        assert isinstance(meet, Meet)
        worker.__exit__()
        wait_until(lambda: hub.num_links() == 1)
        hub.announce("train", COLUMNS)
        hub.forget("f.0")
        with hub._changed:
            hub._paces["train"] = {WORKER: (3, True)}
        chief.link.send(Pace("train", 5, False))
        wait_until(lambda: (WORKER, "train") in hub._catches)
        hub.ask(Flush("f.1", "train"), WORKER)
        hub.finish_feeds()
        hub.end_nodes("another node failed", may_restart=False)
        announce = Announce("train", [column.to_dict() for column in COLUMNS])
        end = End("another node failed", may_restart=False)
        with Node(hub, WORKER) as again:
            again.link.send(Arrived(make_card(WORKER)))
            wait_until(lambda: len(again.told()) >= 7)
            asked = [Catch("train", 5), Flush("f.1", "train")]
            assert again.told() == [meet, announce, Forget("f.0"), *asked, NoMore(), end]
            again.link.send(Flushed("f.1"))
            wait_until(lambda: (WORKER, "f.1") in hub.flushed)
            assert not hub.is_doubled
            # The others have heard all of it once.
            wait_until(lambda: end in chief.told())
            assert chief.told() == [meet, announce, Forget("f.0"), NoMore(), end]
        with Node(hub, WORKER) as other:
            other.link.send(Arrived(make_card(WORKER, port=9)))
            wait_until(lambda: hub.is_doubled)


def test_nodes_with_the_same_gpu_are_not_introduced(hub: Hub) -> None:
    with Node(hub, CHIEF) as chief, Node(hub, WORKER) as worker:
        chief.link.send(Arrived(make_card(CHIEF, devices=("GPU-1", "GPU-2"))))
        worker.link.send(Arrived(make_card(WORKER, devices=("GPU-2",))))
        wait_until(lambda: bool(hub.doubled))
        assert hub.doubled.startswith("chief:0 on h and worker:0 on h took the same GPU, GPU-2")
        assert not chief.told() and not worker.told()


def test_what_is_told_twice_counts_once(hub: Hub) -> None:
    failure = {"node": CHIEF, "host": "h", "kind": "exit", "what": "ended", "exit_code": 1}
    failure |= {"signal": None, "traceback": "", "tail": [], "is_echo": False, "differences": None}
    with Node(hub, CHIEF) as node:
        for rows in (3, 5, 3, 5):
            node.link.send(Taken("f.0", rows))
        for message in (Joined("h", 1), Returned(), Joined("h", 1)):
            node.link.send(message)
        wait_until(lambda: hub.snapshot.nodes[CHIEF].status == "returned")
        node.link.send(Failed(failure))
        node.link.send(Failed(failure))
        node.link.send(Taken("last", 1))
        wait_until(lambda: (CHIEF, "last") in hub.taken)
    assert hub.taken[CHIEF, "f.0"] == 5 and hub.num_taken == 6
    assert len(hub.snapshot.failures) == 1
    assert hub.snapshot.nodes[CHIEF].status == "failed"


def test_a_node_is_asked_what_it_told_when_its_link_comes_back(hub: Hub) -> None:
    def tell() -> None:
        node.link.send(Taken("f.0", 7))

    node = Node(hub, CHIEF, tell)
    with node:
        wait_until(lambda: hub.num_links() == 1)
        assert hub.taken == {}  # not for the first link
        assert hub._server is not None
        hub._server.cut(0, CHIEF)
        wait_until(lambda: hub.taken == {(CHIEF, "f.0"): 7})
        hub.forget("f.0")
        node.link.relink()
        wait_until(lambda: hub.taken == {(CHIEF, "f.0"): 7})


def test_a_silent_link_is_cut_and_others_are_not(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "SILENT_S", 1.0)
    with Node(hub, CHIEF), Node(hub, WORKER, answers=False) as silent:
        wait_until(lambda: hub.num_links() == 2)
        cut: list[str] = []
        while not cut:
            hub.beat()
            time.sleep(0.1)
            cut = list(hub.snapshot.lost)
        assert cut == [WORKER]
        assert len([one for one in silent.heard if isinstance(one, Beat)]) > pulse.MIN_BEATS


def test_silence_is_time_and_beats_without_an_answer() -> None:
    rhythm = Pulse()
    rhythm.hear("a", 0.0)
    assert rhythm.beat(["a"], 100.0) == []  # the driver itself has slept
    for now in (101.0, 102.0):
        assert rhythm.beat(["a"], now) == []
    assert rhythm.beat(["a"], 103.0) == ["a"]
    rhythm.hear("a", 103.5)
    for beat in range(16):
        assert rhythm.beat(["a"], 104.0 + beat / 4) == []  # many, in a short time
