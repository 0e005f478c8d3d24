"""Handwritten digits on a Spark cluster: the script of digits_single.py, converted."""

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import sparktrain as st


def load_data() -> tf.data.Dataset:
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32") / 16
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=1).batch(64)


def make_model() -> keras.Model:
    layers = [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main(ctx):
    with ctx.strategy.scope():
        model = make_model()
    model.fit(load_data(), epochs=10, callbacks=ctx.callbacks())
    ctx.export(model)


if __name__ == "__main__":
    st.run(main, num_workers=2)
