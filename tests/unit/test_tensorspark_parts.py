"""Parts of the drop-in for tensorspark: combiners, batches, files, and what is refused."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sparktrain as st
from sparktrain.agent.doors import make_door
from sparktrain.agent.failure import NodeFailureError
from sparktrain.spec import NodeSpec
from sparktrain.trainer.store import Store
from sparktrain.trainer.store_door import OpenStore
from sparktrain.wire.flight import Door
from sparktrain.wire.layout import Variable
from sparktrain.wire.parameters import Stores
from tensorspark.core import checks
from tensorspark.core.batches import Batches
from tensorspark.core.param_server import DRIVER, bring
from tensorspark.core.partitioner import RandomPartitioner
from tensorspark.core.paths import find_storage_options, join_base
from tensorspark.core.session_files import SessionFiles, load_graph, pack_graph, pack_value
from tensorspark.core.session_util import (
    apply_parameters,
    extract_fetch,
    find_fetch,
    find_variables,
    read_variables,
)
from tensorspark.core.session_worker import Task, make_client
from tensorspark.core.spark_session import SparkSession
from tensorspark.core.weight_combiner import (
    DeltaWeightCombiner,
    MeanWeightCombiner,
    UpdateMeanWeightCombiner,
    WeightCombiner,
    find_rule,
)


def test_arguments_and_defaults() -> None:
    def describe(function: Any) -> str:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        return ", ".join(str(one).split(":")[0] if one.default is one.empty else
                         f"{one.name}={one.default!r}" for one in parameters)  # fmt: skip

    assert describe(SparkSession.__init__) == (
        "spark_context, session, user='', name='', target='', server_host='localhost',"
        " server_port=10080, graph=None, config=None, sync_interval=3, batch_size=10000"
    )
    assert describe(SparkSession.run) == (
        "fetches, feed_rdd=None, feed_name_list=None, param_list=None, feed_dict=None,"
        " weight_combiner=None, shuffle_within_partition=False, options=None,"
        " run_metadata=None, server_reusable=False"
    )
    assert describe(WeightCombiner.compute) == "origin_weight, new_weight, worker_id=-1, name=None"


def test_delta_counts_from_where_the_weights_began() -> None:
    combiner = DeltaWeightCombiner()
    first = combiner.compute(np.full(2, 10.0), np.full(2, 10.1), 0, "w")
    second = combiner.compute(first, np.full(2, 10.1), 1, "w")
    assert second == pytest.approx([10.2, 10.2])
    # Each goes on with what the server had then.
    third = combiner.compute(second, second + 0.5, 1, "w")
    assert third == pytest.approx([10.7, 10.7])
    assert combiner.compute([1.0], [3.0], 0, "other") == pytest.approx([3.0])


def test_means() -> None:
    assert MeanWeightCombiner(4).compute([4.0], [8.0]) == pytest.approx([5.0])
    combiner = UpdateMeanWeightCombiner(object())
    assert combiner.compute([1.0], [3.0], 0, "w") == pytest.approx([3.0])
    assert combiner.compute([3.0], [5.0], 1, "w") == pytest.approx([4.0])
    with pytest.raises(ValueError, match="num=0"):
        MeanWeightCombiner(0)
    assert find_rule(MeanWeightCombiner(4)) == ("average", 0.25)
    assert find_rule(DeltaWeightCombiner())[0] == "delta"
    assert find_rule(UpdateMeanWeightCombiner())[0] == "own"


def test_a_class_of_ones_own_that_computes_nothing_new_is_its_base() -> None:
    class Named(DeltaWeightCombiner):
        def get_status(self) -> str:
            return "named"

    class Halves(MeanWeightCombiner):
        def __init__(self) -> None:
            super().__init__(2)

    class Twice(DeltaWeightCombiner):
        def compute(self, *args: Any, **kwargs: Any) -> Any:
            return 2 * super().compute(*args, **kwargs)

    assert find_rule(Named()) == ("delta", 1.0)
    assert find_rule(Halves()) == ("average", 0.5)
    assert find_rule(Twice())[0] == "own"
    changed = DeltaWeightCombiner()
    changed.compute = lambda *args, **kwargs: 0.0  # type: ignore[method-assign]
    assert find_rule(changed)[0] == "own"


def test_a_partitioner_spreads_rows() -> None:
    partitioner = RandomPartitioner(3)
    assert {partitioner("key") for _ in range(200)} == {0, 1, 2}
    assert partitioner == RandomPartitioner(3) != RandomPartitioner(4)


def test_batches_end_short_and_shuffle_the_same_way_again() -> None:
    rows = [([n, n], n) for n in range(7)]
    plain = list(Batches("told", ("x:0", "y:0"), ("float32", "int64"), 3)(0, iter(rows)))
    assert [told for told, _ in plain] == ["told"] * 3
    assert [len(y) for _, (_, y) in plain] == [3, 3, 1]
    assert plain[0][1][0].shape == (3, 2) and plain[0][1][0].dtype == np.float32

    def shuffled(seed: int, partition: int) -> list[int]:
        batches = Batches(None, ("x:0", "y:0"), (None, None), 3, seed)
        return [int(n) for _, (_, y) in batches(partition, iter(rows)) for n in y]

    assert shuffled(1, 0) == shuffled(1, 0) != shuffled(1, 1)
    assert sorted(shuffled(1, 0)) == list(range(7)) != shuffled(1, 0)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ((1.0,), "is 1 values, expected a tuple of 2"),
        (7, "is a int, expected a tuple of 2"),
        (([1.0, 2.0, 3.0], 0), "values for x:0 in partition 4 do not make an array of float32"),
        ((["a", "b"], 0), "could not convert string"),
    ],
)
def test_rows_that_do_not_fit_are_named(row: Any, what: str) -> None:
    batches = Batches(None, ("x:0", "y:0"), ("float32", "int64"), 10)
    with pytest.raises(NodeFailureError, match=what):
        list(batches(4, iter([([1.0, 2.0], 0), row])))


def make_session() -> tuple[Any, Any, Any]:
    """Of a graph with a placeholder, two variables, and one that has no value."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
        w = tf.compat.v1.get_variable("w", initializer=tf.fill([2, 1], 10.0))
        old = tf.compat.v1.get_variable("old", initializer=3, use_resource=False)
        tf.compat.v1.get_variable("never", initializer=1.0)
        tf.matmul(x, w, name="y")
    session = tf.compat.v1.Session(graph=graph)
    session.run([w.initializer, old.initializer])
    return session, x, w


