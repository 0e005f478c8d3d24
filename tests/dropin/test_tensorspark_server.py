"""The parameter server of tensorspark: used again, lost, with other rules, and how runs fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sparktrain as st
import tensorspark.core.spark_session as sps
import tensorspark.core.weight_combiner as comb
from tensorspark_cases import Broken, Largest


@pytest.fixture(autouse=True)
def quiet(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sparktrain.progress", "false")
    yield
    spark.conf.unset("spark.sparktrain.progress")
    spark.conf.unset("spark.hdfs.dir")


class Counter:
    """A graph whose every step adds 0.1 to a weight that starts at 10."""

    def __init__(self) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = tf.compat.v1.placeholder(tf.float32, [None, 2])
            self.w = tf.compat.v1.Variable(tf.fill([3], 10.0), name="w")
            # Not shared: of types that numpy cannot save.
            tf.compat.v1.Variable(["text", ""], name="texts")
            tf.compat.v1.Variable(tf.zeros([2], tf.bfloat16), name="halves")
            self.given = tf.compat.v1.placeholder(tf.float32, [3])
            self.set = self.w.assign(self.given)
            # Named, so that a step needs its rows.
            added = self.w.assign_add(tf.fill([3], 0.1 + 0.0 * tf.reduce_sum(self.x)))
            self.step = added.op if hasattr(added, "op") else added
            self.session = tf.compat.v1.Session(graph=self.graph)
            self.session.run(tf.compat.v1.global_variables_initializer())

    @property
    def weight(self) -> Any:
        return self.session.run(self.w)

    def run(self, spark_session: Any, rdd: Any, combiner: Any, **wishes: Any) -> None:
        spark_session.run(
            self.step,
            feed_rdd=rdd,
            feed_name_list=[self.x.name],
            param_list=[self.w],
            weight_combiner=combiner,
            **wishes,
        )


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.session.close()


def test_a_server_is_used_again(spark: Any, counter: Counter, tmp_path: Path) -> None:
    sc = spark.sparkContext
    spark.conf.set("spark.hdfs.dir", f"file://{tmp_path}/sessions")
    rows = sc.parallelize([([0.0, 0.0],)] * 8, 2)
    session = sps.SparkSession(sc, counter.session, name="count", sync_interval=3, batch_size=2)
    num_operations = len(counter.graph.get_operations())

    # Four batches of two workers together: two steps each, met once.
    counter.run(session, rows, comb.DeltaWeightCombiner(), server_reusable=True)
    assert counter.weight == pytest.approx([10.4] * 3, abs=1e-5)
    server = session._server
    files = sorted(path.name for path in (tmp_path / "sessions").iterdir())
    assert len(files) == 3 and files[0].startswith("session_count_")

    # What the program changes in between counts.
    counter.session.run(counter.set, {counter.given: np.full(3, -5.0)})
    counter.run(session, rows, comb.DeltaWeightCombiner(), server_reusable=True)
    assert counter.weight == pytest.approx([-4.6] * 3, abs=1e-5)
    counter.run(session, rows, None, server_reusable=True, shuffle_within_partition=True)
    # The mean of two: at least half of what each has learnt, at most all of it.
    assert np.all((counter.weight > -4.46) & (counter.weight < -4.2))
    # A partition without rows, and more workers than partitions with any.
    few = sc.parallelize([([0.0, 0.0],)], 2)
    before = counter.weight
    counter.run(session, few, comb.DeltaWeightCombiner(), server_reusable=True)
    assert counter.weight == pytest.approx(before + 0.1, abs=1e-5)
    assert session._server is server
    assert sorted(path.name for path in (tmp_path / "sessions").iterdir()) == files
    assert len(counter.graph.get_operations()) == num_operations

    # An error of a worker is raised, and nothing is left.
    before = counter.weight
    with pytest.raises(st.TrainingError, match="Cannot feed value of shape"):
        counter.run(session, sc.parallelize([([1.0, 2.0, 3.0],)] * 4, 2), None)
    assert np.array_equal(counter.weight, before)
    assert session._server is None
    assert not list((tmp_path / "sessions").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("combiner", [None, comb.MeanWeightCombiner(2)])
def test_a_server_that_died_is_started_anew(
    spark: Any, counter: Counter, tmp_path: Path, combiner: Any
) -> None:
    pid_file = tmp_path / "pid"

    class Noting(comb.WeightCombiner):
        def compute(self, origin_weight: Any, new_weight: Any, *told: Any, **names: Any) -> Any:
            import os

            pid_file.write_text(str(os.getpid()))
            return new_weight

    rows = spark.sparkContext.parallelize([([0.0, 0.0],)] * 8, 2)
    with sps.SparkSession(spark.sparkContext, counter.session, batch_size=2) as session:
        counter.run(session, rows, Noting(), server_reusable=True)
        before, old = counter.weight, session._server
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        with pytest.warns(UserWarning, match="of the last run is gone"):
            counter.run(session, rows, combiner, server_reusable=True)
        assert np.all(counter.weight > before + 0.1) and session._server is not old
        server = session._server
        counter.run(session, rows, combiner, server_reusable=True)
        assert session._server is server


@pytest.mark.slow
def test_what_is_fed_beside_the_rows(spark: Any) -> None:
    """By placeholder or name, other values in each run; with options."""
    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        x, rate = v1.placeholder(tf.float32, [None]), v1.placeholder(tf.float32, [])
        w, steps = v1.Variable(10.0, name="w"), v1.Variable(0.0, name="steps")
        # How many steps a worker has taken is its own.
        with tf.control_dependencies([steps.assign_add(1.0)]):
            step = w.assign_add(rate * tf.reduce_sum(x) * steps.read_value())
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    rows = spark.sparkContext.parallelize([(1.0,)] * 4, 1)
    options = v1.RunOptions(timeout_in_ms=60_000)
    with sps.SparkSession(spark.sparkContext, session, batch_size=2) as spark_session:
        for feed_dict in ({rate: 0.1}, {rate.name: 1.0, x: [1e6]}):
            spark_session.run(
                step, rows, [x.name], [w], feed_dict, options=options, server_reusable=True
            )
        # 0.1 * 2 * (1 + 2), then 1.0 * 2 * (3 + 4): rows go before feed_dict.
        assert session.run(w) == pytest.approx(10.6 + 14.0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "found"),
    [(Largest, (10.2,)), (comb.UpdateMeanWeightCombiner, (10.2, 10.3))],
)
def test_other_combiners_run_on_the_server(
    spark: Any, counter: Counter, make: Callable[[], Any], found: tuple[float, ...]
) -> None:
    rows = spark.sparkContext.parallelize([([0.0, 0.0],)] * 8, 2)
    with sps.SparkSession(spark.sparkContext, counter.session, batch_size=2) as session:
        counter.run(session, rows, make())
        # The second worker may have begun with the first one's weights.
        expected = [*found, 10.4] if make is Largest else found
        assert any(counter.weight == pytest.approx([one] * 3, abs=1e-4) for one in expected)


@pytest.mark.slow
def test_other_errors_are_raised(spark: Any, counter: Counter) -> None:
    sc = spark.sparkContext
    rows = sc.parallelize([([0.0, 0.0],)] * 4, 2)
    session = sps.SparkSession(sc, counter.session, batch_size=2)
    with pytest.raises(st.TrainingError, match="no weights today"):
        counter.run(session, rows, Broken())
    with pytest.raises(st.DataError, match="expected a tuple of 1"):
        counter.run(session, sc.parallelize([(1.0, 2.0)], 1), None)
    spark.conf.set("spark.hdfs.dir", "file:///proc/nowhere")
    with pytest.raises(st.ConfigError, match="cannot be written"):
        counter.run(session, rows, None)
    assert counter.weight == pytest.approx([10.0] * 3)
