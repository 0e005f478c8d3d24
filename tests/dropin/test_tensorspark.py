"""Programs of tensorspark on real executors: what they learn, and how they fail."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sparktrain as st
import tensorspark.core.spark_session as sps
import tensorspark.core.weight_combiner as comb

EXAMPLE = Path(__file__).parents[2] / "examples" / "tensorspark" / "spark_mnist.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("spark_mnist", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def quiet(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sparktrain.progress", "false")
    yield
    spark.conf.unset("spark.sparktrain.progress")
    spark.conf.unset("spark.hdfs.dir")


def train_alone(example: Any, images: str | None, batch_size: int, epochs: int, seed: int) -> float:
    """The same program in one process, written down by hand."""
    x, y = example.load(images, "train")
    weights, bias = np.zeros((x.shape[1], 10), "float32"), np.zeros(10, "float32")
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), batch_size):
            chosen = order[start : start + batch_size]
            scores = np.exp(x[chosen] @ weights + bias)
            error = (scores / scores.sum(1, keepdims=True) - y[chosen]) / len(chosen)
            weights -= 0.5 * x[chosen].T @ error
            bias -= 0.5 * error.sum(0)
    test_x, test_y = example.load(images, "t10k")
    return float(((test_x @ weights + bias).argmax(1) == test_y.argmax(1)).mean())


def check_accuracy(spark: Any, example: Any, images: str | None, **wishes: Any) -> None:
    with tf.Graph().as_default():
        found = example.train(spark.sparkContext, images, **wishes)
    batch_size, epochs = wishes["batch_size"], wishes["num_epoch"]
    alone = [train_alone(example, images, batch_size, epochs, seed) for seed in range(5)]
    print("accuracy", found, "alone", alone)
    assert found > statistics.median(alone) - 0.01


def test_digits_are_learnt_as_in_one_process(spark: Any, example: Any) -> None:
    check_accuracy(spark, example, None, batch_size=10, sync_interval=10, num_epoch=6)


@pytest.mark.slow
@pytest.mark.parametrize("num_partition", [1, 2])
def test_fashion_is_learnt_as_in_one_process(
    spark: Any, example: Any, fashion_mnist: str | None, num_partition: int
) -> None:
    if fashion_mnist is None:
        pytest.skip("no package dataset-fashion-mnist to be had")
    wishes = {"batch_size": 100, "sync_interval": 100, "num_epoch": 2}
    check_accuracy(spark, example, fashion_mnist, num_partition=num_partition, **wishes)


class Counter:
    """A graph whose every step adds 0.1 to a weight that starts at 10."""

    def __init__(self) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = tf.compat.v1.placeholder(tf.float32, [None, 2])
            self.w = tf.compat.v1.Variable(tf.fill([3], 10.0), name="w")
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


class Largest(comb.WeightCombiner):
    """Not what anybody would train with: tells what a combiner is called with."""

    def compute(
        self, origin_weight: Any, new_weight: Any, worker_id: int = -1, name: str | None = None
    ) -> Any:
        assert worker_id in (0, 1) and name == "w:0"
        return np.maximum(origin_weight, new_weight)


class Broken(comb.WeightCombiner):
    def compute(self, *args: Any, **kwargs: Any) -> Any:
        raise ArithmeticError("no weights today")


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