def test_a_session_goes_to_a_store_and_comes_back() -> None:
    session, _, _ = make_session()
    variables = find_variables(session.graph)
    values = read_variables(session, variables)
    assert set(values) == {"w:0", "old:0"}
    count = len(session.graph.get_operations())
    apply_parameters(session, variables, {"w:0": np.full((2, 1), 4.0), "old:0": np.array(5)})
    assert len(session.graph.get_operations()) == count
    files = SessionFiles("memory://sessions/deep/one")
    files.write(pack_graph(session.graph), read_variables(session, variables))
    meta, found = files.read()
    graph, copied = load_graph(meta)
    with tf.compat.v1.Session(graph=graph) as copy:
        apply_parameters(copy, copied, found)
        fetches = find_fetch(
            graph, extract_fetch({"all": [session.graph.get_tensor_by_name("y:0")]})
        )
        (y,) = copy.run(fetches, {"x:0": [[1.0, 2.0]]})["all"]
        assert y == pytest.approx(12.0)
        assert copy.run(copied["old:0"]) == 5
    files.remove()
    files.remove()
    with pytest.raises(FileNotFoundError):
        files.read()
    session.close()


def test_values_that_numpy_cannot_save_come_back(tmp_path: Path) -> None:
    graph, files = tf.Graph(), SessionFiles(f"{tmp_path}/one")
    with graph.as_default():
        for name, value in {
            "text": b"end\0",
            "texts": [["one"], [""]],
            "halves": tf.constant([0.5, -2.0], tf.bfloat16),
            "half": tf.constant(3, tf.bfloat16),
            "flags": [True, False],
            "nothing": np.zeros([0, 2]),
        }.items():
            tf.compat.v1.get_variable(name, initializer=value)
        init = tf.compat.v1.global_variables_initializer()
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(init)
        values = read_variables(session, find_variables(graph))
        files.write(pack_graph(graph), values)
        assert all(hashlib.sha256(pack_value(value).data).digest() for value in values.values())
    meta, found = files.read()
    graph, variables = load_graph(meta)
    with tf.compat.v1.Session(graph=graph) as session:
        apply_parameters(session, variables, found)
        found = read_variables(session, variables)
    assert len(found) == 6 and found["text:0"][()] == b"end\0"
    for name, value in values.items():
        assert found[name].dtype == value.dtype and np.array_equal(found[name], value), name


def test_variables_may_begin_with_one_tensor() -> None:
    graph = tf.Graph()
    with graph.as_default():
        start = tf.zeros([2])
        one, two = tf.compat.v1.Variable(start), tf.compat.v1.Variable(start)
    with tf.compat.v1.Session(graph=graph) as session:
        variables = find_variables(graph)
        apply_parameters(session, variables, dict(zip(variables, ([1, 2], [3, 4]), strict=True)))
        assert np.array(session.run([one, two])).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("rule", ["average", "own"])
