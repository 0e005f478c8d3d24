"""DataFeed and ctx.mgr over a node's own stream, and over a TFManager: no Spark, no cluster."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.data.arrow import make_block
from sparktrain.data.faults import Place
from sparktrain.data.rows import PICKLED
from sparktrain.data.schema import Column
from sparktrain.trainer.detached import Stream
from sparktrain.trainer.inbox import Item, Ticket
from sparktrain.trainer.requests import IdleError
from tensorflowonspark import TFManager, TFNode, marker
from tensorflowonspark.node_manager import NodeManager

QUEUES = ["input", "output", "error", "second"]


class Writer:
    """What a task that asks would read."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def begin(self, schema: pa.Schema) -> None:
        pass

    def write_batch(self, batch: pa.RecordBatch) -> None:
        for data in batch.column(0).to_pylist():
            self.results += pickle.loads(data)


class Asker:
    """A task of inference(): asks about one partition."""

    def __init__(self, stream: Stream, rows: list[Any], idle_timeout_s: float | None = None):
        self.results: list[Any] = []
        self.error: Exception | None = None
        data = [pa.array([pickle.dumps(rows)], pa.large_binary()), pa.array([len(rows)])]
        batches = [pa.RecordBatch.from_arrays(data, schema=PICKLED)]

        def work() -> None:
            writer = Writer()
            try:
                stream.desk.serve((), iter(batches), writer, idle_timeout_s)
            except Exception as error:
                self.error = error
            self.results = writer.results

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def finish(self) -> list[Any]:
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.results


