"""After a lost node the group starts again and goes on from its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.driver import spark_facts

ALONE: dict[str, Any] = {"distribution": "none", "progress": False}


def train_five_epochs(ctx: Any) -> dict[str, Any]:
    import os
    import signal

    import keras
    import numpy as np
    import tensorflow as tf

    class Killer(keras.callbacks.Callback):  # type: ignore[misc]
        """Kills the worker in the middle of its third epoch, once."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            marker = Path(ctx.run_dir, "killed")
            if ctx.args["kill"] and self.epoch == 3 and batch == 2 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch + 1

    rng = np.random.default_rng(0)
    features = rng.normal(size=(64, 4)).astype("float32")
    labels = features.sum(axis=1, keepdims=True)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(8)
    keras.utils.set_random_seed(3)
    with ctx.strategy.scope():
        layers = [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(0.01), "mse")
    own = [Killer()] if ctx.rank == 1 else []
    model.fit(dataset, epochs=5, verbose=0, shuffle=False, callbacks=ctx.callbacks(*own))
    path = ctx.export(model)
    assert os.path.dirname(path) == ctx.run_dir  # noqa: PTH120
    return {
        "weights": [value for weight in model.get_weights() for value in weight.ravel().tolist()],
        "steps": int(model.optimizer.iterations.numpy()),
    }


train_five_epochs.__module__ = "__main__"  # travels by value


