"""The training function of the demo: real handwritten digits, a small convolutional network."""

from __future__ import annotations

from typing import Any


def train(ctx: Any) -> dict[str, Any]:
    """Trains on 1,437 images, evaluates on 360 that were held back."""
    import keras
    import tensorflow as tf
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32") / 16.0
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=7, stratify=labels
    )
    dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    dataset = dataset.shuffle(len(x_train), seed=7).batch(64)
    test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(64)

    keras.utils.set_random_seed(7)
    with ctx.strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
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
        dataset,
        validation_data=test,
        epochs=ctx.args["epochs"],
        shuffle=False,  # the dataset does it
        callbacks=ctx.callbacks(),
        verbose=0,
    )
    loss, accuracy = model.evaluate(test, verbose=0)
    ctx.export(model)
    return {"loss": loss, "accuracy": accuracy, "history": history.history}
