"""Softmax regression on handwritten digits, or on pictures like MNIST's, with tensorspark.

python spark_mnist.py --num-epoch 20 --num-partition 2
python spark_mnist.py --images /usr/share/datasets/fashion-mnist --batch-size 100
"""

import argparse
import gzip
import os

import numpy as np
import pyspark
import tensorflow.compat.v1 as tf

import tensorspark.core.spark_session as sps


def load(folder, part):
    """Images as rows of bytes, what their brightest pixel can be, and digits."""
    if folder is None:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        chosen = slice(0, 1500) if part == "train" else slice(1500, None)
        return images[chosen].astype("uint8"), 16, labels[chosen]
    with gzip.open(os.path.join(folder, part + "-images-idx3-ubyte.gz")) as f:
        images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(os.path.join(folder, part + "-labels-idx1-ubyte.gz")) as f:
        labels = np.frombuffer(f.read(), np.uint8, offset=8)
    return images, 255, labels


def to_numbers(images, brightest):
    return np.asarray(images, "float32") / brightest


def to_one_hot(labels):
    return np.eye(10, dtype="float32")[labels]


def train(
    sc,
    images=None,
    user="",
    name="spark_mnist",
    server_host="localhost",
    server_port=10080,
    sync_interval=100,
    batch_size=100,
    num_partition=2,
    num_epoch=1,
    combiner=None,
):
    train_images, brightest, train_labels = load(images, "train")
    pixels = train_images.shape[1]
    # Spark sends the images to each executor once; a row is made where it is needed.
    sent = sc.broadcast((train_images, train_labels))
    image_label_rdd = sc.parallelize(range(len(train_images)), num_partition).map(
        lambda i: (to_numbers(sent.value[0][i], brightest), to_one_hot(sent.value[1][i]))
    )

    # initialize the learning model exactly as Tensorflow
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, pixels])
        W = tf.Variable(tf.zeros([pixels, 10]))
        b = tf.Variable(tf.zeros([10]))
        y = tf.nn.softmax(tf.matmul(x, W) + b)
        y_ = tf.placeholder(tf.float32, [None, 10])
        cross_entropy = tf.reduce_mean(-tf.reduce_sum(y_ * tf.log(y), reduction_indices=[1]))
        train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)
        correct = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
        accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
        init = tf.initialize_all_variables()
        sess = tf.Session()
        sess.run(init)

    # Extra information to notify the SparkSession about the input/output tensor and the variables.
    feed_name_list = [x.name, y_.name]
    param_list = [W, b]

    # Initialize the SparkSession and run it with the Spark RDD data.
    spark_sess = sps.SparkSession(
        sc,
        sess,
        user=user,
        name=name,
        server_host=server_host,
        server_port=server_port,
        sync_interval=sync_interval,
        batch_size=batch_size,
    )
    test_images, _, test_labels = load(images, "t10k")
    test = {x: to_numbers(test_images, brightest), y_: to_one_hot(test_labels)}
    accuracies = []
    for _ in range(num_epoch):
        spark_sess.run(
            train_step,
            feed_rdd=image_label_rdd,
            feed_name_list=feed_name_list,
            param_list=param_list,
            weight_combiner=combiner,
            shuffle_within_partition=True,
            server_reusable=True,
        )
        accuracies.append(float(sess.run(accuracy, feed_dict=test)))
    spark_sess.stop_param_server()
    return accuracies


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", help="a folder with files like those of MNIST")
    parser.add_argument("--sync-interval", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--num-partition", type=int, default=2)
    parser.add_argument("--num-epoch", type=int, default=1)
    args = parser.parse_args()
    sc = pyspark.SparkContext(conf=pyspark.SparkConf().setAppName("spark_mnist"))
    try:
        print("accuracy", *train(sc, **vars(args)))
    finally:
        sc.stop()
