"""Spark ML: TFEstimator trains on TFRecord files as a DataFrame, TFModel transforms it.

Written for TensorFlowOnSpark.
"""

import argparse
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tensorflowonspark import dfutil
from tensorflowonspark.pipeline import TFEstimator, TFModel


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    from tensorflowonspark import TFNode, compat

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((64,), name="pixels"),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy")
    feed = TFNode.DataFeed(ctx.mgr, input_mapping={"image": "pixels", "label": "label"})
    while not feed.should_stop():
        batch = feed.next_batch(args.batch_size)
        if batch["pixels"]:
            model.train_on_batch(np.array(batch["pixels"]) / 16, np.array(batch["label"]))
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")


def write_records(spark, folder):
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = list(zip(digits.data.tolist(), digits.target.tolist()))
    frame = spark.createDataFrame(rows, "image array<float>, label long")
    dfutil.saveAsTFRecords(frame.repartition(4), folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", default="digits_records")
    parser.add_argument("--export_dir", default=str(Path("pipeline_export").resolve()))
    args = parser.parse_args()

    sc = SparkContext(conf=SparkConf().setAppName("mnist_pipeline"))
    spark = SparkSession(sc)
    write_records(spark, args.records)
    digits = dfutil.loadTFRecords(sc, args.records)
    estimator = (
        TFEstimator(main_fun, args)
        .setInputMapping({"image": "pixels", "label": "label"})
        .setExportDir(args.export_dir)
        .setClusterSize(1)
        .setMasterNode("chief")
        .setEpochs(8)
        .setBatchSize(64)
    )
    model = estimator.fit(digits)
    assert isinstance(model, TFModel)
    model = (
        model.setInputMapping({"image": "pixels"})
        .setOutputMapping({"dense_1": "probabilities"})
        .setSignatureDefKey("serving_default")
    )
    scaled = digits.selectExpr("transform(image, p -> cast(p / 16 as float)) as image")
    found = [max(range(10), key=row[0].__getitem__) for row in model.transform(scaled).collect()]
    labels = [row.label for row in digits.collect()]
    print("accuracy", sum(map(int.__eq__, found, labels)) / len(labels), flush=True)
    sc.stop()
