"""Keras with InputMode.SPARK: Spark feeds images to workers that train together.

Written for TensorFlowOnSpark. Images are Fashion-MNIST if it is installed (Debian's
dataset-fashion-mnist), else scikit-learn's handwritten digits.
"""

import argparse
import gzip
from pathlib import Path

from pyspark import SparkConf, SparkContext

from tensorflowonspark import TFCluster

FASHION = "/usr/share/datasets/fashion-mnist"


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    from tensorflowonspark import TFNode, compat

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    feed = TFNode.DataFeed(ctx.mgr)

    def rows():
        while not feed.should_stop():
            for image, label in feed.next_batch(args.batch_size):
                yield np.array(image, np.float32) / 255, label

    shapes = (tf.TensorShape([args.pixels]), tf.TensorShape([]))
    dataset = tf.data.Dataset.from_generator(rows, (tf.float32, tf.int64), shapes)
    dataset = dataset.batch(args.batch_size)
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    dataset = dataset.with_options(options)

    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((args.pixels,)),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.Adam(0.005),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    # Partitions are uneven: training on nine of ten steps leaves no worker waiting.
    steps = int(args.num_rows * args.epochs / args.batch_size / ctx.num_workers * 0.9)
    history = model.fit(
        dataset, steps_per_epoch=steps // args.epochs, epochs=args.epochs, verbose=0
    )
    print("accuracy", history.history["accuracy"][-1], flush=True)
    compat.export_saved_model(model, ctx.absolute_path(args.export_dir), ctx.job_name == "chief")
    feed.terminate()


def load(limit, folder):
    """Images of the real thing as rows of (pixels, label)."""
    if Path(folder).exists():
        import numpy as np

        images = gzip.open(Path(folder) / "train-images-idx3-ubyte.gz").read()[16:]
        labels = gzip.open(Path(folder) / "train-labels-idx1-ubyte.gz").read()[8:]
        pixels = np.frombuffer(images, np.uint8).reshape(-1, 784)[:limit]
        return [(row.tolist(), label) for row, label in zip(pixels, labels)]
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = zip((digits.data * 15).astype(int).tolist(), digits.target.tolist())
    return list(rows)[:limit]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--export_dir", default="mnist_export")
    parser.add_argument("--images", default=FASHION)
    parser.add_argument("--limit", type=int, default=10_000)
    args = parser.parse_args()

    sc = SparkContext(conf=SparkConf().setAppName("mnist_spark"))
    rows = load(args.limit, args.images)
    args.num_rows, args.pixels = len(rows), len(rows[0][0])
    print(args.num_rows, "images of", args.pixels, "pixels")
    images = sc.parallelize(rows, args.cluster_size * 2)
    cluster = TFCluster.run(
        sc,
        main_fun,
        args,
        args.cluster_size,
        num_ps=0,
        input_mode=TFCluster.InputMode.SPARK,
        master_node="chief",
    )
    cluster.train(images, args.epochs)
    cluster.shutdown(grace_secs=30)
    sc.stop()