class Node:
    """A node without its process."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.stream = Stream(self.told.append, False)
        self.mgr: Any = NodeManager(SimpleNamespace(stream=self.stream), QUEUES)

    def feed(self, rows: list[Any], table: str = "input") -> None:
        ticket = Ticket(table, 0, 1, table)
        self.stream.inbox.open(ticket, ())
        data = pickle.dumps(rows)
        self.stream.inbox.put(ticket, Item(table, len(rows), len(data), pickled=data))

    def stop(self) -> None:
        self.stream.handle({"kind": "no_more", "table": ""})


@pytest.fixture
def node() -> Iterator[Node]:
    one = Node()
    yield one
    one.stream.close("the test is over")


def test_all_feeds_of_a_node_take_from_the_same_rows(node: Node) -> None:
    node.feed(list(range(10)))
    node.feed(["a", "b"], "second")
    assert TFNode.DataFeed(node.mgr).next_batch(3) == [0, 1, 2]
    assert TFNode.next_batch(node.mgr, 3) == [3, 4, 5]
    assert TFNode.next_batch(node.mgr, 1, "second") == ["a"]
    feed = TFNode.DataFeed(node.mgr)
    node.stop()
    assert feed.next_batch(100) == [6, 7, 8, 9] and feed.should_stop()
    assert feed.next_batch(1) == []


def test_results_may_come_by_another_feed_and_thread(node: Node) -> None:
    asker = Asker(node.stream, [1, 2, 3])
    rows = TFNode.DataFeed(node.mgr, train_mode=False).next_batch(2)
    assert rows == [1, 2]
    thread = threading.Thread(target=TFNode.batch_results, args=(node.mgr, ["one", "two"]))
    thread.start()
    thread.join()
    last = TFNode.DataFeed(node.mgr, train_mode=False)
    assert last.next_batch(2) == [3]  # the partition ends here
    last.batch_results(["three"])
    assert asker.finish() == ["one", "two", "three"]


def test_who_terminated_its_training_still_answers(node: Node) -> None:
    node.feed(list(range(10)))
    training = TFNode.DataFeed(node.mgr)
    assert training.next_batch(2) == [0, 1]
    TFNode.terminate(node.mgr)
    assert {"kind": "enough"} in node.told
    assert TFNode.DataFeed(node.mgr).next_batch(2) == []
    asker = Asker(node.stream, [5, 6])
    serving = TFNode.DataFeed(node.mgr, train_mode=False)
    assert serving.next_batch(10) == [5, 6] and not serving.should_stop()
    serving.batch_results([25, 36])
    assert asker.finish() == [25, 36]
    node.stop()
    assert serving.next_batch(10) == [] and serving.should_stop()


def test_the_manager_is_as_the_old_one_was(node: Node) -> None:
    assert str(node.mgr.get("state")) == "'running'" and node.mgr.get("state") == "running"
    assert node.mgr.get("other") is None and node.mgr.get_queue("other") is None
    node.mgr.get_queue("error").put("text")
    assert node.mgr.get_queue("error").get(block=False) == "text"
    node.feed([1])
    queue, out = node.mgr.get_queue("input"), node.mgr.get_queue("output")
    assert queue.get(block=True) == 1
    queue.task_done()
    asker = Asker(node.stream, [2, 3])
    assert [queue.get(), queue.get()] == [2, 3]
    assert isinstance(queue.get(), marker.EndPartition)
    out.put("two", block=True)
    out.put("three")
    assert asker.finish() == ["two", "three"]
    queue.join()
    node.mgr.set("state", "terminating")
    assert str(node.mgr.get("state")) == "'terminating'"
    assert node.stream.inbox.is_closed and queue.get() is None


def test_columns_go_to_their_tensors_by_name(node: Node) -> None:
    columns = (Column("y", "float"), Column("s", "string"), Column("x", "float", 1, (2,)))
    batch = pa.RecordBatch.from_pydict(
        {
            "y": pa.array([1.0, 2.0], pa.float32()),
            "s": pa.array(["a", "ö"]),
            "x": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32())),
        }
    )
    block = make_block(batch, columns, Place("input", 0, 0))
    ticket = Ticket("f", 0, 1, "input")
    node.stream.inbox.open(ticket, columns)
    for _ in range(2):
        node.stream.inbox.put(ticket, Item("f", 2, block.nbytes, block=block))
    mapping = {"x": "first", "y": "second"}
    feed = TFNode.DataFeed(node.mgr, input_mapping=mapping)
    assert feed.input_tensors == ["first", "second"]
    assert feed.next_batch(2) == {"first": [[1.0, 2.0], [3.0, 4.0]], "second": [1.0, 2.0]}
    (row,) = TFNode.DataFeed(node.mgr).next_batch(1)
    assert row == (1.0, "a", [1.0, 2.0]) and row.s == "a" and row.asDict()["y"] == 1.0


def test_rows_without_names_go_by_sorted_position(node: Node) -> None:
    node.feed([(1, 2), (3, 4)])
    feed = TFNode.DataFeed(node.mgr, input_mapping={"b": "of_b", "a": "of_a"})
    assert feed.next_batch(2) == {"of_a": [1, 3], "of_b": [2, 4]}


def test_rows_that_nobody_answers_are_an_error_with_the_numbers(node: Node) -> None:
    asker = Asker(node.stream, [1, 2, 3], idle_timeout_s=0.2)
    feed = TFNode.DataFeed(node.mgr, train_mode=False)
    assert feed.next_batch(3) == [1, 2, 3]
    thread = threading.Thread(target=feed.batch_results, args=(["one"],))
    thread.start()
    thread.join()
    asker.finish()
    assert isinstance(asker.error, IdleError)
    assert "for 0.2 s: 3 were taken, 1 of them answered" in str(asker.error)


def test_a_manager_of_its_own_feeds_a_function_under_test() -> None:
    manager: Any = TFManager.start(b"secret", ["input", "output"], "local")
    try:
        assert TFManager.mgr is manager and manager.get_queue("other") is None
        assert (TFManager.qdict, TFManager.kdict) == ({}, {})  # they are in its process
        queue = manager.get_queue("input")
        for row in [1, 2, 3, marker.EndPartition(), 4, None]:
            queue.put(row)
        feed = TFNode.DataFeed(manager, train_mode=False)
        assert feed.next_batch(2) == [1, 2]
        assert feed.next_batch(2) == [3] and not feed.should_stop()
        assert feed.next_batch(2) == [4] and feed.should_stop()
        feed.batch_results(["a", "b"])
        assert manager.get_queue("output").get() == "a"
        queue.put(9)
        TFNode.DataFeed(manager).terminate()
        assert str(manager.get("state")) == "'terminating'"
        queue.join()
        with pytest.raises(KeyError, match="no queue 'typo'"):
            TFNode.DataFeed(manager, qname_in="typo").next_batch(1)
    finally:
        manager.shutdown()
