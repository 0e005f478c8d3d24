"""Handwritten digits on several workers, with a function as for one machine.

Written for spark-tensorflow-distributor.
"""

import argparse

from pyspark.sql import SparkSession

from spark_tensorflow_distributor import MirroredStrategyRunner


def train(batch_size, epochs):
    import tensorflow as tf
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[..., None] / 16).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((images, digits.target.astype("int64")))
    dataset = dataset.repeat().shuffle(2000, seed=1).batch(batch_size)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.with_options(options)

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, activation="relu", input_shape=(8, 8, 1)),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        loss=tf.keras.losses.sparse_categorical_crossentropy,
        optimizer=tf.keras.optimizers.Adam(0.005),
        metrics=["accuracy"],
    )
    steps = len(images) // batch_size
    history = model.fit(x=dataset, epochs=epochs, steps_per_epoch=steps, verbose=0)
    return float(history.history["accuracy"][-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_slots", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    spark = SparkSession.builder.appName("mnist").getOrCreate()
    runner = MirroredStrategyRunner(num_slots=args.num_slots, use_gpu=False)
    print("accuracy", runner.run(train, batch_size=args.batch_size, epochs=args.epochs))
    spark.stop()
