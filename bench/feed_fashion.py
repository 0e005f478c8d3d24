"""A convolutional network on Fashion-MNIST: fed by Spark, and fed from numpy by hand."""

from __future__ import annotations

import gzip
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import sparktrain as st

#: Where Debian's package dataset-fashion-mnist has the images.
FOLDER = Path("/usr/share/datasets/fashion-mnist")
EPOCHS, BATCH = 3, 128


def load(part: str) -> tuple[Any, Any]:
    """Images as (n, 784) bytes, and labels."""
    with gzip.open(FOLDER / f"{part}-images-idx3-ubyte.gz") as stream:
        images = np.frombuffer(stream.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(FOLDER / f"{part}-labels-idx1-ubyte.gz") as stream:
        labels = np.frombuffer(stream.read(), np.uint8, offset=8)
    return images, labels.astype("int64")


def make_model() -> Any:
    """A convolutional network, compiled."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def fit(
    strategy: Any, dataset: Any, make_callbacks: Any = lambda model: []
) -> tuple[Any, list[float]]:
    """Trains; returns the model and the seconds of each epoch."""
    import time

    import keras

    seconds: list[float] = []

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seconds.append(time.perf_counter() - self._began)

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = make_model()
    callbacks = [Clock(), *make_callbacks(model)]
    model.fit(dataset, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    return model, seconds


def by_hand() -> None:
    """One of two processes: its half of the images from memory."""
    import tensorflow as tf

    from sparktrain.trainer.strategy import KerasMultiWorkerStrategy, make_local_dataset

    strategy = KerasMultiWorkerStrategy()
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    images, labels = load("train")
    own = tf.data.Dataset.from_tensor_slices(
        (images[rank::2].reshape(-1, 28, 28, 1), labels[rank::2])
    )
    dataset = make_local_dataset(own.shuffle(10_000, seed=1).batch(BATCH).prefetch(4))
    model, seconds = fit(strategy, dataset)
    test, answers = load("t10k")
    test_data = tf.data.Dataset.from_tensor_slices((test.reshape(-1, 28, 28, 1), answers))
    accuracy = model.evaluate(test_data.batch(500), verbose=0, return_dict=True)["accuracy"]
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps([seconds, accuracy]))


def run_by_hand() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        ports = []
        for _ in range(2):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                ports.append(probe.getsockname()[1])
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        processes = []
        for rank in range(2):
            config = {"cluster": cluster, "task": {"type": "worker", "index": rank}}
            env = {**os.environ, "TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "2"}
            processes.append(subprocess.Popen([sys.executable, __file__, folder], env=env))
        for process in processes:
            if process.wait(600) != 0:
                raise RuntimeError("a process started by hand failed")
        seconds, accuracy = json.loads(Path(folder, "0.json").read_text())
    return statistics.median(seconds), accuracy


def run_fed(spark: Any, frames: dict[str, Any]) -> tuple[float, float]:
    def train(ctx: Any) -> Any:
        import feed_fashion as own

        columns: dict[str, Any] = {"features": "image", "label": "label"}
        dataset = ctx.dataset(batch_size=BATCH, shuffle=10_000, seed=1, **columns)
        model, seconds = own.fit(ctx.strategy, dataset)
        test = ctx.dataset("test", batch_size=500, **columns)
        return seconds, model.evaluate(test, verbose=0, return_dict=True)["accuracy"]

    seconds, accuracy = st.run(train, num_workers=2, spark=spark, data=frames, progress=False).value
    return statistics.median(seconds), accuracy


def make_frames(spark: Any) -> dict[str, Any]:
    """Images to train on and to test with; empty if they cannot be had."""
    if not FOLDER.exists():
        subprocess.run(["apt-get", "install", "-y", "-qq", "dataset-fashion-mnist"], check=False)
    if not FOLDER.exists():
        print("\nFashion-MNIST is not here: install Debian's package dataset-fashion-mnist.")
        return {}
    frames = {}
    for name, part in (("train", "train"), ("test", "t10k")):
        images, labels = load(part)
        rows = [(image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)]
        frame = spark.createDataFrame(rows, "image binary, label int")
        frames[name] = st.table(frame, shapes={"image": (28, 28, 1)})
    return frames


def compare(spark: Any, rounds: int) -> None:
    frames = make_frames(spark)
    if not frames:
        return
    hand, fed = [], []
    for _ in range(rounds):
        hand.append(run_by_hand())
        fed.append(run_fed(spark, frames))
    hand_s, fed_s = (statistics.median(one for one, _ in found) for found in (hand, fed))
    print("\n| Fashion-MNIST, 2 workers | seconds an epoch | test accuracy |\n|---|---|---|")
    print(
        f"| numpy, started by hand | {hand_s:.1f} | {statistics.median(a for _, a in hand):.3f} |"
    )
    print(f"| DataFrame | {fed_s:.1f} | {statistics.median(a for _, a in fed):.3f} |")
    print(f"\nSpeed of the fed run against the one by hand: {hand_s / fed_s:.2f}", flush=True)


if __name__ == "__main__":
    by_hand()
