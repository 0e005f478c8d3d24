"""Programs of tensorspark on real executors: what they learn, and how they fail."""

from __future__ import annotations

import importlib.util
import statistics
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensorspark.core.spark_session as sps
from tensorspark.core.session_files import SessionFiles, load_graph

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


def load(example: Any, images: str | None, part: str) -> tuple[Any, Any]:
    pixels, brightest, digits = example.load(images, part)
    return example.to_numbers(pixels, brightest), example.to_one_hot(digits)


#: What tensorspark's own page shows, to the letter but for the import.
PRINTED = """
x = tf.placeholder(tf.float32, [None, 784])
W = tf.Variable(tf.zeros([784, 10]))
b = tf.Variable(tf.zeros([10]))
y = tf.nn.softmax(tf.matmul(x, W) + b)
y_ = tf.placeholder(tf.float32, [None, 10])
cross_entropy = tf.reduce_mean(-tf.reduce_sum(y_ * tf.log(y), reduction_indices=[1]))
train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)
init = tf.initialize_all_variables()
sess = tf.Session()
sess.run(init)

feed_name_list = [x.name, y_.name]
param_list = [W, b]

spark_sess = sps.SparkSession(sc, sess, user='liangfengsid', name='spark_mnist', \
server_host='localhost', server_port=10080, sync_interval=100, batch_size=100)
spark_sess.run(train_step, feed_rdd=image_label_rdd, feed_name_list=feed_name_list, \
param_list=param_list, shuffle_within_partition=True)
"""


def test_the_printed_program_runs(spark: Any, example: Any, fashion_mnist: str | None) -> None:
    x, y = load(example, fashion_mnist, "train")
    test_x, test_y = load(example, fashion_mnist, "t10k")
    # Without Fashion-MNIST digits of 8 x 8, in the corner of larger ones.
    x, test_x = (np.pad(one, [(0, 0), (0, 784 - one.shape[1])])[:12_000] for one in (x, test_x))
    rows = list(zip(x, y[:12_000], strict=True))
    program: dict[str, Any] = {
        "tf": tf.compat.v1,
        "sps": sps,
        "sc": spark.sparkContext,
        "image_label_rdd": spark.sparkContext.parallelize(rows, 2),
    }
    with tf.Graph().as_default():
        exec(PRINTED, program)
        session = program["sess"]
        scores = session.run(program["y"], {program["x"]: test_x})
        weights = session.run([program["W"], program["b"]])

    spark_session = program["spark_sess"]
    assert spark_session.get_session() is session
    assert (scores.argmax(1) == test_y[: len(test_x)].argmax(1)).mean() > 0.5
    folder = f"memory://{uuid.uuid4().hex}"
    for write in (spark_session.broadcast_session, spark_session.save_session_hdfs):
        paths = write(session, "user", write.__name__, folder)
        assert paths == tuple(f"{folder}/{write.__name__}{end}" for end in ("", ".meta", ".saver"))
        meta, values = SessionFiles(paths[0]).read()
        graph, variables = load_graph(meta)
        assert list(variables) == list(values)
        for one, kept in zip(weights, values.values(), strict=True):
            np.testing.assert_array_equal(one, kept)
        graph.get_tensor_by_name(program["y"].name)
    spark_session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(program["W"])


def train_alone(
    data: tuple[Any, Any, Any, Any], batch_size: int, epochs: int, seed: int | None
) -> tuple[list[float], Any, Any]:
    """The same program in one process, by hand: accuracies, weights and bias.

    Args:
        seed: Shuffles; None leaves the rows in their order.
    """
    x, y, test_x, test_y = data
    weights, bias = np.zeros((x.shape[1], 10), "float32"), np.zeros(10, "float32")
    rng = np.random.default_rng(seed)
    accuracies = []
    for _ in range(epochs):
        order = np.arange(len(x)) if seed is None else rng.permutation(len(x))
        for start in range(0, len(x), batch_size):
            chosen = order[start : start + batch_size]
            scores = x[chosen] @ weights + bias
            scores = np.exp(scores - scores.max(1, keepdims=True))
            error = (scores / scores.sum(1, keepdims=True) - y[chosen]) / len(chosen)
            weights -= 0.5 * x[chosen].T @ error
            bias -= 0.5 * error.sum(0)
        right = (test_x @ weights + bias).argmax(1) == test_y.argmax(1)
        accuracies.append(float(right.mean()))
    return accuracies, weights, bias


def check_accuracy(
    spark: Any, example: Any, images: str | None, epochs_alone: int, **wishes: Any
) -> None:
    """With a rate of 0.5, accuracy goes up and down: what counts is the median of late epochs."""
    found = example.train(spark.sparkContext, images, **wishes)
    data = (*load(example, images, "train"), *load(example, images, "t10k"))
    late_alone: list[float] = []
    for seed in range(3):
        accuracies, _, _ = train_alone(data, wishes["batch_size"], epochs_alone, seed)
        late_alone += accuracies[epochs_alone // 2 :]
    late, alone = statistics.median(found[len(found) // 2 :]), statistics.median(late_alone)
    print(f"accuracy {late:.4f}, in one process {alone:.4f}")
    assert late > alone - 0.01


def test_digits_are_learnt_as_in_one_process(spark: Any, example: Any) -> None:
    # After few epochs the mean of two workers is half as far.
    check_accuracy(spark, example, None, 30, batch_size=10, sync_interval=10, num_epoch=30)


@pytest.mark.slow
def test_fashion_is_learnt_as_in_one_process(
    spark: Any, example: Any, fashion_mnist: str | None
) -> None:
    if fashion_mnist is None:
        pytest.skip("no package dataset-fashion-mnist to be had")
    wishes = {"batch_size": 100, "sync_interval": 100, "num_epoch": 40}
    check_accuracy(spark, example, fashion_mnist, 40, **wishes)


@pytest.mark.slow
def test_one_worker_computes_what_one_process_does(spark: Any, example: Any) -> None:
    x, y = load(example, None, "train")
    _, weights, bias = train_alone((x, y, x, y), 32, 1, None)
    graph = tf.Graph()
    with graph.as_default():
        given = tf.compat.v1.placeholder(tf.float32, [None, 64])
        wanted = tf.compat.v1.placeholder(tf.float32, [None, 10])
        w = tf.compat.v1.Variable(tf.zeros([64, 10]))
        b = tf.compat.v1.Variable(tf.zeros([10]))
        scores = tf.matmul(given, w) + b
        loss = tf.nn.softmax_cross_entropy_with_logits(wanted, scores)
        loss = tf.reduce_mean(loss)
        step = tf.compat.v1.train.GradientDescentOptimizer(0.5).minimize(loss)
        session = tf.compat.v1.Session()
        session.run(tf.compat.v1.global_variables_initializer())
    rows = spark.sparkContext.parallelize(list(zip(x, y, strict=True)), 1)
    with sps.SparkSession(
        spark.sparkContext, session, sync_interval=7, batch_size=32
    ) as spark_session:
        names = [given.name, wanted.name]
        spark_session.run([step, loss], feed_rdd=rows, feed_name_list=names, param_list=[w, b])
        found = session.run([w, b])
    np.testing.assert_allclose(found[0], weights, atol=1e-4)
    np.testing.assert_allclose(found[1], bias, atol=1e-4)
