"""Digits from CSV part files, split over the workers: the classic job of reader queues.

Each worker reads its own part files, a block ahead, in an order of its own in every epoch; pixels
come as one column each and leave as one normalised vector.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import sparktrain as st

PIXELS = [f"pixel{number}" for number in range(64)]
NUM_PARTS = 4


def write_parts(folder: Path) -> None:
    """Handwritten digits as part-0.csv, part-1.csv and so on: 64 pixels and the label."""
    images, labels = load_digits(return_X_y=True)
    rows = np.column_stack([images, labels]).astype(int)
    header = ",".join([*PIXELS, "label"])
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(rows, NUM_PARTS)):
        path = folder / f"part-{number}.csv"
        np.savetxt(path, part, fmt="%d", delimiter=",", header=header, comments="")


def normalise(pixels, label):
    """One vector in [0, 1] for each row; a pixel of these digits is 0 to 16."""
    return tf.stack([pixels[name] for name in PIXELS], axis=1) / 16, label


def make_model() -> keras.Model:
    layers = [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main(ctx):
    with ctx.strategy.scope():
        model = make_model()
    digits = ctx.dataset("train", batch_size=64, features=PIXELS, label="label")
    model.fit(digits.map(normalise), epochs=10, callbacks=ctx.callbacks())
    ctx.export(model)


if __name__ == "__main__":
    folder = Path("digits-csv").resolve()
    write_parts(folder)
    schema = {**dict.fromkeys(PIXELS, "float"), "label": "long"}
    files = st.files(f"{folder}/part-*.csv", format="csv", header=True, schema=schema)
    st.run(main, num_workers=2, data={"train": files})
