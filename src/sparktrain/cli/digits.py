"""The data and the training function of the demo: real handwritten digits, a small network."""

from __future__ import annotations

from typing import Any

SHAPES = {"image": (8, 8, 1)}


def make_frames(spark: Any, num_parts: int) -> tuple[Any, Any]:
    """DataFrames of 1,437 images to train on and of 360 that are held back."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    rows = [(image.tolist(), int(label)) for image, label in zip(images, labels, strict=True)]
    parts = train_test_split(rows, test_size=0.2, random_state=7, stratify=labels)
    frames = [
        spark.createDataFrame(part, "image array<float>, label int").repartition(num_parts)
        for part in parts
    ]
    return frames[0], frames[1]


def train(ctx: Any) -> dict[str, Any]:
    """Trains on one DataFrame, evaluates on the other."""
    import keras

    columns: dict[str, Any] = {"features": ["image"], "label": "label"}
    digits = ctx.dataset("train", batch_size=64, shuffle=2000, seed=7, **columns)
    unseen = ctx.dataset("validation", batch_size=64, **columns)
    keras.utils.set_random_seed(7)
    with ctx.strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Rescaling(1 / 16),
                keras.layers.Conv2D(32, 3, activation="relu", padding="same"),
                keras.layers.MaxPooling2D(),
                keras.layers.Conv2D(64, 3, activation="relu", padding="same"),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(
        digits,
        validation_data=unseen,
        epochs=ctx.args["epochs"],
        callbacks=ctx.callbacks(),
        verbose=0,
    )
    loss, accuracy = model.evaluate(unseen, verbose=0)
    ctx.export(model)
    return {"loss": loss, "accuracy": accuracy, "history": history.history}
