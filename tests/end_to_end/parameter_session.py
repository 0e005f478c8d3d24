"""Periodic synchronisation on three executors: a program of its own, for one Java per process.

    python parameter_session.py FOLDER CASE...

Trains on scikit-learn's handwritten digits. Writes FOLDER/answer.json.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import sparktrain as st

#: Rows to learn from; the others are to test with.
NUM_TRAIN = 1500
#: In the environment of a run's nodes: other runs of this host are left alone.
MARK = "PARAMETER_SESSION"


def load() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    return images.astype("float32") / 16, digits


def train(ctx: Any) -> dict[str, Any]:
    import os
    import signal
    import time

    import keras
    import numpy as np

    keras.utils.set_random_seed(ctx.rank + 1)  # workers do not begin with the same weights
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(48),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.Dropout(0.1),  # has a state that is not a number
            keras.layers.Dense(10, "softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.004), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    images, digits = load()
    test = (images[NUM_TRAIN:], digits[NUM_TRAIN:])
    notes: dict[str, Any] = {"own": float(np.abs(model.get_weights()[0]).sum())}
    wishes = ctx.args

    class Events(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            notes["first"] = float(np.abs(model.get_weights()[0]).sum())
            notes["first_accuracy"] = model.evaluate(*test, verbose=0)[1]

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if wishes.get("late") == ctx.rank and batch % 4 == 0:
                time.sleep(0.05)
            marker = Path(ctx.run_dir, "killed")
            is_due = wishes.get("kill") == ctx.rank and self.epoch == 4 and batch == 8
            if is_due and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if wishes.get("kill_ps") and self.epoch == 1 and batch == 8 and ctx.rank == 1:
                for process in Path("/proc").glob("[0-9]*"):
                    if is_ps(process):
                        os.kill(int(process.name), signal.SIGKILL)

    def is_ps(process: Path) -> bool:
        try:
            command = (process / "cmdline").read_bytes()
            loaded = (process / "maps").read_text()
            is_ours = f"{MARK}={ctx.run_dir}\0".encode() in (process / "environ").read_bytes()
        except OSError:
            return False
        # The one trainer that has not loaded TensorFlow.
        is_trainer = b"sparktrain.trainer" in command and b"watchdog" not in command
        return is_ours and is_trainer and "tensorflow" not in loaded and "flight" in loaded

    dataset = ctx.dataset(batch_size=32, features="pixels", label="digit", shuffle=True)
    sync = ctx.parameter_server(
        model, sync_interval=wishes.get("interval", 5), rule=wishes["rule"], wait_s=30.0
    )
    callbacks = ctx.callbacks(sync, Events())
    history = model.fit(dataset, epochs=8, verbose=0, callbacks=callbacks)
    notes.update(
        accuracy=model.evaluate(*test, verbose=0)[1],
        epochs=len(history.history["loss"]),
        steps=int(model.optimizer.iterations.numpy()),
        num_syncs=sync.num_syncs,
        last=float(np.abs(model.get_weights()[0]).sum()),
    )
    Path(ctx.run_dir, f"rank-{ctx.rank}.json").write_text(json.dumps(notes))
    return notes


CASES: dict[str, dict[str, Any]] = {
    "restart": {"rule": "average", "kill": 1, "max_restarts": 1},
    "lost": {"rule": "delta", "kill": 1, "max_restarts": 0},
    "late": {"rule": "elastic", "late": 1, "max_restarts": 0},
    "ps": {"rule": "average", "kill_ps": True, "max_restarts": 0, "interval": 1},
}


def run_case(name: str, folder: Path, spark: Any, frame: Any) -> dict[str, Any]:
    wishes = dict(CASES[name])
    max_restarts = wishes.pop("max_restarts")
    run_dir = folder / name
    try:
        result = st.run(
            train,
            num_workers=2,
            num_ps=1,
            args=wishes,
            data=frame,
            spark=spark,
            run_dir=run_dir,
            max_restarts=max_restarts,
            env={MARK: str(run_dir)},
            progress=False,
        )
    except st.TrainingError as error:
        return {"error": type(error).__name__, "node": error.node, "what": error.what}
    notes = [json.loads(path.read_text()) for path in sorted(run_dir.glob("rank-*.json"))]
    return {
        "value": result.value,
        "notes": notes,
        "num_restarts": result.num_restarts,
        "nodes": [dataclasses.asdict(node) for node in result.nodes],
        "log": (run_dir / "logs/worker-0.log").read_text(),
        "metrics": result.metrics,
    }


def feed_cluster(folder: Path, spark: Any, frame: Any) -> dict[str, Any]:
    """Workers of a long-lived group, which share two of the slots with the server."""
    with st.cluster(
        train_fed,
        num_workers=2,
        num_ps=1,
        distribution="periodic",
        spark=spark,
        run_dir=folder / "cluster",
        progress=False,
    ) as group:
        group.feed(frame, epochs=6)
    notes = [json.loads(p.read_text()) for p in sorted((folder / "cluster").glob("rank-*.json"))]
    return {"notes": notes}


def train_fed(ctx: Any) -> None:
    import keras

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10, "softmax")])
    model.compile(
        keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    dataset = ctx.dataset(batch_size=32, features="pixels", label="digit")
    sync = ctx.parameter_server(model, sync_interval=10)
    model.fit(dataset, verbose=0, callbacks=[sync])
    images, digits = load()
    accuracy = model.evaluate(images[NUM_TRAIN:], digits[NUM_TRAIN:], verbose=0)[1]
    notes = {"accuracy": accuracy, "num_syncs": sync.num_syncs}
    Path(ctx.run_dir, f"rank-{ctx.rank}.json").write_text(json.dumps(notes))


def main(folder: Path, cases: list[str]) -> None:
    spark = st.session(num_executors=3)
    images, digits = load()
    rows = [
        (image.tolist(), int(digit))
        for image, digit in zip(images[:NUM_TRAIN], digits[:NUM_TRAIN], strict=True)
    ]
    frame = st.table(
        spark.createDataFrame(rows, "pixels array<float>, digit int"), shapes={"pixels": (64,)}
    )
    answer = {}
    for name in cases:
        if name == "cluster":
            answer[name] = feed_cluster(folder, spark, frame)
        else:
            answer[name] = run_case(name, folder, spark, frame)
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
