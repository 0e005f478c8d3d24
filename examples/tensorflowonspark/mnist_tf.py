"""Keras with InputMode.TENSORFLOW: each worker reads its share of TFRecord files itself.

Written for TensorFlowOnSpark.
"""

import argparse

from pyspark import SparkConf, SparkContext

from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import tensorflow as tf

    from tensorflowonspark import compat

    features = {
        "image": tf.io.FixedLenFeature([64], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        return example["image"] / 16, example["label"]

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    files = tf.data.Dataset.list_files(f"{ctx.absolute_path(args.records)}/part-*", shuffle=False)
    dataset = tf.data.TFRecordDataset(files).map(parse).batch(args.batch_size).repeat()
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((64,)),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.Adam(0.01),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    history = model.fit(dataset, epochs=args.epochs, steps_per_epoch=args.steps, verbose=0)
    print("accuracy", history.history["accuracy"][-1], flush=True)
    compat.export_saved_model(model, ctx.absolute_path(args.export_dir), ctx.job_name == "chief")


def write_records(sc, folder):
    """Handwritten digits as TFRecord files, by dfutil."""
    from pyspark.sql import SparkSession
    from sklearn.datasets import load_digits

    from tensorflowonspark import dfutil

    digits = load_digits()
    rows = list(zip(digits.data.tolist(), digits.target.tolist()))
    frame = SparkSession(sc).createDataFrame(rows, "image array<float>, label long")
    dfutil.saveAsTFRecords(frame.repartition(4), folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--records", default="digits_records")
    parser.add_argument("--export_dir", default="mnist_tf_export")
    args = parser.parse_args()

    sc = SparkContext(conf=SparkConf().setAppName("mnist_tf"))
    write_records(sc, args.records)
    cluster = TFCluster.run(
        sc,
        main_fun,
        args,
        args.cluster_size,
        num_ps=0,
        input_mode=TFCluster.InputMode.TENSORFLOW,
        master_node="chief",
    )
    cluster.shutdown()
    sc.stop()