def test_killed_worker_in_epoch_three_of_five(spark: Any, tmp_path: Path) -> None:
    common = {"num_workers": 2, "spark": spark, "progress": False}
    broken = st.run(
        train_five_epochs,
        args={"kill": True},
        run_dir=tmp_path / "broken",
        max_restarts=1,
        **common,
    )
    assert (tmp_path / "broken/killed").exists()
    assert broken.num_restarts == 1
    assert [row["epoch"] for row in broken.metrics] == [1, 2, 3, 4, 5]
    assert "resumed behind epoch 2" in (tmp_path / "broken/logs/chief-0.log").read_text()
    assert not (tmp_path / "broken/checkpoints").exists(), "training is complete"

    whole = st.run(train_five_epochs, args={"kill": False}, run_dir=tmp_path / "whole", **common)
    assert whole.num_restarts == 0 and len(whole.metrics) == 5
    assert broken.value["steps"] == whole.value["steps"] == 5 * 8
    losses = [[row["loss"] for row in result.metrics] for result in (broken, whole)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert broken.value["weights"] == pytest.approx(whole.value["weights"], abs=1e-5)
    # What the whole run left: model, events, nodes with their rows and steps.
    assert whole.model_path == str(tmp_path / "whole/model.keras")
    assert Path(whole.model_path).stat().st_size > 1000
    assert list((tmp_path / "whole/tensorboard").rglob("events*"))
    assert [(node.rows, node.steps, node.exit) for node in whole.nodes] == [(160, 40, 0)] * 2


def test_lost_behind_the_first_of_two_fits(spark: Any, tmp_path: Path) -> None:
    """The first fit is not done again, and each fit has its own rows."""

    def train(ctx: Any) -> dict[str, Any]:
        import os
        import signal

        import keras
        import numpy as np

        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        options: dict[str, Any] = {"verbose": 0, "batch_size": np.int64(4)}
        data = np.ones((8, 2)), np.ones(8)
        model.fit(*data, epochs=3, callbacks=ctx.callbacks(), **options)
        marker = Path(ctx.run_dir, "killed")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        steps = int(model.optimizer.iterations.numpy())
        model.fit(*data, epochs=np.int64(2), callbacks=ctx.callbacks(), **options)
        return {"steps": steps, "all_steps": int(model.optimizer.iterations.numpy())}

    result = st.run(
        train, num_workers=1, spark=spark, run_dir=tmp_path, max_restarts=1, progress=False
    )
    assert result.value == {"steps": 6, "all_steps": 10}
    rows = [(row.get("fit"), row["epoch"]) for row in result.metrics]
    assert rows == [(None, 1), (None, 2), (None, 3), (2, 1), (2, 2)]
    assert "resumed behind epoch 3" in (tmp_path / "logs/chief-0.log").read_text()


def test_lost_between_two_checkpoints_of_an_epoch(spark: Any, tmp_path: Path) -> None:
    """With save_freq the steps up to the last checkpoint are kept, and the epoch begins again."""

    def train(ctx: Any) -> int:
        import os
        import signal

        import keras
        import numpy as np

        class Killer(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                marker = Path(ctx.run_dir, "killed")
                if batch == 4 and not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        callbacks = ctx.callbacks(Killer(), save_freq=2)
        model.fit(np.ones((16, 2)), np.ones(16), batch_size=2, verbose=0, callbacks=callbacks)
        return int(model.optimizer.iterations.numpy())

    result = st.run(
        train, num_workers=1, spark=spark, run_dir=tmp_path, max_restarts=1, progress=False
    )
    assert (result.value, result.num_restarts) == (4 + 8, 1)
    assert [row["epoch"] for row in result.metrics] == [1]
    assert "resumed behind epoch 0" in (tmp_path / "logs/chief-0.log").read_text()


def test_unfinished_run_is_gone_on_with_by_hand(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> int:
        import keras
        import numpy as np

        class Fail(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if epoch == 2 and ctx.args == "fail":
                    raise RuntimeError("not this time")

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        data = np.ones((8, 2)), np.ones(8)
        model.fit(*data, epochs=4, verbose=0, batch_size=4, callbacks=ctx.callbacks(Fail()))
        return int(model.optimizer.iterations.numpy())

    common: dict[str, Any] = {"num_workers": 1, "spark": spark, "progress": False}
    with pytest.raises(st.NodeFailedError, match="not this time"):
        st.run(train, args="fail", run_dir=tmp_path, **common)
    second = st.run(train, run_dir=tmp_path, **common)
    assert second.value == 8 and [row["epoch"] for row in second.metrics] == [1, 2, 3, 4]
    # The run is complete: the next one in the same folder starts anew.
    third = st.run(train, run_dir=tmp_path, **common)
    assert third.value == 8 and [row["epoch"] for row in third.metrics] == [1, 2, 3, 4]


def make_counter(fail: str) -> Any:
    def train(ctx: Any) -> int:
        import os
        import signal
        import time
        from pathlib import Path

        import psutil

        tries = Path(ctx.run_dir, f"tries-{ctx.rank}")
        count = len(tries.read_text()) if tries.exists() else 0
        tries.write_text("x" * (count + 1))
        ctx.report(tries=count + 1)
        if count == 0 and ctx.rank == 1:
            # Not before the chief's report is on its way.
            deadline = time.monotonic() + 30
            while not Path(ctx.run_dir, "tries-0").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(1)
            if fail == "raise":
                raise ValueError("my own mistake")
            if fail == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            java = next(p for p in psutil.Process().parents() if "java" in p.name())
            os.kill(java.pid, signal.SIGKILL)
        return count + 1

    return train


def test_own_error_does_not_restart(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(st.NodeFailedError, match="my own mistake"):
        st.run(
            make_counter("raise"),
            num_workers=2,
            spark=spark,
            run_dir=tmp_path,
            max_restarts=3,
            **ALONE,
        )
    assert (tmp_path / "tries-1").read_text() == "x"


@pytest.mark.parametrize("fail", ["raise", "kill", "executor"])
def test_restart_when_asked(spark: Any, tmp_path: Path, fail: str) -> None:
    result = st.run(
        make_counter(fail),
        num_workers=2,
        spark=spark,
        run_dir=tmp_path,
        max_restarts=1,
        restart_on_error=fail == "raise",
        **ALONE,
    )
    assert (result.value, result.num_restarts) == (2, 1)
    # Rows without an epoch stay, of every attempt.
    assert [row["tries"] for row in result.metrics] == [1, 2]


def test_no_restart_without_slots_tells_the_first_cause(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = spark_facts.count_slots

    def count_without_the_new_executor(session: Any, profile: Any = None) -> int | None:
        """Spark replaces the executor in a second or in ten; here it never does."""
        return 1 if (tmp_path / "tries-1").exists() else count(session)

    monkeypatch.setattr(spark_facts, "count_slots", count_without_the_new_executor)
    with pytest.raises(st.NodeLostError, match="worker:0") as caught:
        st.run(
            make_counter("executor"),
            num_workers=2,
            spark=spark,
            run_dir=tmp_path,
            max_restarts=1,
            restart_wait_s=0,
            **ALONE,
        )
    (note,) = caught.value.__notes__
    assert note.startswith("No restart was possible: ") and "needs 2 task slots" in note
    assert (tmp_path / "tries-1").read_text() == "x"


def test_restarts_run_out(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import os
        import signal
        from pathlib import Path

        with Path(ctx.run_dir, "tries").open("a") as stream:
            stream.write("x")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(st.NodeLostError, match="Restarts so far: 2"):
        st.run(train, num_workers=1, spark=spark, run_dir=tmp_path, max_restarts=2, **ALONE)
    assert (tmp_path / "tries").read_text() == "xxx"
