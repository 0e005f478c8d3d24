"""Workers and parameter servers over real Flight: values, rules, strangers, broken calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.flight as fl
import pytest

from sparktrain.agent.doors import make_door
from sparktrain.spec import NodeSpec
from sparktrain.trainer.store import Store, StoreError
from sparktrain.trainer.store_door import OpenStore
from sparktrain.trainer.sync_rules import AVERAGE, DELTA
from sparktrain.wire.flight import Door
from sparktrain.wire.layout import Part, Variable, gather, scatter
from sparktrain.wire.parameters import ParameterClient, Stores, leave_all

FOUND = [
    Variable("kernel", (300, 700), "float32"),
    Variable("bias", (7,), "float64"),
    Variable("scale", (), "float16"),
    Variable("none", (0, 3), "float32"),
]


def start() -> list[Any]:
    """Values that are not zero."""
    return [np.full(v.shape, 10.0 + n, v.dtype) for n, v in enumerate(FOUND)]


def own(server: Any, worker: Any, rank: int, name: str) -> Any:
    return server + worker * (rank + 1) if name == "kernel" else server


@pytest.fixture(params=["unix", "tls"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """Two of them."""
    doors: list[Door] = []
    opened = []
    for index in range(2):
        folder = tmp_path / str(index)
        folder.mkdir()
        door, secret = make_door(NodeSpec("ps", index), "127.0.0.1", folder, "secret")
        if request.param == "tls":
            door, secret = Door(**{**door.to_dict(), "path": ""}), {**secret, "path": ""}
        opened.append(OpenStore(secret, Store(lambda: own)))
        doors.append(Door(**{**door.to_dict(), "port": opened[-1].port}))
    yield Stores(tuple(doors), "secret")
    for one in opened:
        one.__exit__()


class Worker:
    """A worker whose weights are plain arrays."""

    def __init__(self, servers: Stores, rank: int, part_bytes: int | None = 100_000) -> None:
        self.client = ParameterClient(servers, "model-0", FOUND, rank, part_bytes)
        self.arrays = [np.zeros(v.shape, v.dtype) for v in FOUND]

    def join(self, arrays: list[Any] | None = None) -> bool:
        is_ready = self.client.open()
        if arrays is not None:
            self.client.put(arrays)
            self.client.pull(self.arrays)
        elif is_ready:
            self.client.pull(self.arrays)
        return is_ready

    def sync(self, rule: str, moved: float) -> None:
        old = self.arrays
        new = [array + moved for array in old]
        taken = [np.empty_like(array) for array in old]

        def get(part: Part) -> Any:
            values = gather(part, new)
            return values - gather(part, old) if rule == DELTA else values

        self.client.sync(rule, 0.5, get, lambda part, values: scatter(part, values, taken))
        self.arrays = taken


def test_changes_of_two_workers_add_up(servers: Stores) -> None:
    one, two = Worker(servers, 0), Worker(servers, 1)
    with one.client, two.client:
        assert not two.join()
        assert not one.join(start())
        assert two.join()
        one.sync(DELTA, 0.1)
        two.sync(DELTA, 0.1)
        np.testing.assert_allclose(two.arrays[0], 10.2, rtol=1e-6)
        np.testing.assert_allclose(two.arrays[1], 11.2, rtol=1e-12)
        np.testing.assert_allclose(two.arrays[2], 12.2, rtol=1e-2)
        np.testing.assert_allclose(one.arrays[0], 10.1, rtol=1e-6)
        assert [state["num_syncs"] for state in one.client.states()] == [2, 2]


def test_one_that_comes_again_takes_what_is_there(servers: Stores) -> None:
    one = Worker(servers, 0)
    with one.client:
        one.join(start())
        one.sync(AVERAGE, 1.0)
    again = Worker(servers, 0)
    with again.client:
        assert again.join(start())  # and its first values are not wanted any more
        np.testing.assert_allclose(again.arrays[0], 10.5)


def test_many_meet_at_once(servers: Stores) -> None:
    """No change is lost, whoever is at a part at the same time."""
    first = Worker(servers, 0)
    with first.client:
        first.join(start())

        def work(rank: int) -> None:
            worker = Worker(servers, rank, part_bytes=100_000)
            with worker.client:
                worker.join()
                for _ in range(10):
                    worker.sync(DELTA, 1.0)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first.client.pull(first.arrays)
    np.testing.assert_array_equal(first.arrays[0], 50.0)
    np.testing.assert_array_equal(first.arrays[1], 51.0)


def test_a_rule_of_the_programs_own(servers: Stores) -> None:
    worker = Worker(servers, 1, part_bytes=None)
    with worker.client:
        worker.join(start())
        worker.sync("own", 0.0)
        np.testing.assert_array_equal(worker.arrays[0], 30.0)
        np.testing.assert_array_equal(worker.arrays[1], 11.0)


def test_a_rule_of_the_programs_own_is_asked_alone(tmp_path: Path) -> None:
    """In the order of the variables, by one worker at a time: it may keep notes."""
    asked: list[tuple[int, str]] = []
    busy: list[str] = []

    def note(server: Any, worker: Any, rank: int, name: str) -> Any:
        busy.append(name)
        time.sleep(0.02)
        assert busy == [name]
        busy.remove(name)
        asked.append((rank, name))
        return server

    door, secret = make_door(NodeSpec("ps", 0), "127.0.0.1", tmp_path, "secret")
    with OpenStore(secret, Store(lambda: note)) as opened:
        stores = Stores((Door(**{**door.to_dict(), "port": opened.port}),), "secret")
        one, two = (Worker(stores, rank, part_bytes=None) for rank in range(2))
        with one.client, two.client:
            one.join(start())
            two.join()
            threads = [threading.Thread(target=w.sync, args=("own", 0.0)) for w in (one, two)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    for rank in range(2):
        assert [name for who, name in asked if who == rank] == [v.name for v in FOUND]


@pytest.mark.parametrize("where", ["get", "take"])
def test_an_error_of_one_stream_is_the_error(servers: Stores, where: str) -> None:
    """Of whatever part it is; no thread is left, and the next meeting works."""
    worker = Worker(servers, 0)
    with worker.client:
        worker.join(start())
        last = worker.client.parts[-1].number
        answered: list[int] = []

        def get(part: Part) -> Any:
            if where == "get" and part.number == last:
                raise ZeroDivisionError("of the worker's own")
            return gather(part, worker.arrays)

        def take(part: Part, values: Any) -> None:
            if where == "take" and part.number == last:
                raise ZeroDivisionError("of the worker's own")
            answered.append(part.number)

        with pytest.raises(ZeroDivisionError, match="of the worker's own"):
            worker.client.sync(AVERAGE, 0.5, get, take)
        assert last not in answered
        reached = worker.client.settle()
        assert reached >= set(answered)
        assert (last in reached) == (where == "take")
        worker.sync(AVERAGE, 1.0)
        np.testing.assert_allclose(worker.arrays[0], 10.5)
        # One of the servers did not hear of all its parts in the meeting that failed.
        expected = [2, 2] if where == "take" else [1, 2]
        assert sorted(state["num_syncs"] for state in worker.client.states()) == expected
    assert not [one for one in threading.enumerate() if "sparktrain-parameters" in one.name]


def test_a_meeting_that_is_settled_changes_nothing_more() -> None:
    store = Store()
    store.open("model-0", "x", 0)
    store.put("model-0", {n: ("w", (2,), np.zeros(2)) for n in range(2)})
    one = np.ones(2)

    def bring(part: int, meeting: int, client: str = "client") -> None:
        store.sync("model-0", part, DELTA, 1.0, one, 0, client, meeting)

    bring(1, 1)
    assert store.settle("model-0", "client", 1) == [1]
    with pytest.raises(StoreError, match="meeting 1 is over"):
        bring(0, 1)
    assert store.settle("model-0", "client", 1) == [1]
    assert store.settle("model-0", "client", 2) == []  # nothing of it came before
    bring(0, 3)
    # What was on its way all that time, and what another client of the same worker's brought.
    for late in (1, 2):
        with pytest.raises(StoreError, match=f"meeting {late} is over, 3 has begun"):
            bring(1, late)
    bring(1, 1, "another")
    bring(1, 3)
    assert store.settle("model-0", "client", 3) == [0, 1]
    np.testing.assert_array_equal(store.pull("model-0", 0), one)
    np.testing.assert_array_equal(store.pull("model-0", 1), 3 * one)


def test_other_models_and_strangers_are_refused(servers: Stores) -> None:
    worker = Worker(servers, 0)
    with worker.client:
        worker.join(start())
        with (
            ParameterClient(servers, "model-0", FOUND[:1], 1) as other,
            pytest.raises(fl.FlightServerError, match="other variables than"),
        ):
            other.open()
        with pytest.raises(fl.FlightServerError, match="rule 'sum' is not known"):
            worker.sync("sum", 1.0)
    stranger = Stores(servers.doors, "guess")
    with (
        ParameterClient(stranger, "model-0", FOUND, 1) as client,
        pytest.raises(fl.FlightUnauthenticatedError),
    ):
        client.states()


def test_those_who_leave_are_known(servers: Stores) -> None:
    one, two = Worker(servers, 0), Worker(servers, 1)
    with one.client, two.client:
        one.join(start())
        two.join()
        one.client.leave()
        assert [state["left"] for state in two.client.states()] == [[0], [0]]
        leave_all(servers, 1)
        assert [state["left"] for state in two.client.states()] == [[0, 1], [0, 1]]
        one.client.open()
        assert [state["left"] for state in two.client.states()] == [[1], [1]]
        # Also for a model that is begun later.
        with ParameterClient(servers, "model-1", FOUND, 0) as later:
            later.open()
            assert [state["left"] for state in later.states()] == [[1], [1]]
        two.join()
        assert [state["left"] for state in one.client.states()] == [[], []]
        # A second fit is known from the first, also if its worker begins it later.
        one.client.leave(2)
        two.client.leave(1)
        one.client.leave(1)  # of a worker that was started again
        for state in one.client.states():
            assert dict(state["fits"]) == {0: 2, 1: 1}
            assert state["gone"] == []


def test_a_server_that_is_gone_is_told(tmp_path: Path) -> None:
    door, secret = make_door(NodeSpec("ps", 0), "127.0.0.1", tmp_path, "secret")
    with OpenStore(secret, Store()) as opened:
        stores = Stores((Door(**{**door.to_dict(), "port": opened.port}),), "secret")
        worker = Worker(stores, 0)
        worker.join(start())
    with worker.client, pytest.raises(fl.FlightUnavailableError):
        worker.sync(AVERAGE, 1.0)


def test_what_is_not_there_is_refused() -> None:
    store = Store()
    with pytest.raises(StoreError, match="no worker has opened"):
        store.pull("model-0", 0)
    store.open("model-0", "x", 0)
    with pytest.raises(StoreError, match="no part 3"):
        store.sync("model-0", 3, AVERAGE, 0.5, np.zeros(1))
    store.put("model-0", {0: ("w", (2,), np.zeros(2))})
    with pytest.raises(StoreError, match="has 2 values, and 3 came"):
        store.sync("model-0", 0, AVERAGE, 0.5, np.zeros(3))
    with pytest.raises(StoreError, match="no rule of its own"):
        store.sync("model-0", 0, "own", 0.5, np.zeros(2))
