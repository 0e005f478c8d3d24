"""DataFrames reach the training step: every row once an epoch, equal to one process."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import feed_cases
import keras_cases as cases
import sparktrain as st

cloudpickle.register_pickle_by_value(cases)
cloudpickle.register_pickle_by_value(feed_cases)

NEAR = 1e-5
#: Some tests wait for several runs that load TensorFlow.
pytestmark = pytest.mark.timeout(400)


def make_frame(spark: Any, num_rows: int = cases.NUM_ROWS, num_partitions: int = 2) -> Any:
    """The rows of keras_cases, the first half of them in the first partition."""
    features, labels = cases.make_rows(num_rows)
    rows = [(features[i].tolist(), float(labels[i, 0])) for i in range(num_rows)]
    parts = spark.sparkContext.parallelize(rows, num_partitions)
    return spark.createDataFrame(parts, feed_cases.SCHEMA)


def run(spark: Any, folder: Path, fn: Any, data: Any, **more: Any) -> tuple[Any, list[Any]]:
    options: dict[str, Any] = {"num_workers": 2, "progress": False, "slot_wait_s": 60, **more}
    result = st.run(fn, spark=spark, data=data, run_dir=folder, **options)
    ranks = range(options["num_workers"])
    return result, [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in ranks]


@pytest.fixture(scope="module")
def fitted(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two workers fed by Spark, and one process on the same global batches."""
    folder = tmp_path_factory.mktemp("feed")
    frame = make_frame(spark_session)
    result, ranks = run(
        spark_session, folder / "two", feed_cases.fit_and_look, frame, args={"data": "fed"}
    )
    _, [alone] = run(
        spark_session,
        folder / "one",
        feed_cases.fit_and_look,
        None,
        args={"data": "numpy"},
        num_workers=1,
    )
    return {"result": result, "ranks": ranks, "alone": alone}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_two_fed_workers_equal_one_process(fitted: dict[str, Any], optimizer: str) -> None:
    alone = fitted["alone"][optimizer]
    for rank in fitted["ranks"]:
        mine = rank[optimizer]
        assert mine["steps"] == alone["steps"] == 3 * cases.NUM_ROWS // feed_cases.BATCH
        assert mine["weights"] == pytest.approx(alone["weights"], abs=NEAR)
        assert mine["history"]["loss"] == pytest.approx(alone["history"]["loss"], abs=NEAR)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_every_row_is_trained_on_once_an_epoch(fitted: dict[str, Any], optimizer: str) -> None:
    seen = [sorted(rank[optimizer]["seen"]) for rank in fitted["ranks"]]
    half = cases.NUM_ROWS // 2
    assert seen == [sorted([*range(half)] * 3), sorted([*range(half, 2 * half)] * 3)]


def test_rows_come_in_the_order_of_spark(fitted: dict[str, Any]) -> None:
    plain = [rank["plain"] for rank in fitted["ranks"]]
    assert plain == [list(range(32)), list(range(32, 64))]
    assert fitted["ranks"][0]["dict"] == ["features", "label"]


def test_same_seed_same_order(fitted: dict[str, Any]) -> None:
    for rank in fitted["ranks"]:
        first, second = rank["mixed"]
        assert rank["again"] == [first, second]
        assert first != second and first != rank["other"] and first != rank["plain"]
        for order in (first, second, rank["other"]):
            assert sorted(order) == rank["plain"]


