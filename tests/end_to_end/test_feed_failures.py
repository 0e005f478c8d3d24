"""Bad data, early ends and restarts of a feed: the error names the cause, nothing is left."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import sparktrain as st

ALONE: dict[str, Any] = {"distribution": "none", "progress": False, "num_workers": 2}
#: Some tests wait for several runs that load TensorFlow.
pytestmark = pytest.mark.timeout(400)


def read_all(ctx: Any) -> int:
    return sum(len(next(iter(batch.values()))) for batch in ctx.dataset(batch_size=100))


def sleep(ctx: Any) -> None:
    import time

    time.sleep(600)


for function in (read_all, sleep):
    function.__module__ = "__main__"  # travels by value


@pytest.mark.parametrize(
    ("query", "wishes", "named"),
    [
        ("id, map('a', id) as m", {}, ["'m'", "'train'", "map", "columns=[...]"]),
        ("id, named_struct('a', id) as s", {}, ["'s'", "struct", "select the fields"]),
        ("id, interval 1 day as i", {}, ["'i'", "interval"]),
        ("id", {"columns": ["nosuch"]}, ["'nosuch'", "columns", "The columns are id"]),
        ("id", {"shapes": {"id": (2,)}}, ["'id'", "(2,)", "single values"]),
        ("array(id) as a", {"shapes": {"a": (2, -1)}}, ["'a'", "-1"]),
        ("id", {"fill": {"id": "text"}}, ["'id'", "'text'", "long"]),
        ("id", {"pad": {"id": 0}}, ["'id'", "no array"]),
        ("array(id) as a where id < 0", {}, ["'train'", "There is no row"]),
    ],
)
def test_columns_that_cannot_be_are_refused_before_any_job(
    spark: Any, query: str, wishes: dict[str, Any], named: list[str]
) -> None:
    what, _, condition = query.partition(" where ")
    frame = spark.range(4).where(condition or "true").selectExpr(*_columns(what))
    with pytest.raises(st.SchemaError) as caught:
        st.run(read_all, spark=spark, data=st.table(frame, **wishes), **ALONE)
    assert all(name in str(caught.value) for name in named), str(caught.value)


def _columns(text: str) -> list[str]:
    return [text] if "(" in text and not text.startswith("id,") else text.split(", ", 1)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (17, ["int", "DataFrame"]),
        ({}, ["empty dict"]),
        ({"": 1}, ["''"]),
        ({"a/b": 1}, ["'a/b'"]),
    ],
)
def test_data_that_is_none_is_refused(spark: Any, data: Any, named: list[str]) -> None:
    with pytest.raises(st.ConfigError) as caught:
        st.run(read_all, spark=spark, data=data, **ALONE)
    assert all(name in str(caught.value) for name in named)


@pytest.mark.parametrize(
    ("column", "wishes", "named"),
    [
        ("if(id = 17, array(1), array(1, 2)) as a", {"shapes": {"a": (2,)}}, ["'a'", "1 values"]),
        ("if(id = 17, null, id) as a", {}, ["'a'", "is null", "fill={'a'"]),
        ("if(id = 17, array(1, null), array(1, 2)) as a", {}, ["'a'", "null inside"]),
    ],
)
@pytest.mark.parametrize("parts", [2, 3], ids=["as-it-is", "dealt-out"])
def test_a_bad_row_is_named(
    spark: Any, column: str, wishes: dict[str, Any], named: list[str], parts: int
) -> None:
    """Row 17 of partition 1 where the partitions stay; dealt out, it is another one."""
    low = spark.range(0, 40, 1, parts - 1).selectExpr("-1 - id as id")
    frame = low.union(spark.range(0, 40, 1, 1)).selectExpr(column) if parts == 3 else None
    if frame is None:
        frame = spark.range(-40, 40, 1, 2).selectExpr(column)
    started = time.monotonic()
    with pytest.raises(st.DataError) as caught:
        st.run(sleep, spark=spark, data=st.table(frame, **wishes), **ALONE)
    text = str(caught.value)
    assert all(name in text for name in named), text
    assert ("in row 17 of partition 1" in text) == (parts == 2)
    assert time.monotonic() - started < 120  # of 600


def test_a_dataframe_without_rows(spark: Any) -> None:
    frame = spark.range(10, numPartitions=2).where("id < 0")
    for empty in (frame, spark.range(10, numPartitions=3).where("id < 0"), frame.limit(0)):
        with pytest.raises(st.DataError, match="'train' has no rows"):
            st.run(read_all, spark=spark, data=empty, **ALONE)

    def fit(ctx: Any) -> None:
        import keras

        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(ctx.dataset(batch_size=4, features="id", label="id"), verbose=0)

    with pytest.raises(st.DataError, match="'train' has no rows"):
        st.run(fit, spark=spark, data=frame, num_workers=2, progress=False)


def test_asking_for_what_is_not_there(spark: Any) -> None:
    def train(ctx: Any) -> list[str]:
        texts = []
        for name, options in (
            ("nosuch", {"batch_size": 1}),
            ("train", {"batch_size": 0}),
            ("train", {"batch_size": 2, "features": ["x"]}),
            ("train", {"batch_size": 2, "shuffle": "spark"}),
            ("train", {"batch_size": 2, "shuffle": -1}),
            ("train", {"batch_size": 2, "weight": "id"}),
        ):
            try:
                ctx.dataset(name, **options)
                texts.append("taken")
            except ValueError as error:
                texts.append(str(error))
        return texts

    texts = st.run(train, spark=spark, data=spark.range(4), **ALONE).value
    assert "'nosuch'" in texts[0] and "'train'" in texts[0]
    assert "batch_size=0" in texts[1] and "'x'" in texts[2] and "id" in texts[2]
    assert "st.table(df, shuffle" in texts[3] and "shuffle=-1" in texts[4] and "label" in texts[5]


def test_the_function_may_end_before_its_rows(spark: Any, tmp_path: Path) -> None:
    """More rows than Spark can make in an hour: the run ends with the function."""

    def train(ctx: Any) -> list[int]:
        import os

        return [len(next(iter(ctx.dataset(batch_size=10)))["id"]), os.getppid()]

    frame = spark.range(0, 40_000_000_000, 1, 2).selectExpr("id", "id * 2 as other")
    result = st.run(train, spark=spark, data=frame, timeout_s=120, **ALONE)
    rows, agent = result.value
    assert rows == 10
    deadline = time.monotonic() + 20
    while psutil.pid_exists(agent):  # its worker is not used again
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert (
        spark.range(10, numPartitions=2).mapInArrow(lambda batches: batches, "id long").count()
        == 10
    )


def test_a_restart_uses_the_rows_that_are_there(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> dict[str, Any]:
        import os
        import signal

        import keras

        class Killer(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                marker = Path(ctx.run_dir, "killed")
                if ctx.rank == 1 and epoch == 2 and not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        keras.utils.set_random_seed(1)
        with ctx.strategy.scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile("adam", "mse")
        fed = ctx.dataset(batch_size=8, features="x", label="y")
        model.fit(fed, epochs=4, verbose=0, callbacks=ctx.callbacks(Killer()))
        weights = [float(w) for weight in model.get_weights() for w in weight.ravel()]
        return {"steps": int(model.optimizer.iterations.numpy()), "weights": weights}

    frame = spark.range(0, 64, 1, 2).selectExpr(
        "array(cast(id as float) / 64) as x", "id / 64 as y"
    )
    data = st.table(frame, shapes={"x": (1,)})
    common: dict[str, Any] = {"spark": spark, "data": data, "num_workers": 2, "progress": False}
    result = st.run(train, run_dir=tmp_path / "run", max_restarts=1, **common)
    assert result.num_restarts == 1 and result.value["steps"] == 4 * 8
    assert [row["epoch"] for row in result.metrics] == [1, 2, 3, 4]
    for name in ("chief-0", "worker-0"):
        log = (tmp_path / f"run/logs/{name}.log").read_text()
        assert "rows of an earlier attempt are used again" in log
    whole = st.run(train, run_dir=tmp_path / "run", **common)  # the marker is there
    assert whole.num_restarts == 0
    assert whole.value["weights"] == pytest.approx(result.value["weights"], abs=1e-5)


def test_a_full_disk_under_the_spill(spark: Any, tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here: needs root")
    try:
        frame = spark.range(0, 1_000_000, 1, 2)
        with pytest.raises(st.DataError) as caught:
            st.run(sleep, spark=spark, data=frame, spill_dir=str(tmp_path), **ALONE)
        assert "No space left on device" in str(caught.value)
        assert str(tmp_path) in str(caught.value) and "spillDir" in str(caught.value)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.slow
def test_a_run_that_waits_for_its_input_says_so(
    spark: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    def train(ctx: Any) -> None:
        import keras

        with ctx.strategy.scope():
            model = keras.Sequential([keras.Input((512,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")

        class Begin(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                Path(ctx.args).touch()

        fed = ctx.dataset(batch_size=64, features="x", label="id")
        model.fit(fed, epochs=2, verbose=0, callbacks=ctx.callbacks(Begin()))

    def make_slow(begun: Path) -> Any:
        def slowly(batches: Any) -> Any:
            """Lets through 64 rows at a time, half of them when training has begun."""
            deadline = time.monotonic() + 100
            for number, batch in enumerate(batches):
                # Not the first ones: Spark and TensorFlow both hold back a few.
                while number >= 10 and not begun.exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(0.01 if number < 10 else 0.8)
                yield batch

        return slowly

    batch_rows = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(batch_rows)
    spark.conf.set(batch_rows, 64)
    request.addfinalizer(lambda: spark.conf.set(batch_rows, before))
    for num_workers in (2, 1):
        begun = tmp_path / f"begun-{num_workers}"
        # Wide rows: Spark collects some ten thousand bytes before it passes them on.
        frame = spark.range(0, 1280 * num_workers, 1, num_workers)
        frame = frame.selectExpr("id", "array_repeat(cast(0 as float), 512) as x")
        slow = frame.mapInArrow(make_slow(begun), frame.schema)
        result = st.run(
            train,
            spark=spark,
            data=st.table(slow, shapes={"x": (512,)}),
            num_workers=num_workers,
            run_dir=tmp_path / "run",
            args=str(begun),
        )
        shares = [node.feed.first_wait_s / node.feed.first_s for node in result.nodes]
        assert all(share > 0.3 for share in shares), shares
        text = " ".join(capfd.readouterr().err.split())
        assert "the run is input-bound while Spark delivers. Cache the DataFrame" in text
        assert "waits " in text  # in the lines of the epochs
        answer = json.loads((tmp_path / "run/result.json").read_text())
        assert answer["nodes"][0]["feed"]["wait_s"] > 0


def test_a_spill_folder_that_cannot_be(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(st.DataError, match="cannot be written"):
        st.run(sleep, spark=spark, data=spark.range(4), spill_dir=str(tmp_path / "file"), **ALONE)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
