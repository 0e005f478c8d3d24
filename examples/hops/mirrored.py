"""Handwritten digits on all executors at once.

Written for hops.
"""

from hops import experiment


def train_fn():
    import tensorflow as tf
    from sklearn.datasets import load_digits

    from hops import tensorboard

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = load_digits(return_X_y=True)
    train = tf.data.Dataset.from_tensor_slices((images[:1200] / 16, labels[:1200]))
    test = tf.data.Dataset.from_tensor_slices((images[1200:] / 16, labels[1200:]))
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((64,)),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        train.shuffle(1200, seed=1).batch(32),
        epochs=4,
        verbose=0,
        callbacks=[tf.keras.callbacks.TensorBoard(tensorboard.logdir())],
    )
    _, accuracy = model.evaluate(test.batch(128), verbose=0)
    return {"accuracy": accuracy, "replicas": strategy.num_replicas_in_sync}


if __name__ == "__main__":
    logdir, outputs = experiment.mirrored(train_fn, name="digits", metric_key="accuracy")
    print(outputs["replicas"], "replicas, accuracy", outputs["accuracy"], "in", logdir)