def test_remainders_and_steps_are_as_in_keras(fitted: dict[str, Any]) -> None:
    for rank in fitted["ranks"]:
        assert rank["dropped"] == [10, 10, 10]  # of 32 rows
        # Two epochs of three steps with half of a global batch each.
        assert rank["steps"] == [2, 2 * 3 * feed_cases.BATCH // 2]


def test_the_result_tells_how_the_input_was(fitted: dict[str, Any]) -> None:
    for node in fitted["result"].nodes:
        feed = node.feed
        assert feed.rows > 0 and feed.bytes == feed.rows * 7 * 4
        assert feed.train_s > feed.first_s > 0 and 0 <= feed.wait_share <= 1
        assert feed.rows_per_s > 0 and feed.mb_per_s > 0 and feed.queue >= 0


@pytest.mark.parametrize(
    ("num_rows", "num_partitions"), [(45, 2), (40, 5), (1, 2)], ids=["odd", "many-parts", "one-row"]
)
def test_uneven_rows_are_all_trained_on(
    spark: Any, tmp_path: Path, num_rows: int, num_partitions: int
) -> None:
    frame = make_frame(spark, num_rows, num_partitions)
    _, ranks = run(spark, tmp_path, feed_cases.fit_few_rows, frame)
    seen = [row for rank in ranks for row in rank["seen"]]
    assert sorted(seen) == sorted([*range(num_rows)] * 2)
    # Each batch of a worker's own rows is cut in two, a single row is not.
    longest = max(len(rank["seen"]) for rank in ranks) // 2
    whole, rest = divmod(longest, feed_cases.BATCH)
    assert [rank["iterations"] for rank in ranks] == [2 * (2 * whole + min(rest, 2))] * 2
    assert ranks[0]["weights"] == pytest.approx(ranks[1]["weights"], abs=NEAR)


def test_layers_on_workers_with_different_numbers_of_rows(spark: Any, tmp_path: Path) -> None:
    """The worker that has fewer takes part in the last steps without any."""

    def train(ctx: Any) -> Any:
        import keras
        import numpy as np
        import tensorflow as tf

        with ctx.strategy.scope():
            model = keras.Sequential(
                [
                    keras.Input((8, 8, 1)),
                    keras.layers.Conv2D(4, 3, activation="relu"),
                    keras.layers.BatchNormalization(),
                    keras.layers.MaxPooling2D(),
                    keras.layers.DepthwiseConv2D(3, activation="relu"),
                    keras.layers.Flatten(),
                    keras.layers.Dense(1),
                ]
            )
            model.compile("adam", "mse")
        fed = ctx.dataset(batch_size=8, features="x", label="id")
        history = model.fit(fed, epochs=2, verbose=0, callbacks=ctx.callbacks())
        weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
        # Autotuning would hold up the end of epochs, of any of the datasets that a step reads.
        own = tf.data.Dataset.range(8).batch(2)
        iterator = iter(ctx.strategy.experimental_distribute_dataset(own))._iterators[0]
        datasets = [fed, iterator._dataset, iterator._iterator._device_iterators[0]._dataset]
        tuned = [dataset.options().autotune.enabled for dataset in datasets]
        return len(history.history["loss"]), weights.tolist(), tuned

    frame = spark.range(0, 64, 1, 2).where("id < 40")  # 32 rows and 8
    frame = frame.selectExpr("array_repeat(cast(id as float) / 64, 64) as x", "id")
    data = st.table(frame, shapes={"x": (8, 8, 1)})
    result = st.run(train, num_workers=2, spark=spark, data=data, run_dir=tmp_path, progress=False)
    epochs, weights, tuned = result.value
    assert epochs == 2 and np.isfinite(weights).all() and tuned == [False] * 3
    assert sum(node.rows for node in result.nodes) == 2 * 40


def test_a_worker_without_rows(spark: Any, tmp_path: Path) -> None:
    """One of two partitions is empty; also the smallest of all feeds: one worker."""
    frame = make_frame(spark, 24, 2)
    frame = frame.where(frame.features[5] < 12)
    assert [len(part) for part in frame.rdd.glom().collect()] == [12, 0]
    _, ranks = run(spark, tmp_path, feed_cases.fit_few_rows, frame)
    assert sorted(ranks[0]["seen"]) == sorted([*range(12)] * 2) and ranks[1]["seen"] == []
    assert ranks[0]["weights"] == pytest.approx(ranks[1]["weights"], abs=NEAR)
    _, [alone] = run(spark, tmp_path, feed_cases.fit_few_rows, frame, num_workers=1)
    assert sorted(alone["seen"]) == sorted([*range(12)] * 2)


def test_types(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import Row

    day, moment = datetime.date(1969, 12, 31), datetime.datetime(1970, 1, 1, 0, 0, 1)
    rows = [
        Row(
            n=i, b=i % 2 == 0, by=i, sh=-i, i=i, f=i / 2, d=i / 4, dec=decimal.Decimal(i) / 8,
            s=f"ä{i}", raw=bytes([i, 255]), day=day, at=moment,
            fixed=[i, i + 1], words=[f"w{k}" for k in range(i)], padded=[i] * i,
            deep=[[i, 1], [i, 2]], image=bytes([i] * 6),
            v=Vectors.dense([i, 2.0]) if i % 2 else Vectors.sparse(2, {1: 2.0}),
            gap=None if i == 1 else 7, hole=None if i == 2 else float(i),
        )
        for i in range(4)
    ]  # fmt: skip
    frame = spark.createDataFrame(rows).selectExpr(
        *["n", "b", "cast(by as byte)", "cast(sh as short)", "cast(i as int)", "cast(f as float)"],
        *["d", "cast(dec as decimal(10,3))", "s", "raw", "day", "at", "fixed", "words", "padded"],
        *["deep", "image", "v", "gap", "hole", "map('a', 1) as m"],
    )
    declared = st.table(
        frame,
        columns=[name for name in frame.columns if name != "m"],
        shapes={"words": (None,), "image": (1, 2, 3), "deep": (2, 2, 1)},
        pad={"padded": -1},
        fill={"gap": 9},
        mask=["hole"],
    )
    small = spark.range(3, numPartitions=1)
    _, ranks = run(
        spark,
        tmp_path,
        feed_cases.look_at_types,
        {"train": declared, "other": small},
        distribution="none",
    )
    numbers = [rank["train"]["n"][2] for rank in ranks]
    assert sorted(numbers[0] + numbers[1]) == [0, 1, 2, 3] and len(numbers[0]) == 2
    assert sorted(n for rank in ranks for n in rank["other"].get("id", [0, 0, []])[2]) == [0, 1, 2]
    for rank in ranks:
        found = rank["train"]
        mine = found["n"][2]
        expected: dict[str, tuple[str, list[Any]]] = {
            "n": ("int64", mine),
            "b": ("bool", [i % 2 == 0 for i in mine]),
            "by": ("int8", mine),
            "sh": ("int16", [-i for i in mine]),
            "i": ("int32", mine),
            "f": ("float32", [i / 2 for i in mine]),
            "d": ("float64", [i / 4 for i in mine]),
            "dec": ("float64", [i / 8 for i in mine]),
            "s": ("string", [f"ä{i}".encode().decode("latin-1") for i in mine]),
            "raw": ("string", [bytes([i, 255]).decode("latin-1") for i in mine]),
            "day": ("int32", [-1 for _ in mine]),
            "fixed": ("int64", [[i, i + 1] for i in mine]),
            "words": ("string", [[f"w{k}" for k in range(i)] for i in mine]),
            "deep": ("int64", [[[[i], [1]], [[i], [2]]] for i in mine]),
            "image": ("uint8", [[[[i] * 3] * 2] for i in mine]),
            "v": ("float32", [[float(i) if i % 2 else 0.0, 2.0] for i in mine]),
            "gap": ("int64", [9 if i == 1 else 7 for i in mine]),
            "hole": ("float64", [0.0 if i == 2 else float(i) for i in mine]),
            "hole_is_null": ("bool", [i == 2 for i in mine]),
        }
        for name, (dtype, values) in expected.items():
            assert (found[name][0], found[name][2]) == (dtype, values), name
        assert found["words"][1] == "RaggedTensor" and found["padded"][1] == "EagerTensor"
        assert [[v for v in row if v != -1] for row in found["padded"][2]] == [
            [i] * i for i in mine
        ]
        assert np.diff(found["at"][2]).tolist() == [0] * (len(mine) - 1)


def test_spark_mixes_all_rows_once(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> dict[str, Any]:
        found = [int(n) for batch in ctx.dataset(batch_size=64) for n in batch["id"].numpy()]
        return feed_cases.answer(ctx, {"ids": found})

    train.__module__ = "__main__"
    frame = spark.range(1000, numPartitions=3)
    orders = []
    for seed in (1, 1, 2):
        mixed = st.table(frame, shuffle="spark", seed=seed)
        _, ranks = run(spark, tmp_path, train, mixed, distribution="none")
        orders.append([rank["ids"] for rank in ranks])
        both = sorted(orders[-1][0] + orders[-1][1])
        assert both == list(range(1000)) and abs(len(orders[-1][0]) - 500) <= 1
        assert np.corrcoef(orders[-1][0], range(len(orders[-1][0])))[0, 1] < 0.2
    assert orders[0] == orders[1] and orders[0] != orders[2]
