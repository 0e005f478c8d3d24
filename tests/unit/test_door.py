"""A trainer's door: rows by the Unix socket and by TLS, and nobody without the token."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from sparktrain.agent.asking import AskTask, converse
from sparktrain.agent.failure import NodeFailureError
from sparktrain.agent.feeding import FeedTask, Target, find_door, pickle_rows
from sparktrain.data.arrow import stored_schema
from sparktrain.data.schema import Column
from sparktrain.data.views import to_numpy
from sparktrain.trainer.door import OpenDoor
from sparktrain.trainer.inbox import Inbox
from sparktrain.trainer.requests import Desk, answer_piece
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.flight import Door, connect, pack

X = (Column("x", "long"),)


class Scene:
    """A door with its inbox and desk."""

    def __init__(self, folder: Path, is_here: bool) -> None:
        credentials = Credentials.make()
        path = str(folder / "rows") if is_here else ""
        job = {"path": path, "host": "127.0.0.1", "token": "secret", "key": credentials.key}
        self.inbox = Inbox(lambda feed, rows: None, capacity=1000)
        self.desk = Desk()
        self.opened = OpenDoor(
            {**job, "certificate": credentials.certificate}, self.inbox, self.desk
        )
        self.door = Door("chief:0", "127.0.0.1", self.opened.port, path, credentials.certificate)
        self.target = Target("run", (self.door,), "secret")


@pytest.fixture(params=[True, False], ids=["unix", "tls"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, request.param)
    with made.opened:
        yield made
        made.inbox.close()
        made.desk.close("the test is over")


def make_task(scene: Scene, monkeypatch: pytest.MonkeyPatch, attempt: int = 1) -> FeedTask:
    monkeypatch.setattr("sparktrain.agent.feeding.find_task", lambda: (0, attempt))
    return FeedTask(scene.target, "f", "train", X)


def make_batches(*groups: list[int]) -> Iterator[pa.RecordBatch]:
    for group in groups:
        yield pa.RecordBatch.from_pydict({"x": pa.array(group, pa.int64())})


def test_rows_come_in(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(scene, monkeypatch)
    (told,) = task(make_batches([1, 2], [3]))
    assert told.to_pylist() == [{"node": "chief:0", "rows": 3, "is_wanted": True}]
    items = [scene.inbox.take("train"), scene.inbox.take("train")]
    assert [item.block.to_pydict() for item in items if item and item.block] == [
        {"x": [1, 2]},
        {"x": [3]},
    ]
    # Another attempt brings what is behind them.
    again = make_task(scene, monkeypatch, attempt=2)
    (told,) = again(make_batches([1, 2], [3, 4], [5]))
    assert told.to_pylist()[0]["rows"] == 5
    items = [scene.inbox.take("train"), scene.inbox.take("train")]
    assert [item.block.to_pydict()["x"] for item in items if item and item.block] == [[4], [5]]
    old = make_task(scene, monkeypatch, attempt=1)
    with pytest.raises(NodeFailureError, match="attempt 1 of this task is not the newest"):
        list(old(make_batches([1])))


def test_a_retry_that_brings_other_rows_is_an_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(make_task(scene, monkeypatch)(make_batches([1, 2], [3])))
    for attempt, wrong in enumerate(([[2, 1], [3, 4]], [[1, 2], [4, 3]], [[1, 2]]), 2):
        with pytest.raises(NodeFailureError, match="in another order when Spark tried"):
            list(make_task(scene, monkeypatch, attempt)(make_batches(*wrong)))
    rows = FeedTask(scene.target, "g", "rows")
    monkeypatch.setattr("sparktrain.agent.feeding.find_task", lambda: (0, 1))
    assert list(rows.feed_rows(["a", 1])) == [("chief:0", 2, True)]
    monkeypatch.setattr("sparktrain.agent.feeding.find_task", lambda: (0, 2))
    with pytest.raises(NodeFailureError, match="partition 0 of 'rows' came in another order"):
        list(rows.feed_rows([1, "a", None]))
    monkeypatch.setattr("sparktrain.agent.feeding.find_task", lambda: (0, 3))
    assert list(rows.feed_rows(["a", 1, None])) == [("chief:0", 3, True)]


def test_a_function_that_failed_is_no_early_stop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(scene, monkeypatch)

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield from make_batches(list(range(1000)))

    failing = threading.Timer(0.3, scene.inbox.fail)
    failing.start()
    with pytest.raises(NodeFailureError, match="the function has failed"):
        list(task(endless()))
    failing.join()


def test_a_task_that_fails_ends_its_call(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Iterator[pa.RecordBatch]:
        yield from make_batches([1, 2])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(make_task(scene, monkeypatch)(fail()))
    assert scene.inbox.load[1] == 0
    # The next attempt goes on behind what came.
    (told,) = make_task(scene, monkeypatch, attempt=2)(make_batches([1, 2, 3]))
    assert told.to_pylist()[0]["rows"] == 3
    bad = pa.RecordBatch.from_pydict({"x": pa.array([None], pa.int64())})
    with pytest.raises(NodeFailureError, match="is null"):
        list(make_task(scene, monkeypatch, attempt=3)(iter([*make_batches([1, 2, 3]), bad])))


def test_a_feed_that_is_not_wanted_ends_in_the_middle(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(scene, monkeypatch)

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield from make_batches(list(range(1000)))

    closer = threading.Timer(0.3, scene.inbox.close)
    closer.start()
    (told,) = task(endless())
    closer.join()
    assert told.to_pylist()[0]["is_wanted"] is False
    (told,) = task(make_batches([1]))
    assert told.to_pylist() == [{"node": "chief:0", "rows": 0, "is_wanted": False}]


@pytest.mark.parametrize("token", ["", "secres", "Secret"])
def test_nobody_comes_in_without_the_token(scene: Scene, token: str) -> None:
    client, options = connect(scene.door, token, 10)
    with client:
        with pytest.raises(fl.FlightUnauthenticatedError):
            list(client.do_action(fl.Action("load", pack({})), options))
        descriptor = fl.FlightDescriptor.for_command(pack({}))
        with pytest.raises(fl.FlightUnauthenticatedError):
            writer, reader = client.do_put(descriptor, stored_schema(X), options)
            assert reader.read() is None
            writer.close()


def test_another_certificate_is_not_trusted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, is_here=False)
    stranger = dataclasses.replace(scene.door, certificate=Credentials.make().certificate)
    client, options = connect(stranger, "secret", 10)
    with scene.opened, client, pytest.raises(fl.FlightUnavailableError):
        list(client.do_action(fl.Action("load", pack({})), options))


def test_answers_come_back_in_order(scene: Scene) -> None:
    def answer() -> None:
        while (piece := scene.desk.take(3)) is not None:
            assert piece.block is not None
            answer_piece(piece, {"double": [2 * x for x in piece.block.column("x").to_pylist()]})

    thread = threading.Thread(target=answer)
    thread.start()
    pieces = make_batches(list(range(10)), [10])
    blocks = (piece.cast(stored_schema(X)) for piece in pieces)
    found = converse(scene.target, 0, X, stored_schema(X), blocks)
    values = [value for batch in found for value in batch.column("double").to_pylist()]
    assert values == [2 * x for x in range(11)]
    scene.desk.close("over")
    thread.join(5)
    with pytest.raises(NodeFailureError, match="over"):
        list(converse(scene.target, 0, X, stored_schema(X), iter(make_batches([1]))))


def test_partitions_go_where_their_home_says(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(scene.door, node="worker:0")
    target = dataclasses.replace(scene.target, doors=(scene.door, other))
    first = find_door(target, "f", 3)
    for _ in range(3):
        assert find_door(target, "f", 3) == first


def test_rows_of_any_kind_are_pickled_in_pieces() -> None:
    rows: list[Any] = [None, 1, "x", b"y" * 100] * 100
    pieces = list(pickle_rows(rows[3:]))
    assert sum(count for _, count, _ in pieces) == 397
    assert pieces[0][1] == 32


def test_answers_that_nobody_wants_end_quietly(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    def answer() -> None:
        while (piece := scene.desk.take(3)) is not None:
            answer_piece(piece, [0] * piece.num_rows)

    thread = threading.Thread(target=answer)
    thread.start()
    for groups in ([[1]], [[1, 2, 3, 4, 5], [6]], [[1]] * 5000):
        pieces = (piece.cast(stored_schema(X)) for piece in make_batches(*groups))
        found = converse(scene.target, 0, X, stored_schema(X), pieces)
        assert next(found).num_rows  # type: ignore[call-overload]
        found.close()  # type: ignore[attr-defined]
        del found
    scene.desk.close("over")
    thread.join(5)
    # Arrow's own threads would print that the calls were cancelled.
    assert capfd.readouterr().err == ""


def test_vectors_are_asked_about_and_come_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktrain.agent.asking.find_task", lambda: (0, 1))

    def answer() -> None:
        while (piece := scene.desk.take(3)) is not None:
            assert piece.block is not None
            (values,) = to_numpy(piece.block, piece.columns).values()
            answer_piece(piece, {"sum": values.sum(axis=1)})

    thread = threading.Thread(target=answer)
    thread.start()
    kind = pa.struct(
        [
            pa.field("type", pa.int8(), False),
            pa.field("size", pa.int32()),
            pa.field("indices", pa.list_(pa.int32())),
            pa.field("values", pa.list_(pa.float64())),
        ]
    )
    dense = {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0, 3.0]}
    sparse = {"type": 0, "size": 3, "indices": [1], "values": [4.0]}
    rows = pa.RecordBatch.from_pydict({"v": pa.array([dense, sparse], kind), "n": [1, 2]})
    columns = (Column("v", "vector", shape=(3,)),)
    task = AskTask(scene.target, columns, pa.schema([("sum", pa.float64())]))
    (scored,) = task(iter([rows]))
    scene.desk.close("over")
    thread.join(5)
    assert scored.select(["v", "n"]) == rows
    assert scored.column("sum").to_pylist() == [6.0, 4.0]