def test_what_a_session_has_replaces_what_a_kept_server_has(tmp_path: Path, rule: str) -> None:
    """Also where the difference of both is no number, or too large to be exact."""
    w = Variable("w:0", (3,), "float32")
    task = Task(SessionFiles(""), None, (), (w,), "space", rule, 1.0, 1)
    door, secret = make_door(NodeSpec("ps", 0), "127.0.0.1", tmp_path, "secret")
    with OpenStore(secret, Store()) as opened:
        stores = Stores((Door(**{**door.to_dict(), "port": opened.port}),), "secret")
        for values in ([np.nan, np.inf, 1.0], [1e30, 0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 2.0]):
            wished, found = np.array(values, np.float32), np.empty(3, np.float32)
            with make_client(stores, task, DRIVER) as client:
                bring(client, [wished])
                client.pull([found])
            np.testing.assert_array_equal(found, wished)


def test_a_store_that_cannot_be_written_to(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    files = SessionFiles(str(tmp_path / "file" / "one"))
    with pytest.raises(st.ConfigError, match=r"spark\.hdfs\.dir"):
        files.write(b"", {})


def test_refusals() -> None:
    session, x, w = make_session()
    graph, known = session.graph, find_variables(session.graph)
    assert checks.find_feeds(graph, [x.name]) == (("x:0",), ("float32",))
    (found,) = checks.find_parameters(session, known, [w])
    assert (found.name, found.shape, found.dtype) == ("w:0", (2, 1), "float32")
    with pytest.raises(st.ConfigError, match="no feed_name_list"):
        checks.find_feeds(graph, None)
    with pytest.raises(st.ConfigError, match="'nothing:0'"):
        checks.find_feeds(graph, ["nothing:0"])
    for wished, what in {
        (): "no param_list",
        ("other:0",): "no variable of the session's graph",
        ("never:0",): "has no value",
        ("old:0",): "is of type int32",
        ("w:0", "w:0"): "twice",
    }.items():
        with pytest.raises(st.ConfigError, match=what):
            checks.find_parameters(session, known, wished)
    with pytest.raises(st.ConfigError, match="weight_combiner"):
        checks.check_combiner(0.5)
    with pytest.raises(st.ConfigError, match="Expected an instance"):
        checks.check_combiner(MeanWeightCombiner)
    combiner = MeanWeightCombiner(2)
    combiner.session = session  # type: ignore[attr-defined]
    with pytest.raises(st.ConfigError, match="weight_combiner MeanWeightCombiner, which cannot be"):
        checks.check_combiner(combiner)
    assert checks.find_constants(graph, {x: [[1, 2]], "x:0": 3}, ("x:0",)) == {}
    assert checks.find_constants(graph, {x: [[1, 2]]}, ())["x:0"].shape == (1, 2)
    for key in ("nope:0", "nope", 3, tf.Graph()):
        with pytest.raises(st.ConfigError, match="feed_dict has"):
            checks.find_constants(graph, {key: 1}, ())
    with pytest.raises(st.ConfigError, match="x:0 in feed_dict is no array"):
        checks.find_constants(graph, {x: [[1], [1, 2]]}, ())
    for name in ("nope", 3, None):
        with pytest.raises(st.ConfigError, match="feed_name_list has"):
            checks.find_feeds(graph, [name])
    with pytest.raises(st.ConfigError, match="sync_interval=0"):
        SparkSession(None, session, sync_interval=0)
    with pytest.raises(st.ConfigError, match=r"batch_size=2\.5"):
        SparkSession(None, session, batch_size=2.5)  # type: ignore[arg-type]
    with pytest.raises(st.ConfigError, match="not of the session's graph"):
        SparkSession(None, session).run("nothing", feed_rdd=[], feed_name_list=[x.name])
    session.close()


def test_without_an_rdd_it_is_the_session_itself() -> None:
    session, x, _ = make_session()
    with SparkSession(None, session) as spark_session:
        assert spark_session.get_session() is session
        assert spark_session.run("y:0", feed_dict={x: [[1, 1]]}) == pytest.approx(20.0)
    with pytest.raises(RuntimeError, match="closed"):
        session.run("y:0", {x: [[1, 1]]})


@pytest.mark.parametrize(
    ("wished", "default_fs", "found"),
    [
        ("/data", "hdfs://nn:8020", "hdfs://nn:8020/data"),
        ("/data/", "file:///", "/data"),
        ("s3://bucket/data", "hdfs://nn:8020", "s3://bucket/data"),
        ("/", "hdfs://nn:8020/", "hdfs://nn:8020"),
    ],
)
def test_where_files_are(wished: str, default_fs: str, found: str) -> None:
    assert join_base(wished, default_fs) == found
    options = {"user": "ann"} if found.startswith("hdfs") else {}
    assert find_storage_options(found, "ann") == options
